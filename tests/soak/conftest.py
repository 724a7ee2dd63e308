"""The build that the soak's own tests use."""

from __future__ import annotations

from tests.preload.conftest import build

__all__ = ["build"]
