"""Core limits and turns without the means for them: one clear warning, and the limit still holds.

No thread to be had, no folder, full tables, a file that somebody else wrote.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import random
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpufence.state import shared_layout as layout

from tests.support.machine import Sim

from .turn_workers import Workers, workers

SHARE = 30
BURST_MS = 10
UNPAID_MS = 6  # of a process that looks only when it launches

CORES = layout.structure("TimeBytes")

# Every word of it but what is owed, which is believed: where it begins, and how many bytes.
PARTS = {
    "header": (0, layout.structure("TimeHeader").bytes),
    "row": (CORES.at("rows"), layout.structure("TimeRow").bytes),
    "processes": (CORES.at("processes"), CORES.members["processes"].bytes),
    "name": (CORES.at("tenants"), 8),
    "shares": (CORES.at("tenants") + layout.structure("CoreTenant").at("shares"), 8),
    "members": (
        CORES.at("members"),
        layout.structure("CoreMember").bytes * layout.MAX_CORE_MEMBERS,
    ),
}
HEALED_S = 1.5  # what only its owner knows is written again each second
NOBODY = 65534

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def scene(sim: Sim, tmp_path: Path) -> Iterator[Workers]:
    """Workers over a private machine."""
    with workers(sim, tmp_path) as made:
        yield made


def assert_held(scene: Workers, numbers: list[int], percent: float = SHARE) -> None:
    """The workers together had no more than a share."""
    assert scene.busy_ms(numbers) <= percent / 100 * scene.elapsed_ms() + BURST_MS + UNPAID_MS


def only_line(text: str) -> str:
    """The one line that was written."""
    (line,) = text.splitlines()
    return line


def test_without_a_thread_launches_look_by_themselves(scene: Workers) -> None:
    scene.start(0, scene.env("a", SHARE), "alone")
    scene.start(1, scene.env("b", SHARE), "alone")
    scene.await_progress([0, 1], least=100)

    said = scene.finish()

    for number in (0, 1):
        assert "the thread that measures GPU time cannot be started" in only_line(said[number])
        assert "Allow the process another thread" in said[number]
        assert_held(scene, [number])


def test_one_without_a_thread_is_no_burden_for_others(scene: Workers) -> None:
    scene.start(0, scene.env("blind", SHARE), "alone")
    scene.start(1, scene.env("sees", SHARE))
    scene.await_progress([0, 1], least=100)
    scene.kill(0)
    scene.await_progress([1], least=100)

    assert scene.finish() == {1: ""}
    assert_held(scene, [1])


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder, mounted read-only."""
    for words in (["--bind", str(folder), str(folder)], ["-o", "remount,ro,bind", str(folder)]):
        if subprocess.run(["mount", *words], capture_output=True, check=False).returncode != 0:
            pytest.skip("no right to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("what", ["absent", "file", "read-only"])
def test_without_a_usable_node_folder_a_container_stands_alone(
    scene: Workers, tmp_path: Path, what: str
) -> None:
    folder = tmp_path / what
    if what == "file":
        folder.touch()
    elif what == "read-only":
        folder.mkdir()
    env = scene.env("a", SHARE, GPUFENCE_NODE_DIR=str(folder))

    def work() -> dict[int, str]:
        # Two processes: they still share one limit.
        scene.start(0, env)
        scene.start(1, env)
        scene.await_progress([0, 1], least=60)
        return scene.finish()

    if what == "read-only":
        with read_only(folder):
            said = work()
    else:
        said = work()

    for number in (0, 1):
        line = only_line(said[number])
        assert f"GPUFENCE_NODE_DIR='{folder}' is not used" in line
        assert "spent queued behind other containers is charged, too. Mount a folder" in line
    assert_held(scene, [0, 1])


def test_a_full_table_of_processes_refuses_and_says_so(scene: Workers) -> None:
    scene.start(0, scene.env("c", SHARE))
    scene.await_progress([0])
    with scene.time_file("c").open("r+b") as file:
        # As if others held all places but that of the first.
        most = layout.MAX_CORE_MEMBERS - 1
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_BASE + 1, most, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, lock)
        refused = scene.sim.run(
            "turns_worker", 500, scene.diary, 1, preload=True, env=scene.env("c", SHARE)
        )
    scene.await_progress([0])

    assert refused.returncode != 0
    assert "no free place in the time file (2048 processes)" in refused.stderr
    assert scene.finish() == {0: ""}


def test_an_older_file_is_left_alone(scene: Workers) -> None:
    scene.start(0, scene.env("a", SHARE))
    scene.await_progress([0])
    new = scene.time_file("a")
    scene.kill(0)
    older = new.with_name(re.sub(r"cores\d+", "cores1", new.name))
    new.rename(older)
    before = older.read_bytes()
    scene.start(0, scene.env("a", SHARE))
    scene.await_progress([0])

    assert scene.finish() == {0: ""}
    assert older.read_bytes() == before
    assert new.exists()


