"""A plugin of pytest for ci/emulated: what an emulator cannot show is left out, each with a reason.

    pytest -p tests.release.emulation
    python -m tests.release.emulation EMULATOR    what has a kernel start programs of aarch64 by it

Owns the list of what is left out, the patience that emulated programs need, and the counts by room.
Must not know how the emulator is had or asked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

Popen = subprocess.Popen[Any]

# An emulated program takes some ten times as long, and two of them share this machine's cores.
PATIENCE = 10
"""Who waits for a program waits so many times as long."""

LEFT_OUT = {
    "qemu's user emulation has no ptrace": (
        r"state/test_state.py::test_stopped_and_killed_before_any_instruction",
        r"state/test_state.py::test_shared_memory_freed_during_a_request",
        r"gputime/test_node_folder.py::test_a_notice_keeps_its_promise.*\[(publish|own_file|cost)\]",
    ),
    "qemu's user emulation has no seccomp": (
        r"gputime/test_turns_failures.py::test_without_a_thread_launches",
        r"gputime/test_turns_failures.py::test_one_without_a_thread",
    ),
    "qemu has a thread of its own: no process is alone, and none asks for a cheaper lock": (
        r"state/test_state.py::test_a_lock_that_one_thread_owned",
    ),
    "the test copies or links this machine's libraries, which a program of aarch64 cannot load": (
        r"gputime/test_node_folder.py::test_two_versions_of_the_library",
        r"lookup/test_reach.py::test_a_second_copy_of_the_driver",
        r"devices/test_without_nvml.py::.*\[absent\]",
    ),
    "a program of this machine is given a plugin of aarch64": (
        r"lookup/test_addpath.py::test_both_separators_of_a_preload_list",
        r"sim/test_nvml.py::test_nvml_calls_its_own_exports",
        r"gputime/test_kept_pauses.py::test_an_operator_measures_once",
        r"gputime/test_kept_pauses.py::test_the_operators_numbers_replace",
        r"gputime/test_kept_pauses.py::test_what_is_not_measured_is_said",
    ),
    "the container has a root of its own, without aarch64's libraries": (
        r"host/test_container.py",
    ),
    "qemu says a line of its own where a program aborts": (
        r"host/test_held_locks.py::test_a_call_under_a_lock_is_seen",
    ),
    "no real driver of aarch64 is here": (
        r"lookup/test_real_drivers.py",
        r"sim/test_lookup.py::test_every_lookup_is_answered_as_by_the_real",
    ),
    "drivers of aarch64 export more names, and the lists to compare with are x86-64's": (
        r"sim/test_lookup.py::test_every_lookup_follows_the_rule_of_the_headers\[5[35].*headers",
        r"sim/test_lookup.py::test_the_loader_finds_exactly_the_names.*\[5[35].*headers",
    ),
    "only programs of this machine run, with its library": (
        r"host/test_commands.py",
        r"config/test_limits.py",
        r"config/test_configuration.py",
    ),
    "this machine's simulated driver keeps another file than that of aarch64": (
        r"devices/test_mig.py::test_nvml_shows_an_instance",
    ),
}
"""Patterns of tests' names, by the reason why an emulator cannot show what they are about."""


# The header of a program: 64 bits, little-endian, of machine 183 (aarch64). Masked out is what may
# differ: the system, and whether the program may lie anywhere.
_MAGIC = "7f454c460201010000000000000000000200b700"
_MASK = "ffffffffffffff00fffffffffffffffffeffffff"


def registration(emulator: str) -> str:
    """The line for binfmt_misc; the kernel opens the emulator at once, for every root and mount."""
    magic, mask = (
        "".join(f"\\x{byte:02x}" for byte in bytes.fromhex(text)) for text in (_MAGIC, _MASK)
    )
    return f":gpufence:M::{magic}:{mask}:{emulator}:F"


def reason(name: str) -> str:
    """Why a test is left out, or ""."""
    for why, patterns in LEFT_OUT.items():
        if any(re.search(pattern, name) for pattern in patterns):
            return why
    return ""


def pytest_configure() -> None:
    """Make everybody who waits for a program patient."""
    communicate, wait = subprocess.Popen.communicate, subprocess.Popen.wait

    def communicate_longer(
        self: Popen, words: str | bytes | None = None, timeout: float | None = None
    ) -> tuple[Any, Any]:
        return communicate(self, words, _longer(timeout))

    def wait_longer(self: Popen, timeout: float | None = None) -> int:
        return wait(self, _longer(timeout))

    subprocess.Popen.communicate = communicate_longer  # type: ignore[method-assign]
    subprocess.Popen.wait = wait_longer  # type: ignore[method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out."""
    for item in items:
        if why := reason(item.nodeid.removeprefix("tests/")):
            item.add_marker(pytest.mark.skip(reason=why))


def pytest_terminal_summary(terminalreporter: Any) -> None:  # noqa: ANN401 - pytest's, private
    """The counts by room, as the rows of a table."""
    rooms: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            room = report.nodeid.removeprefix("tests/").partition("/")[0]
            rooms.setdefault(room, Counter())[outcome] += 1
    terminalreporter.write_line("| room | passed | failed | skipped |")
    for room, counts in sorted(rooms.items()):
        failed = counts["failed"] + counts["error"]
        terminalreporter.write_line(
            f"| `{room}` | {counts['passed']} | {failed} | {counts['skipped']} |"
        )


def _longer(timeout: float | None) -> float | None:
    return None if timeout is None else timeout * PATIENCE


if __name__ == "__main__":
    print(registration(sys.argv[1]))
