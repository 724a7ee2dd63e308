"""`hookgen extract` says how far it is: a bar for a terminal, one line for a log."""

from __future__ import annotations

import io
import sys

import pytest
from gen import progress


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    assert list(progress.told([1, 2], "headers of cuda")) == [1, 2]

    shown = terminal.getvalue()
    assert "hookgen: headers of cuda" in shown
    assert "100%" in shown
    assert shown.endswith("\x1b[2K")  # the line is empty again


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_a_log_has_one_line(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)

    assert list(progress.told([1, 2], "headers of cuda")) == [1, 2]

    assert stream is None or stream.getvalue() == "hookgen: headers of cuda: 2 steps\n"


def test_a_terminal_without_the_package_has_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setitem(sys.modules, "rich.progress", None)

    assert list(progress.told([1], "headers of nvml")) == [1]

    assert terminal.getvalue() == "hookgen: headers of nvml: 1 steps\n"
