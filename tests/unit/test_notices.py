"""Notices in a node folder from outside: sound ones are shown, anything else is passed over."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

from gpufence import notices
from gpufence import shared_layout as layout

DEVICE = 0x0706050403020100


def notice(author: int, holder: int = 0) -> bytes:
    """A sound one, at 30 % and 60 %."""
    shares = 30_000 | 60_000 << 32
    words = (layout.NOTICE_MAGIC, author, DEVICE, holder, shares, 77, 0)
    raw = struct.pack(layout.NOTICE_FORMAT, *words)
    return raw[:-8] + struct.pack("<Q", notices.check_of(raw))


def path_of(folder: Path, author: int) -> Path:
    return folder / f"gpufence-turns{layout.NOTICE_VERSION}-0badf00d-{DEVICE:016x}-{author:016x}"


def test_a_sound_notice_tells_of_its_container(tmp_path: Path) -> None:
    path_of(tmp_path, 5).write_bytes(notice(5, holder=5))

    (read,) = notices.read_all({}, str(tmp_path))

    assert (read.author, read.device, read.charged_ns) == (5, DEVICE, 77)
    assert (read.shares.hard, read.shares.soft) == (30_000, 60_000)
    assert (read.holds_turn, read.alive) == (True, False)


def test_what_is_no_notice_is_passed_over(tmp_path: Path) -> None:
    noise = random.Random(5)
    path_of(tmp_path, 1).write_bytes(noise.randbytes(layout.NOTICE_BYTES))
    path_of(tmp_path, 2).write_bytes(notice(2)[:-1])
    path_of(tmp_path, 3).write_bytes(notice(4))
    path_of(tmp_path, 6).symlink_to("/dev/zero")
    os.mkfifo(path_of(tmp_path, 7))
    path_of(tmp_path, 8).mkdir()
    (tmp_path / "gpufence-turns999999999-x").touch()

    assert list(notices.read_all({}, str(tmp_path))) == []
