"""Opens a file that may be anything, and reads it within bounds.

Owns the refusals that need no ELF knowledge: missing, a directory, a device, empty, short. Must not
know what the bytes mean.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

# No driver comes near; lief reads the whole file into memory.
MAX_BYTES = 1 << 30

COPY_AGAIN = "Copy or install it again."


@dataclass(frozen=True, slots=True)
class RawFile:
    """An open regular file, read by `pread`: a mapping would end us if the file were cut short."""

    descriptor: int
    size: int

    def read(self, offset: int, length: int, what: str) -> bytes:
        """Read exactly a range.

        Raises:
            UnreadableError: the range runs past the end of the file.
        """
        if offset + length > self.size:
            raise truncated(f"{what} ends at byte {offset + length}, the file at {self.size}")
        data = os.pread(self.descriptor, length, offset)
        if len(data) != length:
            raise truncated(f"{what} could not be read whole")
        return data


def truncated(detail: str) -> UnreadableError:
    """The refusal of a file that ends before its own tables do."""
    return UnreadableError(f"the file is truncated: {detail}", COPY_AGAIN)


@contextmanager
def open_regular(path: Path) -> Iterator[RawFile]:
    """Open a file for bounded reading.

    Raises:
        UnreadableError: whatever keeps it from being a readable, non-empty regular file.
    """
    descriptor = _descriptor(path)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableError("it is a directory", "Name the library file inside it.")
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("it is not a regular file", "Name a library file.")
        if status.st_size == 0:
            raise UnreadableError("the file is empty", COPY_AGAIN)
        if status.st_size > MAX_BYTES:
            raise UnreadableError(
                f"it has {status.st_size} bytes, more than any driver library",
                "Name a driver library.",
            )
        yield RawFile(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _descriptor(path: Path) -> int:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if path.is_symlink():
            raise UnreadableError(
                f"it is a link to '{path.readlink()}', which does not exist",
                "Install the driver again, or name the library file.",
            ) from None
        raise UnreadableError("no such file", "Check the path.") from None
    except PermissionError:
        raise UnreadableError(
            "permission denied", "Make it readable, or run as its owner."
        ) from None
    except OSError as error:
        raise UnreadableError(
            (error.strerror or "cannot open").lower(), "Check the path."
        ) from None
    except ValueError:
        raise UnreadableError("the name holds a zero byte", "Check the path.") from None