def test_a_file_that_is_none_is_replaced(scene: Workers) -> None:
    scene.start(0, scene.env("a", SHARE))
    scene.await_progress([0])
    path = scene.time_file("a")
    scene.kill(0)
    path.write_bytes(random.Random(3).randbytes(100_000))
    scene.start(0, scene.env("a", SHARE))
    scene.start(1, scene.env("b", SHARE))
    scene.await_progress([0, 1])

    assert scene.finish() == {0: "", 1: ""}


def test_garbage_while_running_hangs_nobody(scene: Workers) -> None:
    chance = random.Random(11)
    for number in range(4):
        scene.start(number, scene.env(f"c{number % 2}", SHARE))
    scene.await_progress(list(range(4)))
    with scene.time_file("c0").open("r+b") as file:
        row = struct.unpack("QQQ", os.pread(file.fileno(), 24, CORES.at("rows")))
        for _ in range(20):
            # Turns, virtual time, strangers: every word but the device's name.
            os.pwrite(
                file.fileno(),
                chance.randbytes(8 * 3),
                CORES.at("rows") + layout.structure("TimeRow").at("turn"),
            )
            scene.await_progress(list(range(4)), least=4)
        assert struct.unpack("QQQ", os.pread(file.fileno(), 24, CORES.at("rows"))) == row

    assert set(scene.finish().values()) == {""}
    assert_held(scene, [0, 2])
    assert_held(scene, [1, 3])


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
@pytest.mark.parametrize("part", [*PARTS, "all"])
@pytest.mark.parametrize("place", ["node", "own"])
def test_what_was_overwritten_in_use_is_written_again(
    scene: Workers, place: str, part: str, byte: bytes
) -> None:
    env = scene.env("c", SHARE)
    if place == "own":
        del env["GPUFENCE_NODE_DIR"]
    for number in (0, 1):
        scene.start(number, env)
    scene.await_progress([0, 1])
    (path,) = scene.folder.glob("gpufence-*.cores*")
    with path.open("r+b") as file:
        for at, count in PARTS.values() if part == "all" else [PARTS[part]]:
            os.pwrite(file.fileno(), byte * count, at)
    time.sleep(HEALED_S)
    begin, before = scene.elapsed_ms(), scene.busy_ms([0, 1])
    scene.await_progress([0, 1], least=200)
    elapsed, busy = scene.elapsed_ms() - begin, scene.busy_ms([0, 1]) - before

    # Who comes later finds the others there.
    scene.start(2, env)
    scene.await_progress([0, 1, 2])
    assert len(list(scene.folder.glob("gpufence-*.cores*"))) == 1
    assert len(scene.notices()) == (1 if place == "node" else 0)
    assert busy <= SHARE / 100 * elapsed + BURST_MS + UNPAID_MS
    assert set(scene.finish().values()) == {""}


@needs_root
@pytest.mark.parametrize("users", [(0, NOBODY), (NOBODY, 0)])
def test_users_that_may_not_do_the_same_share_one_limit(sim: Sim, users: tuple[int, int]) -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    try:
        with workers(dataclasses.replace(sim, state=folder / "machine"), folder) as scene:
            scene.node.chmod(0o755)
            scene.diary.chmod(0o666)
            for number, user in enumerate(users):
                scene.start(number, scene.env("a", SHARE), user=user)
                scene.await_progress([number])
                for machine in folder.glob("machine.*"):
                    machine.chmod(0o666)
            begin, before = scene.elapsed_ms(), scene.busy_ms([0, 1])
            scene.await_progress([0, 1], least=200)
            elapsed, busy = scene.elapsed_ms() - begin, scene.busy_ms([0, 1]) - before

            said = scene.finish()
    finally:
        shutil.rmtree(folder)

    assert busy <= SHARE / 100 * elapsed + BURST_MS + UNPAID_MS
    # Whoever may not write a notice goes without turns, and says so.
    (root, nobody) = (users.index(0), users.index(NOBODY))
    assert said[root] == ""
    assert "Permission denied" in only_line(said[nobody])


def test_a_watcher_that_is_stopped_alone_stops_no_launch(scene: Workers) -> None:
    env = {"GPUFENCE_CORE_LIMIT": str(SHARE), "GPUFENCE_STATE_DIR": str(scene.folder)}
    done = scene.sim.run("stopped_watcher", 5_000, 1_500, preload=True, env=env)
    if done.returncode == 77:
        pytest.skip("no right to stop a thread")

    # Launches that nobody looks after wait for two seconds each.
    assert SHARE / 3 < done.facts["share"] < SHARE + 3


def test_a_process_scope_is_a_tenant_of_its_own(scene: Workers) -> None:
    env = scene.env("a", SHARE, GPUFENCE_SCOPE="process")
    scene.start(0, env)
    scene.start(1, env)
    scene.await_progress([0, 1], least=100)

    assert len(scene.notices()) == 2
    assert scene.finish() == {0: "", 1: ""}
