"""What a table of engines says of a program: nothing that was not held is taken for held."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import table
from .cells import FREE, HELD, REFUSED, verdict
from .engine import LIMIT_BYTES, Done, Host
from .like_docker import Podman
from .session import Session
from .without_cdi import Lxc


def said(granted: int, refused: int, init: int = 0) -> str:
    return json.dumps({"init": init, "granted 0": granted, "refused 0": refused})


@pytest.mark.parametrize(
    ("stdout", "stderr", "found"),
    [
        (said(LIMIT_BYTES, 2), "", HELD),
        (said(64 << 20, 2), "", HELD),
        (said(LIMIT_BYTES + (64 << 20), 2), "", FREE),
        (said(4 << 30, 0), "", FREE),
        (said(LIMIT_BYTES, 0), "", FREE),
        (said(0, 2), "", FREE),
        (said(0, 0, init=1), "gpufence: cuInit fails on purpose: no folder", REFUSED),
        (said(0, 0, init=100), "", "cuInit 100"),
        ("", "a\nno such image\n", "no container: no such image"),
        (
            "",
            "docker: Error: no device\n\nSee its help.\n",
            "no container: docker: Error: no device",
        ),
        ("", "", "no container: status 7"),
    ],
)
def test_what_a_program_got_is_told_as_it_is(stdout: str, stderr: str, found: str) -> None:
    assert verdict(Done((), 7, stdout, stderr)) == found


def test_a_reason_is_noted_once_whatever_the_containers_number() -> None:
    notes: dict[str, int] = {}

    found = [
        table._noted(text, notes)
        for text in (
            f"no container: {'ab' * 32} is gone",
            HELD,
            f"no container: {'cd' * 32} is gone",
        )
    ]

    assert (found, notes) == (["no container [1]", HELD, "no container [1]"], {"ID is gone": 1})


def test_an_engine_is_asked_for_no_kind_of_container_that_it_lacks(tmp_path: Path) -> None:
    session, host = Session(tmp_path), Host(tmp_path, tmp_path, tmp_path)
    flags = ("", "--read-only", "--read-only --ipc=none", "boot lxc.idmap")

    podman, lxc = Podman(session, host), Lxc(session, host)

    assert [podman.takes(flag) for flag in flags] == [True, True, True, False]
    assert [lxc.takes(flag) for flag in flags] == [True, True, False, True]
