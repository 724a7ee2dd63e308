"""The kind of every function: what it does to memory accounts, GPU time and lookups.

Owns the matching of names against the table in kind_rules.py, and what happens to a name that the
table does not know. Must not know prototypes, drivers or hooks.
"""

from __future__ import annotations

import re
from functools import cache

from .kind_rules import RULES, Rule

# A new door must show up as an unhandled symbol instead of slipping through, so a name without a
# rule gets the enforced kind that it sounds like. A test keeps the committed model free of this.
UNREVIEWED = "not reviewed: the table of kinds has no rule for this name"
_SOUNDS_LIKE = (
    ("launch", r"Launch"),
    ("free", r"Free|Destroy|Release|Unmap|Unbind|Unload|Trim|Unregister"),
    ("context", r"Ctx"),
    ("alloc", r"Alloc|Create|Import|Map|Bind|Load|Pool|Register|Instantiate|Mem[A-Z]"),
    ("lookup", r"ProcAddress|ExportTable"),
    ("query", r"Memory|Usage|Process|Fb[A-Z]"),
)
# Even where a wildcard says "plain": such a name has to be written out in the table.
_DOUBTFUL = re.compile(
    r"Alloc|Launch|Instantiate|ProcAddress|CtxCreate|GraphMem[A-Z]|MemPool|TotalMem|RunningProcess"
    r"|Mem(?:ory)?(?:Info|Limit|Usage)|FbUsage"
)


def classify(base: str) -> tuple[str, str]:
    """Kind and reason of a base name (no `_vN`, no per-thread suffix)."""
    for rule, pattern in _compiled():
        if pattern.fullmatch(base):
            spelled_out = rule.kind != "plain" or base in rule.names.split()
            if spelled_out or not _DOUBTFUL.search(base):
                return rule.kind, rule.reason
            break
    for kind, words in _SOUNDS_LIKE:
        if re.search(words, base):
            return kind, UNREVIEWED
    return "plain", UNREVIEWED


@cache
def _compiled() -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    return tuple((rule, _regex(rule.names)) for rule in RULES)


def _regex(names: str) -> re.Pattern[str]:
    """Names parted by blanks, with `*` for any text, as one regular expression."""
    return re.compile("|".join(name.replace("*", ".*") for name in names.split()))
