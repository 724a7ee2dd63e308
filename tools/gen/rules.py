"""Tables of names and reasons: the text files of lib/api that people write.

Owns their one form, `pattern : reason` with `#` comments. Must not know what a table is for.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from . import naming as names
from .errors import HookgenError


@dataclass(frozen=True, slots=True)
class Rule:
    """Names, `*` standing for any text, and why they are in the table."""

    pattern: str
    reason: str


def read(text: str, file: str) -> tuple[Rule, ...]:
    """The rules of a table; `file` is its name for messages.

    Raises:
        HookgenError: exit 1; a line has no pattern or no reason.
    """
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = (part.strip() for part in line.partition(" : "))
        if not (pattern and reason):
            raise HookgenError(
                f"{file} is damaged",
                f"line {number} is not 'pattern : reason'",
                "Every line says why its names are in the table.",
            )
        rules.append(Rule(pattern, reason))
    return tuple(rules)


def naming(name: str, rules: Iterable[Rule]) -> Rule | None:
    """The first rule that names a function; none for most."""
    return next((rule for rule in rules if fnmatch.fnmatchcase(name, rule.pattern)), None)


def of_family(name: str, rules: Iterable[Rule]) -> Rule | None:
    """The same of a table in which `BASE*` stands for the variants of one base, not for a prefix.

    As findsyms reads passthrough.txt: `cuGraphDestroy*` says nothing of cuGraphDestroyNode.
    """
    own = (name, f"{names.split(name).base}*")
    return next((rule for rule in rules if rule.pattern in own), None)
