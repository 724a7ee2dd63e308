"""The library's own readers of limits, asked through libgpufence-limits.so.

The tools parse no limit themselves: what the library would refuse is refused here, in its words.
Texts are bytes; JSON has each as a character of Latin-1, so that none is lost or merged. Imports
nothing that takes long before it is needed. Must not know what an answer is used for.
"""

from __future__ import annotations

import functools
import os

from gpufence.errors import ExitCode, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_USUAL_BYTES = 64 << 10


class ConfigError(Exception):
    """Sources that the library refuses, in its own words: "what why. fix", one line of ASCII."""


class TextError(Exception):
    """A text that a grammar refuses: what is wrong, and what to write instead."""

    def __init__(self, clause: str, fix: str) -> None:
        super().__init__(clause)
        self.clause = clause
        self.fix = fix


def parse(grammar: str, text: str) -> Any:  # noqa: ANN401 - a number, or whatever it means
    """What a text is by a grammar of lib/src/answers/answers.cpp; characters are bytes.

    Raises:
        TextError: never returns 0 for something that was not understood.
    """
    answer = _ask(b"grammar", grammar.encode(), _bytes_of(text), ended=False)
    if "value" not in answer:
        raise TextError(answer["clause"], answer["fix"])
    return answer["value"]


def claims(root: str, environment: Iterable[bytes], devices: str = "") -> Any:  # noqa: ANN401
    """Everything that is claimed, and with devices what holds: AnswerClaims in answers.h.

    Args:
        root: put before every path; "" is the machine's own.
        environment: NAME=TEXT, in order, doubles included.
        devices: "ordinal nvml-index uuid-in-hex total-bytes;" for each; an index of -1 is unknown.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    return _read(b"claims", os.fsencode(root), devices.encode(), *environment)


def sources(root: str, environment: Iterable[bytes]) -> Any:  # noqa: ANN401
    """Where limits are read, and what has no effect: AnswerSources in answers.h.

    Raises:
        ConfigError: when a source is there but cannot be read, or a name is nonsense.
    """
    return _read(b"sources", os.fsencode(root), *environment)


def refused(error: ConfigError, status: ExitCode) -> ToolError:
    """The library's line "what why. fix" as a failure of this tool."""
    head, _, fix = str(error).rpartition(". ")
    return ToolError(what="limits refused", why=head, fix=fix, status=status)


def _read(*texts: bytes) -> Any:  # noqa: ANN401
    answer = _ask(*texts)
    if "why" in answer:
        raise ConfigError(answer["why"])
    return answer


def _bytes_of(text: str) -> bytes:
    """One byte for each character; what is none is sent as a NUL, which no grammar takes."""
    return bytes(ord(character) if character <= "\xff" else 0 for character in text)


def _ask(*texts: bytes, ended: bool = True) -> Any:  # noqa: ANN401 - whatever JSON it says
    import ctypes
    import json

    question = b"\0".join(texts) + (b"\0" if ended else b"")
    answer = ctypes.create_string_buffer(_USUAL_BYTES)
    while (size := _function()(question, len(question), answer, len(answer))) > len(answer):
        answer = ctypes.create_string_buffer(size)
    if not size:
        raise MemoryError
    return json.loads(ctypes.string_at(answer, size))


@functools.cache
def _function() -> Callable[..., int]:
    import ctypes

    from gpufence import locate

    path = locate.limits()
    try:
        # Not CDLL: the library takes one thread at a time, and PyDLL keeps the interpreter's lock.
        function = ctypes.PyDLL(str(path)).gpufence_limits
    except (OSError, AttributeError) as error:
        raise ToolError(
            what=f"{path} cannot be used", why=str(error), fix="Install gpufence again"
        ) from None
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    return function
