"""Options of the whole test suite, and the order of its tests."""

from __future__ import annotations

import pytest

# Seconds of work in few tests: begun last, they would be waited for while the other cores idle.
LONG = (
    "golden/test_forwarding.py",
    "golden/test_standalone.py",
    "node/test_kills.py",
    "preload/test_core_gangs.py",
    "preload/test_core_corners.py",
    "preload/test_state.py",
    "preload/test_core_graphs.py",
    "unit/test_limits_library.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what is rendered now over the golden files, for review as a diff",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, everything else as it was."""
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(LONG))
