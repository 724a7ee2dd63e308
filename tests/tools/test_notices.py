"""Notices in a node folder from outside: sound ones are shown, anything else is passed over."""

from __future__ import annotations

import fcntl
import json
import os
import random
import struct
from pathlib import Path

import pytest
from gpufence.config.terms import Priority
from gpufence.state import notices, shared_file
from gpufence.state import shared_layout as layout

from .gpufence_command import gpufence
from .region_files import RegionFile, this_process, uuid

DEVICE = 0x0706050403020100


def notice(author: int, holder: int = 0, device: int = DEVICE, terms: int = 0) -> bytes:
    """A sound one, at 30 % and 60 %."""
    shares = 30_000 | 60_000 << 32
    words = (layout.NOTICE_MAGIC, author, device, holder, shares, 77, terms, 0)
    raw = notices.FIELDS.pack(*words)
    return raw[:-8] + struct.pack("<Q", notices.check_of(raw))


def path_of(folder: Path, author: int, device: int = DEVICE) -> Path:
    return folder / f"gpufence-turns{layout.NOTICE_VERSION}-0badf00d-{device:016x}-{author:016x}"


def test_a_sound_notice_tells_of_its_container(tmp_path: Path) -> None:
    path_of(tmp_path, 5).write_bytes(notice(5, holder=5))

    (read,) = notices.read_all({}, str(tmp_path))

    assert (read.author, read.device, read.charged_ns) == (5, DEVICE, 77)
    assert (read.shares.hard, read.shares.soft) == (30_000, 60_000)
    assert (read.holds_turn, read.alive) == (True, False)


@pytest.mark.parametrize(
    ("terms", "priority"),
    [
        (0, None),  # as libraries before this word had it
        (5_000 << 32 | 7 << 8 | 1, Priority.LOW),
        (2, Priority.NORMAL),
        (100 << 8 | 3, Priority.HIGH),
        (4, None),
        (2**64 - 1, None),
    ],
)
def test_a_notice_tells_its_containers_priority(
    tmp_path: Path, terms: int, priority: Priority | None
) -> None:
    path_of(tmp_path, 5).write_bytes(notice(5, terms=terms))

    (read,) = notices.read_all({}, str(tmp_path))

    assert read.priority is priority


def test_a_node_folder_shows_containers_that_keep_their_state_to_themselves(
    tmp_path: Path,
) -> None:
    state, node = tmp_path / "state", tmp_path / "node"
    state.mkdir()
    node.mkdir()
    device = notices.device_key(shared_file.uuid_text(uuid(0)))
    path = path_of(node, 5, device)
    with RegionFile(state) as region, path.open("w+b") as file:
        region.device(0)
        region.process(0, this_process())
        region.use(0, 0, held=1 << 20)
        file.write(notice(5, device=device, terms=3))
        file.flush()
        held = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_BASE, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, held)

        alone = gpufence("export", "--state-dir", state).stdout
        both = gpufence("export", "--state-dir", state, "--node-dir", node).stdout
        object_told = gpufence("top", "--json", "--state-dir", state, "--node-dir", node).stdout

    author = 'region="#0000000000000005"} 0.3'
    assert (author in alone, author in both) == (False, True)
    assert both.count(author) == 1
    assert 'region="web"' in both
    (gpu,) = json.loads(object_told)["gpus"]
    assert [(each["name"], each["priority"]) for each in gpu["containers"]] == [
        ("#0000000000000005", "high"),
        ("web", None),
    ]


def test_what_is_no_notice_is_passed_over(tmp_path: Path) -> None:
    noise = random.Random(5)
    path_of(tmp_path, 1).write_bytes(noise.randbytes(notices.FIELDS.size))
    path_of(tmp_path, 2).write_bytes(notice(2)[:-1])
    path_of(tmp_path, 3).write_bytes(notice(4))
    path_of(tmp_path, 6).symlink_to("/dev/zero")
    os.mkfifo(path_of(tmp_path, 7))
    path_of(tmp_path, 8).mkdir()
    (tmp_path / "gpufence-turns999999999-x").touch()

    assert list(notices.read_all({}, str(tmp_path))) == []
