"""A frozen container launches nothing and loses nothing; all else of its programs goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from tests.support.live import NAME, ask, environment, put
from tests.support.machine import Sim

# With a core limit, with another limit alone, and with none but a name.
LIMITS = {"cores": {"CORE_LIMIT": "60"}, "memory": {"MEMORY_LIMIT": "4g"}, "name": {}}
GPUS = 2


@pytest.fixture(params=LIMITS)
def limits(request: pytest.FixtureRequest, state: Path) -> dict[str, str]:
    """What the container is limited to."""
    limits_file.prepare((state,), NAME)
    return LIMITS[request.param]


@contextmanager
def launcher(
    sim: Sim, state: Path, limits: dict[str, str], name: str = NAME
) -> Iterator[Popen[str]]:
    """The program `frozen`, on two GPUs."""
    env = {**environment(state, **limits), "GPUFENCE_CONTAINER": name}
    process = sim.with_env(GPUS=GPUS).spawn("frozen", GPUS, preload=True, env=env)
    assert process.stdout
    try:
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def freeze(state: Path, frozen: bool = True) -> None:
    """As `gpufence freeze` and `resume`."""
    put(state, {EVERY_GPU: Amounts(frozen=frozen)})


@pytest.mark.parametrize("way", ["kernel", "graph"])
def test_what_is_launched_while_frozen_begins_when_it_is_resumed(
    sim: Sim, state: Path, limits: dict[str, str], way: str
) -> None:
    with launcher(sim, state, limits) as process:
        freeze(state)
        ask(process, "start", way)
        assert ask(process, "settled") == 0
        assert ask(process, "idle") == 0
        assert ask(process, "ended") == 0

        freeze(state, False)

        assert ask(process, "join") == GPUS


def test_a_launch_on_several_devices_at_once_is_held_as_well(
    sim: Sim, state: Path, limits: dict[str, str]
) -> None:
    with launcher(sim.with_env(DRIVER="550"), state, limits) as process:
        freeze(state)
        ask(process, "start", "many")
        assert ask(process, "settled") == 0

        freeze(state, False)

        assert ask(process, "join") == GPUS


def test_a_running_program_stops_and_goes_on_in_its_order(
    sim: Sim, state: Path, limits: dict[str, str]
) -> None:
    with launcher(sim, state, limits) as process:
        ask(process, "flood")
        ask(process, "more", 20)
        for _ in range(3):
            freeze(state)
            launched = ask(process, "settled")
            assert ask(process, "idle") == 0
            assert ask(process, "ended") == launched
            assert ask(process, "settled") == launched

            freeze(state, False)
            assert ask(process, "more", int(launched) + 20) > launched
        ask(process, "stop")
        ask(process, "join")

        assert ask(process, "wrong") == 0


def test_all_but_launches_goes_on_while_frozen(
    sim: Sim, state: Path, limits: dict[str, str]
) -> None:
    with launcher(sim, state, limits) as process:
        freeze(state)
        ask(process, "start", "kernel")
        assert ask(process, "settled") == 0

        assert ask(process, "memory") == 0
        assert ask(process, "capture") == 0
        assert ask(process, "idle") == 0
        assert ask(process, "fork") == 7
        assert ask(process, "signal") == GPUS
        assert ask(process, "settled") == 0

        freeze(state, False)
        assert ask(process, "join") == GPUS


def test_a_process_that_comes_while_frozen_is_held_too(
    sim: Sim, state: Path, limits: dict[str, str]
) -> None:
    freeze(state)
    with launcher(sim, state, limits) as process, launcher(sim, state, limits) as other:
        for each in (process, other):
            ask(each, "start", "kernel")
            assert ask(each, "settled") == 0

        freeze(state, False)

        assert [ask(each, "join") for each in (process, other)] == [GPUS, GPUS]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_frozen_process_dies_of_a_signal(
    sim: Sim, state: Path, limits: dict[str, str], number: signal.Signals
) -> None:
    with launcher(sim, state, limits) as process, launcher(sim, state, limits) as other:
        freeze(state)
        for each in (process, other):
            ask(each, "start", "kernel")
            ask(each, "settled")

        process.send_signal(number)

        assert process.wait(timeout=60) == -number
        freeze(state, False)
        assert ask(other, "join") == GPUS


@pytest.mark.parametrize(("word", "status"), [("exit", 5), ("handler", 6)])
@pytest.mark.parametrize("before", [True, False], ids=["launched before", "never launched"])
def test_exit_ends_a_frozen_process(
    sim: Sim, state: Path, limits: dict[str, str], word: str, status: int, before: bool
) -> None:
    with launcher(sim, state, limits) as process:
        if before:
            ask(process, "start", "kernel")
            ask(process, "join")
        freeze(state)
        ask(process, "start", "kernel")
        ask(process, "settled")

        assert process.stdin
        process.stdin.write(f"{word}\n")
        process.stdin.flush()

        assert process.wait(timeout=60) == status


def test_a_limit_that_is_taken_back_leaves_a_frozen_container_frozen(
    sim: Sim, state: Path, limits: dict[str, str]
) -> None:
    with launcher(sim, state, limits) as process:
        put(state, {EVERY_GPU: Amounts(cores=30_000, frozen=True)})
        ask(process, "start", "kernel")
        assert ask(process, "settled") == 0

        freeze(state)
        assert ask(process, "settled") == 0

        put(state, {})
        assert ask(process, "join") == GPUS


@pytest.mark.parametrize("own", ["60", "0"], ids=["limited", "with other limits alone"])
def test_neighbours_go_on_beside_a_frozen_container(
    sim: Sim, state: Path, tmp_path: Path, own: str
) -> None:
    shared = {"NODE_DIR": str(tmp_path), "MEMORY_LIMIT": "4g"}
    limits_file.prepare((state,), NAME)
    with (
        launcher(sim, state, {**shared, "CORE_LIMIT": own}) as process,
        launcher(sim, state, {**shared, "CORE_LIMIT": "40"}, "other") as other,
    ):
        for each in (process, other):
            ask(each, "flood")
            ask(each, "more", 20)
        freeze(state)
        launched = ask(process, "settled")
        ask(process, "idle")
        ended = ask(other, "ended")

        assert ask(other, "more", int(ended) + 200) > ended + 200
        assert ask(process, "ended") == launched

        freeze(state, False)
        assert ask(process, "more", int(launched) + 20) > launched


def test_a_process_with_limits_of_its_own_alone_is_not_frozen(sim: Sim, state: Path) -> None:
    limits_file.prepare((state,), NAME)
    freeze(state)
    own = {"CORE_LIMIT": "60", "SCOPE": "process"}
    with launcher(sim, state, own) as process:
        ask(process, "start", "kernel")

        assert ask(process, "join") == GPUS
