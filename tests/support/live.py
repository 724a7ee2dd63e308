"""What tests of limits that change while programs run share: an operator, and a program to limit.

The operator writes as `gpufence set` does, through the same module and without its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

from gpufence.container import containers
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts
from gpufence.state.limits_file import SetLimits

from .machine import Sim

NAME = "web"


def environment(state: Path, **limits: str) -> dict[str, str]:
    """Of a program in the container; limits by the last part of their variable's name."""
    named = {f"GPUFENCE_{name}": text for name, text in limits.items()}
    return {"GPUFENCE_CONTAINER": NAME, "GPUFENCE_STATE_DIR": str(state), **named}


def put(state: Path, entries: Mapping[bytes, Amounts]) -> SetLimits:
    """Make these the container's set limits, and tell its processes."""
    container = containers.one(NAME, str(state))
    told = limits_file.told(container.region) if container.region else 0
    changed = limits_file.change(
        container.limits_path,
        container.owner,
        told,
        lambda _: entries,
        lambda *_: None,
        replace_damaged=True,
    )
    if container.region:
        limits_file.announce(container.region, changed.generation)
    return changed


def put_memory(state: Path, limit_bytes: int | None) -> SetLimits:
    """Set the memory limit of every GPU; None takes it back."""
    return put(state, {EVERY_GPU: Amounts(memory=limit_bytes)})


def put_cores(state: Path, percent: int | None) -> SetLimits:
    """Set the core limit of every GPU; None takes it back."""
    cores = None if percent is None else percent * 1000
    return put(state, {EVERY_GPU: Amounts(cores=cores)})


def limits_path(state: Path) -> Path:
    """Where the container's limits file is."""
    return limits_file.path_of(state, NAME)


@contextmanager
def spinning(sim: Sim, state: Path, **limits: str) -> Iterator[Popen[str]]:
    """Run live_spin in the container."""
    process = sim.spawn("live_spin", preload=True, env=environment(state, **limits))
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: Popen[str], *words: str | int) -> float:
    """One command of live_spin, its number."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(" ".join(map(str, words)) + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())
