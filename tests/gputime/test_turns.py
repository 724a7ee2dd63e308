"""Several containers on a simulated GPU: whatever happens to one, the others go on.

Nothing here says how soon: pauses, shares and sums are measured on a GPU
(tests/gpu/part_cores_tenants.py), and in virtual time (test_shares.py).
GPUFENCE_TEST_TURN_EVENTS makes the long run.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import Sim

from .turn_workers import Workers, turn, workers

EVENTS = int(os.environ.get("GPUFENCE_TEST_TURN_EVENTS", "40"))
CONTAINERS = 8
MEMBERS = 8
SHARE = 12
BURST_MS = 50  # what was saved by who was stopped
LOST_MS = 16  # of work that a process had counted, and not yet paid for, when it was killed


@pytest.fixture
def scene(sim: Sim, tmp_path: Path) -> Iterator[Workers]:
    """Workers over a private machine."""
    with workers(sim, tmp_path) as made:
        yield made


def has_turn(scene: Workers, container: str) -> bool:
    """Whether the first device is the container's."""
    return turn(scene.time_file(container))[0] == 0


def test_two_containers_take_turns(scene: Workers) -> None:
    scene.start(0, scene.env("a", 50))
    scene.start(1, scene.env("b", 50))
    scene.await_progress([0, 1])
    for holder in "abab":
        scene.await_true(
            functools.partial(has_turn, scene, holder), lambda: "never the other one's turn"
        )

    said = scene.finish()

    assert said == {0: "", 1: ""}


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_others_go_on_when_the_holder_is_gone(scene: Workers, way: str) -> None:
    scene.start(0, scene.env("stays", 50))
    scene.await_progress([0])
    for _ in range(4):
        scene.start(1, scene.env("goes", 50))
        scene.await_progress([0, 1])
        scene.await_true(
            lambda: turn(scene.time_file("goes")) == (0, False), lambda: "it never had the turn"
        )
        if way == "stopped":
            scene.stop(1)
            scene.await_progress([0])
            scene.go_on(1)
            scene.await_progress([0, 1])
        scene.kill(1)
        scene.await_progress([0])

    assert scene.finish() == {0: ""}


def test_a_process_that_ends_leaves_the_turn(scene: Workers) -> None:
    # One tenth of the GPU: it holds its turn while it waits to be allowed to launch again.
    scene.start(0, scene.env("ends", 10))
    scene.await_progress([0])

    scene.finish()

    assert turn(scene.time_file("ends"))[1] is False
    with workers(scene.sim, scene.folder / "again") as others:
        others.node, others.sim = scene.node, scene.sim
        others.start(0, others.env("other", 50))
        others.await_progress([0])
        assert others.finish() == {0: ""}


def test_sixty_four_processes_survive_kills_and_stops(scene: Workers) -> None:
    chance = random.Random(7)
    numbers = list(range(CONTAINERS * MEMBERS))
    containers = [f"c{number % CONTAINERS}" for number in numbers]
    kills = [0] * CONTAINERS
    for number in numbers:
        scene.start(number, scene.env(containers[number], SHARE))
    scene.await_progress(numbers, least=1)
    stopped: set[int] = set()

    for _ in range(EVENTS):
        number = chance.choice(numbers)
        if number in stopped:
            scene.go_on(number)
            stopped.discard(number)
        elif chance.random() < 0.5:
            scene.stop(number)
            stopped.add(number)
        else:
            scene.kill(number)
            kills[number % CONTAINERS] += 1
            scene.start(number, scene.env(containers[number], SHARE))
        time.sleep(chance.random() * 0.02)
    if len(stopped) < len(numbers):
        free = [number for number in numbers if number not in stopped]
        before = sum(scene.count(number) for number in free)
        scene.await_true(
            lambda: sum(scene.count(number) for number in free) > before, lambda: "nobody goes on"
        )
    for number in stopped:
        scene.go_on(number)
    scene.await_progress(numbers, least=1)
    said = scene.finish()

    assert set(said.values()) == {""}
    for container in range(CONTAINERS):
        members = numbers[container::CONTAINERS]
        allowed_ms = SHARE / 100 * scene.elapsed_ms() + BURST_MS + LOST_MS * kills[container]
        assert scene.busy_ms(members) <= allowed_ms, container


def test_each_device_has_its_own_limits_and_turns(scene: Workers, sim: Sim) -> None:
    scene.sim = sim.with_env(GPUS=2)
    limits = {"GPUFENCE_CORE_LIMIT_0": "20", "GPUFENCE_CORE_LIMIT_1": "60"}
    for number, container in ((0, "a"), (2, "b")):
        env = scene.env(container, 50, **limits)
        scene.start(number, env, "both")
    scene.await_progress([0, 1, 2, 3], least=40)

    said = scene.finish()

    assert set(said.values()) == {""}
    for number, percent in ((0, 20), (1, 60), (2, 20), (3, 60)):
        allowed_ms = percent / 100 * scene.elapsed_ms() + BURST_MS
        assert scene.busy_ms([number]) <= allowed_ms, number
