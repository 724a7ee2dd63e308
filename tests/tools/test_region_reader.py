"""Region and time files from outside: what is there is told, and what cannot be is one line."""

from __future__ import annotations

import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from gpufence.config.terms import Priority
from gpufence.errors import ExitCode
from gpufence.state import region, shared_file, time_file
from gpufence.state import shared_layout as layout
from gpufence.state.shared_file import Life, RegionError

from .region_files import GIB, RegionFile, Signed, TimeFile, start_ticks, this_process

WEB = "GPU-ab000203-0405-0607-0809-0a0b0c0d0e0f"
WEB_1 = "GPU-ab010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_region_tells_devices_processes_and_bytes(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made:
        made.device(0, orphans=5, past=(1, 2, 3))
        made.device(1)
        made.process(0, this_process())
        made.process(3, Signed(pid=9, uid=42))
        made.use(0, 0, held=3 * GIB, asking=GIB, overhead=GIB, limit=8 * GIB, activity=(10, 20, 30))
        made.use(0, 3, held=7, limit=4 * GIB)
        made.use(1, 3, limit=layout.NO_LIMIT)

        read = region.read(made.path)

    first, second = read.devices
    assert (read.container, read.alive) == ("web", True)
    assert (first.uuid, first.limit_bytes, first.orphan_bytes) == (WEB, 4 * GIB, 5)
    assert first.used_bytes == 4 * GIB + 7 + 5
    assert first.activity == region.Activity(11, 22, 33)
    mine, other = first.uses
    assert (mine.held_bytes, mine.asking_bytes, mine.overhead_bytes) == (3 * GIB, GIB, GIB)
    assert (mine.limit_bytes, other.limit_bytes) == (8 * GIB, 4 * GIB)
    assert (mine.owner.pid, mine.owner.foreign, mine.owner.life) == (os.getpid(), False, Life.ALIVE)
    assert (other.owner.slot, other.owner.pid, other.owner.uid) == (3, 9, 42)
    assert (other.owner.foreign, other.owner.life) == (True, Life.ALIVE)
    assert (second.uuid, second.limit_bytes, second.used_bytes) == (WEB_1, None, 0)
    assert [use.owner.pid for use in second.uses] == [9]


