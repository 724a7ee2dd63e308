"""Processes that are asked and answer line by line, none of which is waited for forever.

Each is the leader of a session of its own, so that all that it starts ends with it. Must not know
what the lines mean.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LAST_WORDS = 400  # characters of stderr that an error tells
END_S = 5.0  # from a program's last line to its end


class ProgramError(Exception):
    """A program ended, failed, or did not answer in time; the text says which and why."""


@dataclass(slots=True)
class Program:
    """A running process; what it writes to stderr goes to `errors`."""

    process: subprocess.Popen[bytes]
    name: str
    errors: Path
    pending: bytearray = field(default_factory=bytearray)
    ended: bool = False

    @classmethod
    def start(
        cls, command: Sequence[object], env: Mapping[str, str], name: str, errors: Path
    ) -> Program:
        """Starts it and does not wait.

        Raises:
            ProgramError: there is no such program.
        """
        try:
            with errors.open("wb") as stderr:
                process = subprocess.Popen(
                    [str(word) for word in command],
                    env=dict(env),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError as error:
            raise ProgramError(f"{name} does not start: {error}") from None
        return cls(process, name, errors)

    def say(self, line: str) -> None:
        """Sends one line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ProgramError(f"{self.name} ended: {self._last_words()}") from None

    def line(self, deadline: float) -> str:
        """The next line of its stdout.

        Args:
            deadline: time.monotonic() at which waiting ends.

        Raises:
            ProgramError: none came.
        """
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ProgramError(f"{self.name} did not answer in time: {self._last_words()}")
                part = os.read(self.process.stdout.fileno(), 65536)
                if not part:
                    raise ProgramError(f"{self.name} ended: {self._last_words()}")
                self.pending += part
        line, _, rest = bytes(self.pending).partition(b"\n")
        self.pending = bytearray(rest)
        return line.decode("utf-8", "replace")

    def expect(self, word: str, deadline: float) -> None:
        """Waits for a line that is this word."""
        line = self.line(deadline)
        if line != word:
            raise ProgramError(f"{self.name} said {line[:80]!r} instead of {word!r}")

    def end(self, patience_s: float = END_S) -> None:
        """It is gone afterwards, with all that it started."""
        if self.ended:
            return  # its number may be another process's by now
        self.ended = True
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()  # there is nothing more to be asked
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        status = self.process.poll()
        text = self.errors.read_text(encoding="utf-8", errors="replace").strip()
        return f"status {status}; {' '.join(text[-LAST_WORDS:].split())}"
