"""Programs in virtual time (tests/support/virtual_time.cpp): exact, repeatable, soon over.

Must not know what the programs do.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .machine import Finished, Sim

Words = Sequence[str | int | Path]


def run_together(
    sim: Sim,
    folder: Path,
    commands: Sequence[Words],
    *,
    env: Mapping[str, str] | None = None,
    own: Sequence[Mapping[str, str]] = (),
    preload: bool = True,
    timeout: float = 120,
) -> list[Finished]:
    """Runs programs of build/tests side by side, from the same virtual moment to their ends.

    Args:
        sim: what machine they are on, a new one each time.
        folder: where the files go that they share.
        commands: a program's name and its arguments, each.
        env: variables of all of them.
        own: variables of each of them.
        preload: whether libgpufence.so is in front of the driver.
        timeout: real seconds until all are killed and the test fails.
    """
    # Virtual time begins anew, so nobody may find a machine that had some before.
    count = len(list(folder.glob("world*")))
    world = folder / f"world{count}"
    world.write_bytes(b"")
    machine = folder / f"machine{count}"
    shim = str(sim.build / "tests" / "virtual_time.so")
    processes = []
    for place, (program, *arguments) in enumerate(commands):
        names = sim.environment(preload, {**(env or {}), **(own[place] if own else {})})
        names |= {
            "GPUFENCE_SIM_STATE": str(machine),
            "LD_PRELOAD": f"{shim} {names.get('LD_PRELOAD', '')}".strip(),
            "GPUFENCE_TEST_WORLD": str(world),
            "GPUFENCE_TEST_WORLD_SIZE": str(len(commands)),
            "GPUFENCE_TEST_WORLD_PLACE": str(place),
        }
        command = sim.command(program, tuple(arguments))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, env=names, text=True, **pipes))
    try:
        with ThreadPoolExecutor(len(processes)) as pool:
            said = list(pool.map(lambda each: each.communicate(timeout=timeout), processes))
    finally:
        for process in processes:
            process.kill()
    return [
        Finished(process.returncode, out, error)
        for process, (out, error) in zip(processes, said, strict=True)
    ]
