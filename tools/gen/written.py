"""How a text becomes a file: only where it differs, whole or not at all. Knows no model."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import HookgenError


def write_if_changed(path: Path, text: str) -> bool:
    """Write a file unless it says so already, whole or not at all; True when written."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except (OSError, UnicodeError):
        pass
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise HookgenError(
            f"{path} cannot be written",
            error.strerror or str(error),
            "Choose another folder with --output.",
        ) from error
    return True
