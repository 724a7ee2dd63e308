"""ci/emulated: what its plugin leaves out exists, and what it tells the kernel means aarch64."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import emulation

TESTS = Path(__file__).resolve().parents[1]
PATTERNS = [pattern for patterns in emulation.LEFT_OUT.values() for pattern in patterns]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_left_out_is_there(pattern: str) -> None:
    file, _, name = pattern.partition("::")

    text = (TESTS / file).read_text(encoding="utf-8")

    assert re.search(r"^def " + name.partition(r"\[")[0], text, re.M)


def test_a_test_is_left_out_with_its_reason_and_its_neighbour_is_not() -> None:
    name = "state/test_state.py::test_a_lock_that_one_thread_owned_is_everybodys_when_others_come"

    assert emulation.reason(name).startswith("qemu has a thread of its own")
    assert emulation.reason("state/test_state.py::test_the_region_keeps_its_promise[exec]") == ""


@pytest.mark.parametrize(
    ("machine", "kind", "started"), [(0xB7, 2, True), (0xB7, 3, True), (0x3E, 2, False)]
)
def test_the_kernel_is_told_the_header_of_programs_of_aarch64(
    machine: int, kind: int, started: bool
) -> None:
    """An executable (2) and one that may lie anywhere (3), but none of x86-64."""
    _, name, how, _, magic, mask, path, flags = emulation.registration("/q/emu").split(":")
    header = bytes.fromhex("7f454c46020101" + 9 * "00") + bytes([kind, 0, machine, 0])
    wanted, bits = (
        bytes(int(part, 16) for part in text.split("\\x")[1:]) for text in (magic, mask)
    )

    matches = all((a & m) == (b & m) for a, b, m in zip(header, wanted, bits, strict=True))

    assert (name, how, path, flags) == ("gpufence", "M", "/q/emu", "F")
    assert matches is started
