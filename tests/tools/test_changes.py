"""The history of a limits file: whatever stands in its place, changes are told, or nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gpufence.commands import status_text
from gpufence.container import changes
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

ONE = {EVERY_GPU: Amounts(memory=1, cores=2)}


def line(**other: object) -> str:
    """A change as append() writes it, but for what is given."""
    usual: dict[str, Any] = {
        "schema": 1,
        "time": "2026-01-02T03:04:05.678Z",
        "generation": 1,
        "uid": 1000,
        "user": "ada",
        "old": {},
        "new": {"all": {"memory_bytes": 5}},
    }
    return json.dumps({**usual, **other}) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


def read(path: Path) -> list[dict[str, Any]]:
    return changes.read(path, os.getuid(), 9)


def test_what_is_written_is_read_back(path: Path) -> None:
    changes.append(path, os.getuid(), 3, {}, ONE)

    (change,) = read(path)

    assert (change["generation"], change["held"]) == (3, True)
    assert change["new"] == {"all": {"memory_bytes": 1, "cores_millipercent": 2}}


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "{}",
        "[1]",
        "[" * 100_000,
        line(schema=2),
        line(generation=True),
        line(generation=-1),
        line(generation=10**30),
        line(uid="0"),
        line(user=None),
        line(time=5),
        line(sudo_user=[]),
        line(old=[]),
        line(new={"all": True}),
        line(new={"all": {"memory_bytes": "1g"}}),
        line(new={"all": {"cores_millipercent": None}}),
        line(new={"all": {"memory": 1}}),
        "\udcff",
    ],
)
def test_lines_that_are_no_change_are_left_out(path: Path, odd: str) -> None:
    path.write_text(line() + odd + "\n" + line(generation=2), errors="surrogateescape")

    assert [change["generation"] for change in read(path)] == [1, 2]


def test_a_line_ends_where_append_ends_it(path: Path) -> None:
    """Not where Python sees an end of a line, which a name may hold."""
    odd = "a\u2028b"
    path.write_text(line(user=odd).replace("\\u2028", "\u2028"), encoding="utf-8")

    (change,) = read(path)

    assert change["user"] == odd
    assert status_text.change_line(change).startswith("2026-01-02T03:04:05.678Z  a?b  all: memory")


def test_no_terminal_obeys_a_name(path: Path) -> None:
    path.write_text(line(sudo_user="\x1b[31mroot\n"))

    (change,) = read(path)

    assert "  ?[31mroot? as ada  " in status_text.change_line(change)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "nothing"])
def test_what_is_no_plain_file_is_no_history(path: Path, kind: str) -> None:
    """The folder may be anybody's to write; nobody waits for a pipe."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (path.parent / "other").write_text(line())
        path.symlink_to("other")

    assert read(path) == []


def test_another_users_file_is_no_history(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    path.write_text(line())
    os.chown(path, 1234, -1)

    assert changes.read(path, 1000, 9) == []
    assert len(changes.read(path, 1234, 9)) == 1
