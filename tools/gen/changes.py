"""What changed between two sets of headers, and which of it nobody has judged.

Owns `lib/api/judged.txt` and what a hole is: a value, member or prototype that is new or changed,
reaches an enforced function, and is in no line of that table; of functions, those that nothing
handles. Must not know how a change is shown.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from . import rules
from .rules import Rule
from .surface import FUNCTION, Fact, Key, Surface

JUDGED = "judged.txt"


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs; `old` is empty where it is new, `new` where it is gone.

    `since` is the first header with the new value, `judged` the reason for which it is no hole.
    """

    key: Key
    old: str
    new: str
    since: str
    via: str
    judged: str

    @property
    def what(self) -> str:
        """`new`, `changed` or `gone`."""
        if not self.old:
            return "new"
        return "changed" if self.new else "gone"

    @property
    def name(self) -> str:
        """How judged.txt names it: `CU_LIMIT_MAX@13.4`."""
        return f"{self.key.name}@{self.since}"

    @property
    def is_hole(self) -> bool:
        """Whether somebody has to judge it."""
        return bool(self.new and self.via and not self.judged)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What people said: the lines of judged.txt, and how a new function is handled ("": not)."""

    rules: tuple[Rule, ...]
    handled: Callable[[str], str]

    def of(self, key: Key, since: str, *, is_new: bool) -> str:
        """Why a change is no hole; empty when nobody said so."""
        rule = rules.naming(f"{key.name}@{since}", self.rules)
        if rule is None and is_new and key.sort == FUNCTION:
            return self.handled(key.owner)
        return rule.reason if rule else ""


def read_judged(text: str) -> tuple[Rule, ...]:
    """The table of judged changes: `NAME@HEADERS : reason`; HookgenError when it is damaged."""
    return rules.read(text, JUDGED)


def between(surface: Surface, old: str, new: str, judged: Judgement) -> tuple[Change, ...]:
    """Every fact that differs from one set of headers to another; KeyError for unknown headers."""
    before, after = surface.at(old), surface.at(new)
    return tuple(
        _change(before.get(key), after.get(key), new, judged)
        for key in sorted(before.keys() | after.keys())
        if _value(before.get(key)) != _value(after.get(key))
    )


def holes(surface: Surface, judged: Judgement) -> tuple[Change, ...]:
    """What any headers after the oldest brought and nobody judged."""
    oldest = surface.versions[0]
    found = []
    before: Fact | None = None
    for fact in surface.facts:
        old = before if before and before.key == fact.key else None
        before = fact
        if fact.first != oldest and fact.via:
            found.append(_change(old, fact, fact.first, judged))
    return tuple(change for change in found if change.is_hole)


def idle(judged: Iterable[Rule], surfaces: Iterable[Surface]) -> Iterator[Rule]:
    """Lines of the table that name no change."""
    names = {f"{fact.key.name}@{fact.first}" for each in surfaces for fact in each.facts}
    for rule in judged:
        if not any(fnmatch.fnmatchcase(name, rule.pattern) for name in names):
            yield rule


# Implementation.


def _value(fact: Fact | None) -> str:
    return fact.value if fact else ""


def _change(old: Fact | None, new: Fact | None, at: str, judged: Judgement) -> Change:
    fact = new or old
    assert fact is not None
    since = new.first if new else at
    reason = judged.of(fact.key, since, is_new=old is None) if fact.via else ""
    return Change(fact.key, _value(old), _value(new), since, fact.via, reason)
