"""`--color` and NO_COLOR mean the same in every command; a pipe has no escape codes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from findsyms import cli as findsyms
from gpufence.console import screen

from .gpufence_command import bare, gpufence
from .region_files import RegionFile, Signed

ROWS = [
    [("NAME", ""), ("STATE", "")],
    [("train", ""), ("ended", "dim")],
    [("名前", ""), ("running", "")],
]
PLAIN = ["NAME   STATE", "train  ended", "名前     running"]


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "terminal", "env", "coloured"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("always", True, {}, True),
        ("never", True, {}, False),
    ],
)
def test_every_tool_decides_the_same(
    choice: str,
    terminal: bool,
    env: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, text in env.items():
        monkeypatch.setenv(name, text)

    assert screen.is_coloured(choice) == coloured
    assert findsyms.is_coloured(choice, terminal) == coloured


def test_a_plain_table_is_padded_and_never_cut() -> None:
    long = [*ROWS, [("n" * 300, ""), ("s", "")]]

    assert screen.table(ROWS) == PLAIN
    assert screen.table(long)[-1] == "n" * 300 + "  s"


def test_a_coloured_table_has_styles_and_is_never_cut() -> None:
    long = [*ROWS, [("n" * 300, ""), ("s", "red")]]

    heading, ended, wide, last = screen.table(long, "always")

    assert "\x1b[1m" in heading
    assert "\x1b[2mended\x1b[0m" in ended
    assert wide == "名前" + " " * 298 + "running"  # as wide as a terminal shows it
    assert last == "n" * 300 + "  \x1b[31ms\x1b[0m"


def test_without_the_package_colours_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich.console", "rich.color"):
        monkeypatch.setitem(sys.modules, name, None)

    assert screen.table(ROWS, "always") == PLAIN
    assert screen.paint("x", "red") == "x"


@pytest.mark.parametrize(
    "words", [("status",), ("status", "web"), ("doctor",), ("top", "--once", "--interval", "0.1")]
)
def test_commands_have_colours_when_asked_and_none_in_a_pipe(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    env = {"GPUFENCE_STATE_DIR": str(tmp_path), "TERM": "xterm"}
    with RegionFile(tmp_path, "web") as region:
        region.device(0)
        region.process(0, Signed())
        region.use(0, 0, held=3, limit=1 << 30)
        piped = gpufence(*words, **env).stdout
        always = gpufence(*words, "--color", "always", **env).stdout
        without = bare(*words, "--color", "always", **env).stdout

    assert "\x1b" not in piped
    assert "\x1b[" in always
    assert "\x1b" not in without
    if words[0] == "status":
        assert piped == without
