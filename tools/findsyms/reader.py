"""Reads libraries in a child process, so that no file can take findsyms down with it.

Owns the fork, the pipe and the recovery. lief 1.0 stood every file that fuzzing made, but older
versions are allowed, and native code that reads foreign bytes may always fall. The child costs
nothing: while it imports lief, the parent loads the API model. Must not know what facts are for.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .elf import Import, Library, Shape, Symbol, read_library, read_shape
from .errors import UnreadableError
from .rawfile import COPY_AGAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .vet import Vetted

# A driver takes 0.4 s with the import; a file that needs this long is a broken one.
TIMEOUT_S = 30.0
_MEMORY_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Request:
    """One vetted file to read; `shape` asks for what `findsyms check` needs, too."""

    path: Path
    vetted: Vetted
    shape: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The facts of one file, or why there are none."""

    library: Library | None = None
    shape: Shape | None = None
    error: UnreadableError | None = None

    def facts(self) -> Library:
        """The library's facts. Raises: UnreadableError, if there are none."""
        if self.library is None:
            raise self.error or UnreadableError("no answer", COPY_AGAIN)
        return self.library

    def form(self) -> Shape:
        """The library's shape. Raises: UnreadableError, if it was not read."""
        if self.shape is None:
            raise self.error or UnreadableError("no answer", COPY_AGAIN)
        return self.shape


class Reader:
    """A started reading: `start` returns at once, `results` waits."""

    def __init__(self, requests: Sequence[Request], timeout_s: float = TIMEOUT_S) -> None:
        """Start a child process that reads the files in order (none for no files)."""
        self._requests = tuple(requests)
        self._timeout_s = timeout_s
        self._child = _Child(self._requests) if requests else None

    def results(self) -> list[Reading]:
        """Wait for one reading per request, in order."""
        readings: list[Reading] = []
        while self._child is not None and len(readings) < len(self._requests):
            line = self._child.line(self._timeout_s)
            if line:
                readings.append(_decode(json.loads(line)))
                continue
            why = self._child.end()
            readings.append(Reading(error=UnreadableError(why, COPY_AGAIN)))
            rest = self._requests[len(readings) :]
            self._child = _Child(rest) if rest else None
        if self._child is not None:
            self._child.end()
            self._child = None
        return readings


def read_all(requests: Sequence[Request], timeout_s: float = TIMEOUT_S) -> list[Reading]:
    """Read files in a child process and wait for them: one reading per request, in order."""
    return Reader(requests, timeout_s).results()


class _Child:
    """One forked process, answering a line of JSON per file."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._pipe, write = os.pipe()
        self._buffer = b""
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._pipe)
                _serve(requests, write)
            finally:
                os._exit(0)
        os.close(write)

    def line(self, timeout_s: float) -> bytes:
        """The next answer; empty if the child died or stalled."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._pipe], [], [], left_s)[0]:
                os.kill(self._pid, signal.SIGKILL)
                return b""
            data = os.read(self._pipe, 1 << 20)
            if not data:
                return b""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def end(self) -> str:
        """Reap the child; says how it ended, for the file that it left unanswered."""
        os.close(self._pipe)
        _, status = os.waitpid(self._pid, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if number == signal.SIGKILL:
            return "damaged: lief does not come to an end with it"
        return (
            f"damaged: lief crashes on it ({signal.Signals(number).name})"
            if number
            else "no answer"
        )


def _serve(requests: Sequence[Request], pipe: int) -> None:
    """The child's life. A crash is expected: no core file, no message, bounded memory."""
    import faulthandler
    import gc

    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    gc.disable()  # saves 30 ms while lief creates its thousands of types
    for request in requests:
        answer = json.dumps(_answer(request)).encode() + b"\n"
        while answer:
            answer = answer[os.write(pipe, answer) :]


def _answer(request: Request) -> dict[str, Any]:
    try:
        library = asdict(read_library(request.path, request.vetted))
        return {
            "library": library,
            "shape": asdict(read_shape(request.path)) if request.shape else None,
        }
    except UnreadableError as error:
        return {"why": error.why, "fix": error.fix}
    except Exception as error:  # lief raises many types; each of them means the same to us
        return {"why": f"lief cannot read it: {error}".splitlines()[0], "fix": COPY_AGAIN}


def _decode(answer: dict[str, Any]) -> Reading:
    if "why" in answer:
        return Reading(error=UnreadableError(answer["why"], answer["fix"]))
    fields = {key: _frozen(value) for key, value in answer["library"].items()}
    fields["symbols"] = tuple(Symbol(*symbol) for symbol in fields["symbols"])
    library = Library(**fields)
    if answer["shape"] is None:
        return Reading(library=library)
    fields = {key: _frozen(value) for key, value in answer["shape"].items()}
    fields["imports"] = tuple(Import(*entry) for entry in fields["imports"])
    return Reading(library=library, shape=Shape(**fields))


def _frozen(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    return tuple(value) if isinstance(value, list) else value
