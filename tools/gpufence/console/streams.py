"""The standard streams, where one of them is closed, full, or of another encoding.

A command says what it has to say if it can, and its status tells the rest. Must not know commands.
"""

from __future__ import annotations

import os
import sys

from gpufence.errors import ExitCode, ToolError

_NOT_WRITTEN = "output not written"


def say(line: str) -> None:
    """One line on stderr, if there is one; never on stdout instead."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _redirect(2)


def require_output() -> None:
    """Refuse to work for nobody.

    Raises:
        ToolError: exit 1, when stdout was closed before we started.
    """
    if sys.stdout is None:
        fix = "Redirect it to a file or a pipe"
        raise ToolError(what=_NOT_WRITTEN, why="stdout is closed", fix=fix)


def failure(error: OSError) -> str:
    """A failed call that nobody handled, most likely a write to stdout, as one line."""
    why = (error.strerror or str(error)).lower()
    if error.filename is not None:
        return f"'{error.filename}' cannot be used: {why}. Name another file, or repair this one."
    return f"{_NOT_WRITTEN}: {why}. Make room, or send it elsewhere."


def drop_output() -> None:
    """Let what is left in stdout's buffer go, so that the interpreter does not complain of it."""
    _redirect(1)


def finish(status: int, lost: int = ExitCode.ERROR) -> int:
    """Write out what is left; the status of the process, `lost` when it could not be written."""
    if sys.stdout is None:
        return status
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_output()
        if not isinstance(error, BrokenPipeError):
            say(f"gpufence: {failure(error)}")
        return int(lost)
    return status


def _redirect(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    if nowhere != descriptor:
        os.close(nowhere)
