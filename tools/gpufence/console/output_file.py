"""A file that a user named for output: readers see the old text or the new one, never a part.

Must not know what is written, nor how a failure is told.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_MODE = 0o644


def write(path: Path, text: str) -> None:
    """Replace the file, or the one that a link of this name leads to.

    What is there and no regular file (`/dev/stdout`, a pipe) is written into: a rename would take
    the device away from everybody.

    Raises:
        OSError: it cannot be written; an old file is as it was.
    """
    if _is_special(path):
        path.write_text(text, encoding="utf-8")
        return
    target = Path(os.path.realpath(path))
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, _MODE)
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
