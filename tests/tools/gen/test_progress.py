"""`hookgen extract` says how far it is, to a terminal only."""

from __future__ import annotations

import io
import sys

import pytest
from gen import extract


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    extract._progress("cuda: headers 12.4 (7 of 31)")
    extract._progress("")

    assert terminal.getvalue() == "\r\x1b[Kcuda: headers 12.4 (7 of 31)\r\x1b[K"


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nobody_else_sees_it(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)

    extract._progress("x")

    assert stream is None or stream.getvalue() == ""