def test_the_dead_are_shown_and_not_counted(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    me = this_process()
    with RegionFile(tmp_path) as made:
        made.device(0)
        made.process(0, me)
        made.process(1, replace(me, locked=False))  # it let go of its lock
        made.process(2, replace(me, ticks=me.ticks + 1))  # its number is ours by now
        made.process(3, replace(me, pid=ended.pid))  # a child keeps its lock
        made.process(4, Signed(locked=False))
        for slot in range(5):
            made.use(0, slot, held=GIB, limit=(8 - slot) * GIB)

        (device,) = region.read(made.path).devices

    lives = [use.owner.life for use in device.uses]
    assert lives == [Life.ALIVE, *[Life.GONE] * 4]
    assert (device.used_bytes, device.limit_bytes) == (GIB, 8 * GIB)


def test_a_zombie_is_dead_whoever_holds_its_lock(tmp_path: Path) -> None:
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    with RegionFile(tmp_path) as made:
        made.device(0)
        ticks = start_ticks(zombie.pid)
        made.process(0, replace(this_process(), pid=zombie.pid, ticks=ticks))
        made.use(0, 0, held=GIB)

        (device,) = region.read(made.path).devices

    zombie.wait()
    assert [use.owner.life for use in device.uses] == [Life.GONE]


def test_a_time_file_tells_tenants_turns_and_members(tmp_path: Path) -> None:
    turn = 123 << layout.TURN_BEGAN_SHIFT | layout.TURN_CLOSING | (4 + 1)
    with TimeFile(tmp_path) as made:
        made.device(0, turn=turn, foreign_ns=77, deep=True)
        made.device(1)
        web_key = time_file.tenant_key("web")
        made.tenant(0, 4, web_key, due_ns=8, served_ns=9, charged_ns=10, terms=7 << 8 | 1)
        made.tenant(0, 5, 99, shares=(100_000, 100_000))
        made.member(0, 2, 4, this_process(), beat=1000 << 1 | 1)
        made.member(0, 3, 4, Signed(pid=8, locked=False))

        read = time_file.read(made.path)

    busy, free = read.devices
    assert (read.name, read.same_clock) == ("node", False)
    assert (busy.uuid, busy.foreign_ns) == (WEB, 77)
    assert busy.turn == time_file.Turn(tenant=4, closing=True, began_us=123)
    assert (free.turn.tenant, free.tenants) == (None, ())
    assert (busy.takes_turns, free.takes_turns) == (True, False)
    web, other = busy.tenants
    assert web.key == time_file.tenant_key("web") != other.key
    assert web.shares == time_file.Shares(hard=30_000, soft=60_000)
    assert (web.due_ns, web.served_ns, web.charged_ns) == (8, 9, 10)
    assert (web.priority, other.priority) == (Priority.LOW, None)
    assert [(m.owner.pid, m.owner.life) for m in web.members] == [
        (os.getpid(), Life.ALIVE),
        (8, Life.GONE),
    ]
    assert (web.members[0].beat_us, web.members[0].outstanding) == (1000, True)
    assert (web.alive, other.alive) == (True, False)


def test_files_are_found_where_the_library_puts_them(tmp_path: Path) -> None:
    state, node, elsewhere = tmp_path / "state", tmp_path / "node", tmp_path / "elsewhere"
    environment = {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_NODE_DIR": str(node)}
    with RegionFile(state) as one, TimeFile(node) as cores, RegionFile(elsewhere) as other:
        (state / "gpufence-folder.v4").mkdir()
        (state / "gpufence-link.v4").symlink_to(one.path)
        (state / "gpufence-.v4").touch()
        (state / "unrelated").touch()

        found = region.find(environment)

        assert one.path in found
        assert not any(path.name == "gpufence-link.v4" for path in found)
        assert [path for path in found if path.parent == state] == [one.path]
        assert other.path not in found
        assert region.find(environment, str(elsewhere)) == [other.path]
        assert time_file.find({}, str(node)) == [cores.path]
        assert cores.path in time_file.find(environment)
        assert region.find({}, str(tmp_path / "absent")) == []


@pytest.mark.parametrize("reader", [region, time_file], ids=["region", "time file"])
@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (0, b"\0", "it does not begin as a"),
        (8, b"\x63", "its layout is 99, and this gpufence reads layout"),
        (12, b"\x01", "it has places for"),
        (16, b"\x01", "it has places for"),
        (20, b"\xff\xff", "it claims to have used"),
    ],
)
def test_a_damaged_header_is_one_line(
    tmp_path: Path, reader: object, offset: int, value: bytes, why: str
) -> None:
    kind = RegionFile if reader is region else TimeFile
    if reader is time_file and offset == 20:
        offset = 24
    with kind(tmp_path) as made:
        os.pwrite(made.fd, value, offset)

        with pytest.raises(RegionError) as refused:
            reader.read(made.path)  # type: ignore[attr-defined]

    assert refused.value.status is ExitCode.ERROR
    assert str(refused.value).startswith(f"cannot read {made.path}: {why}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("reader", [region, time_file], ids=["region", "time file"])
def test_what_is_no_file_of_ours_is_one_line(tmp_path: Path, reader: object) -> None:
    read = reader.read  # type: ignore[attr-defined]
    short, pipe, link = tmp_path / "short", tmp_path / "pipe", tmp_path / "link"
    short.write_bytes(b"gpfence1")
    os.mkfifo(pipe)
    link.symlink_to(short)

    for path, why in [
        (short, "it has 8 bytes where"),
        (pipe, "it is no regular file"),
        (link, "too many levels of symbolic links"),
        (tmp_path / "absent", "it is gone"),
        (tmp_path, "it is no regular file"),
    ]:
        with pytest.raises(RegionError, match=why):
            read(path)


def test_another_version_is_said_by_its_name_alone(tmp_path: Path) -> None:
    for reader, name in ((region, "gpufence-web.v3"), (time_file, "gpufence-node.cores1-0badf00d")):
        (tmp_path / name).touch()

        files, errors = reader.read_all(reader.find({}, str(tmp_path)))

        assert files == []
        assert [error.why.split(",")[0] for error in errors] == [
            f"its layout is {3 if reader is region else 1}"
        ]


def test_a_file_that_shrinks_while_it_is_read_is_one_line(tmp_path: Path) -> None:
    whole = layout.structure("Region")
    with RegionFile(tmp_path) as made, shared_file.SharedFile(made.path, whole.bytes) as it:
        os.ftruncate(made.fd, whole.at("cells"))

        with pytest.raises(RegionError, match="it ended while it was read"):
            it.read(whole.at("cells") - 8, 16)


@pytest.mark.parametrize("seed", range(8))
def test_garbage_behind_a_good_header_is_numbers_or_one_line(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    with RegionFile(tmp_path, slots=64) as made, TimeFile(tmp_path, members=64) as cores:
        for file, name in ((made, "Region"), (cores, "TimeBytes")):
            size = layout.structure(name).bytes
            for start in (
                layout.structure(name).at("rows"),
                *(noise.randrange(64, size) for _ in range(60)),
            ):
                os.pwrite(file.fd, noise.randbytes(min(9000, size - start)), start)

        answers = region.read(made.path), time_file.read(cores.path)

    assert all(len(answer.devices) > 60 for answer in answers)
