"""What the tests of hookgen share: the committed model, invented headers, and the pinned ones.

The pinned headers come from the cache or a package index; without either, tests that need them
skip and say so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gen import codec, headers, ir, wheels
from gen.errors import HookgenError
from gen.facts import HeaderFacts, HeaderSet, Touched

REPO = Path(__file__).resolve().parents[3]
API = REPO / "lib" / "api"


@pytest.fixture(scope="session")
def cuda() -> ir.Api:
    return codec.load(API / "cuda.json")


@pytest.fixture(scope="session")
def nvml() -> ir.Api:
    return codec.load(API / "nvml.json")


@pytest.fixture(scope="session")
def pinned() -> tuple[HeaderSet, ...]:
    """Every pinned header set, oldest first."""
    try:
        return wheels.header_sets(wheels.read_pins(API / "headers.json"), wheels.cache_folder())
    except HookgenError as error:
        pytest.skip(f"the pinned header wheels cannot be had: {error}")


Reader = Callable[..., HeaderFacts]


@pytest.fixture
def read_invented() -> Reader:
    """Parses an invented nvml.h; further arguments name records and enums to read in full."""

    def read(text: str, *touched: str) -> HeaderFacts:
        invented = HeaderSet("1.0", {"nvml.h": text.encode()})
        return headers.read(invented, "nvml", Touched(touched, touched, ()))

    return read
