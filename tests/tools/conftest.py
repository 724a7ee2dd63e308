"""Fixtures that tests of several subcommands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from .gpufence_command import header


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file that looks like our library to us; the loader ignores it with a warning."""
    path = tmp_path / "libgpufence.so"
    path.write_bytes(header())
    return path
