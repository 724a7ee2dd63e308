"""Output files: whole or not at all, and a device or pipe of that name stays what it is."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from gpufence.console import output_file


def test_a_file_is_replaced_and_can_be_read_by_everybody(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    before = path.stat().st_ino

    output_file.write(path, "new")

    assert path.read_text() == "new"
    assert path.stat().st_ino != before  # readers of the old one see it to its end
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    link = tmp_path / "x"
    link.symlink_to("there/y")

    output_file.write(link, "first")
    output_file.write(link, "second")

    assert link.is_symlink()
    assert (folder / "y").read_text() == "second"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    # As root, a rename would replace /dev/stdout for everybody on the machine.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()

    output_file.write(pipe, "text")

    reader.join()
    assert read == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        output_file.write(path, "\udcff")
    with pytest.raises(OSError, match="directory"):
        output_file.write(tmp_path, "text")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
