"""Options of the whole test suite, the fixtures of all rooms, and the order of the tests."""

from __future__ import annotations

import signal

import pytest

from tests.support.machine import bare, build, sim, state

__all__ = ["bare", "build", "sim", "state"]

# Seconds of work in few tests: begun last, they would be waited for while the other cores idle.
LONG = (
    "golden/test_forwarding.py",
    "golden/test_standalone.py",
    "node/test_kills.py",
    "gputime/test_gangs.py",
    "gputime/test_corners.py",
    "state/test_state.py",
    "gputime/test_graphs.py",
    "soak/test_soak.py",
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


# A shell that starts the tests behind its back has them ignore Ctrl-C, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
