"""Which CUDA release a branch of drivers brings: `lib/api/branches.txt`.

Owns that table. Must not know what a branch exports.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import rules
from .errors import HookgenError

FILE = "branches.txt"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch, and its release as cuDriverGetVersion spells it: 13.4 is 13040."""

    number: int
    cuda_version: int


def cuda_version(release: str) -> int:
    """`13.4` → 13040; ValueError for anything else."""
    major, minor = release.split(".")
    return int(major) * 1000 + int(minor) * 10


def read(text: str) -> tuple[Branch, ...]:
    """The table, oldest branch first.

    Raises:
        HookgenError: exit 1; a line is not `BRANCH : CUDA`, or a branch is there twice.
    """
    found: dict[int, Branch] = {}
    for rule in rules.read(text, FILE):
        try:
            number = int(rule.pattern)
            branch = Branch(number, cuda_version(rule.reason))
        except ValueError as error:
            raise HookgenError(
                f"{FILE} is damaged",
                f"'{rule.pattern} : {rule.reason}' is not 'BRANCH : CUDA'",
                "Write a line like '580 : 13.0'.",
            ) from error
        if number in found:
            raise HookgenError(
                f"{FILE} is damaged", f"branch {number} is there twice", "Remove one of the lines."
            )
        found[number] = branch
    return tuple(found[number] for number in sorted(found))
