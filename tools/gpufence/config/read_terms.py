"""The terms of core limits, as variables and files have them.

A statement of ours holds for all GPUs; of several systems that name a priority the lowest one
holds. The same as lib/src/config/terms.cpp, less what only a hypervisor's answer tells.
"""

from __future__ import annotations

from . import sizes, terms
from .limits import Kind
from .options import Dialect, Setting
from .reading import Reading
from .sizes import TextError
from .sources import Statement
from .terms import Priority, Terms

_OWN = {
    Setting.PRIORITY: "priority",
    Setting.WEIGHT: "weight",
    Setting.CORE_BURST: "core_burst",
    Setting.CORE_FLOOR: "core_floor",
}


def read(reading: Reading) -> None:
    """Behind all core limits.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    claims = reading.claims
    found = {name: _own(reading, setting) for setting, name in _OWN.items()}
    named = {}
    if found["priority"] is not None:
        statement = reading.statements.find(Dialect.GPUFENCE, Setting.PRIORITY)
        named[_source(reading, statement)] = Priority(found["priority"])
    task = reading.statements.find(Dialect.HAMI, Setting.PRIORITY)
    if task is not None:
        number = sizes.parse_index(task.text)
        if number is None:
            claims.note(f"{_source(reading, task)} is no priority: it has no effect")
        else:
            named[_source(reading, task)] = _task_priority(number)
    _choose(reading, named)
    claims.terms = Terms(
        claims.terms.priority, found["weight"], found["core_burst"], found["core_floor"]
    )
    _note_without_limit(reading)


def _own(reading: Reading, setting: Setting) -> int | None:
    statement = reading.statements.find(Dialect.GPUFENCE, setting)
    if statement is None:
        return None
    name = _OWN[setting]
    try:
        value = terms.GRAMMARS[name][1](statement.text)
    except TextError as error:
        raise reading.refuse(statement, error.fault) from None
    if setting is not Setting.PRIORITY:  # which another system may name as well
        reading.claims.term_sources[name] = _source(reading, statement)
    return value


def _source(reading: Reading, statement: Statement | None) -> str:
    return reading.statements.describe(statement) if statement else ""


def _task_priority(number: int) -> Priority:
    """HAMi counts downwards: 0 goes first, 1 is what a pod without a word has."""
    return {0: Priority.HIGH, 1: Priority.NORMAL}.get(number, Priority.LOW)


def _choose(reading: Reading, named: dict[str, Priority]) -> None:
    """The lowest; of equal ones the first."""
    claims = reading.claims
    for source, priority in named.items():
        held, held_source = claims.terms.priority, claims.term_sources.get("priority", "")
        is_lower = held is None or priority.rank < held.rank
        if held is not None and priority is not held:
            low, high = (source, held_source) if is_lower else (held_source, source)
            claims.note(f"{low} holds, because it is lower than {high}")
        if is_lower:
            claims.terms = Terms(priority=priority)
            claims.term_sources["priority"] = source


def _note_without_limit(reading: Reading) -> None:
    if any(each.kind is Kind.CORES and each.amount for each in reading.claims.claims):
        return
    for setting in _OWN:
        statement = reading.statements.find(Dialect.GPUFENCE, setting)
        if statement is not None:
            source = reading.statements.describe(statement)
            reading.claims.note(f"{source} has no effect without a core limit")
            return
