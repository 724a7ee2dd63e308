"""A program driven line by line, none of whose answers is waited for forever.

Must not know what the lines mean. Standard library only.
"""

from __future__ import annotations

import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from setup import REPO

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0


class DrivenError(Exception):
    """The program ended, or did not answer in time."""


@dataclass(slots=True)
class Driven:
    """A running program; `tell` sends one line and gives back the next line of its stdout."""

    process: subprocess.Popen[bytes]
    name: str
    pending: bytearray = field(default_factory=bytearray)

    @property
    def pid(self) -> int:
        """As the operating system knows it here."""
        return self.process.pid

    def say(self, *words: object) -> None:
        """Sends one line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise DrivenError(f"{self.name} ended before {words}") from None

    def line(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """The next line; DrivenError when none comes in time."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise DrivenError(f"{self.name} says nothing for {timeout_s:g} s")
                part = self.process.stdout.read1(65536)  # type: ignore[attr-defined]
                if not part:
                    raise DrivenError(f"{self.name} ended: {self._last_words()}")
                self.pending += part
        line, _, rest = bytes(self.pending).partition(b"\n")
        self.pending = bytearray(rest)
        return line.decode("utf-8", "replace")

    def tell(self, *words: object, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """One line there, one back."""
        self.say(*words)
        return self.line(timeout_s)

    def ask(self, *words: object, timeout_s: float = ANSWER_TIMEOUT_S) -> list[int]:
        """The same, with an answer of numbers."""
        return [int(word) for word in self.tell(*words, timeout_s=timeout_s).split()]

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits for the "ready" by which a program begins."""
        ready = self.line(timeout_s)
        if ready != "ready":
            raise DrivenError(f"{self.name} began with {ready!r}")

    def _last_words(self) -> str:
        assert self.process.stderr is not None
        status = self.process.wait(5)
        return f"status {status}: {self.process.stderr.read().decode('utf-8', 'replace')[-300:]}"


@contextmanager
def driven(command: Sequence[object], env: Mapping[str, str], name: str) -> Iterator[Driven]:
    """Starts a program, waits for its "ready", and ends it whatever happens."""
    with started(command, env, name) as program:
        program.await_ready()
        yield program


@contextmanager
def started(command: Sequence[object], env: Mapping[str, str], name: str) -> Iterator[Driven]:
    """The same without waiting: programs that start slowly may do so side by side."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=dict(env),
        cwd=REPO,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Driven(process, name)
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
