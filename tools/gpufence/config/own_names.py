"""Which names that begin with GPUFENCE_ are known, and which one a wrong name was meant to be.

The same as lib/src/config/own_names.cpp; a test compares both.
"""

from __future__ import annotations

import re

from .options import OPTIONS, Dialect, file_key, find

_PREFIX = "GPUFENCE_"
_LONGEST = 60

# Names that other parts of gpufence read: a name that begins so, or is just this one.
ELSEWHERE = (
    "GPUFENCE_RUN_", "GPUFENCE_SET_", "GPUFENCE_STATUS_", "GPUFENCE_TOP_",
    "GPUFENCE_EXPORT_", "GPUFENCE_SIM_", "GPUFENCE_TEST_", "GPUFENCE_BUILD",
)  # fmt: skip

_GPU_KEY = re.compile(r"(?<=.)_(?=[0-9]|[gG][pP][uU])", re.DOTALL)


def is_unknown(name: str) -> bool:
    """Whether it is a name of ours that no part reads."""
    if not name.startswith(_PREFIX) or find(name) is not None:
        return False
    if any(name.startswith(each) if each[-1] == "_" else name == each for each in ELSEWHERE):
        return False
    return not _is_service_link(name)


def _is_service_link(name: str) -> bool:
    """Whether Kubernetes made it: a Service called gpufence puts such names into every pod."""
    before, port, after = name.partition("_PORT_")
    if name.endswith(("_SERVICE_HOST", "_PORT")):
        return True
    return bool(port) and (before.endswith("_SERVICE") or "0" <= after[:1] <= "9")


def nearest(name: str, in_file: bool) -> str | None:
    """The option of ours that a variable, or a key of the config file, was meant to be."""
    name = name if in_file else name[len(_PREFIX) :]
    key = _GPU_KEY.search(name)
    name = name[: key.start()] if key else name
    if len(name) > _LONGEST:
        return None
    found, least = None, len(name) // 2 + 1
    for option in OPTIONS:
        if option.dialect is not Dialect.GPUFENCE or (in_file and file_key(option) is None):
            continue
        distance = _distance(name, option.name[len(_PREFIX) :])
        if distance < least:
            found, least = (file_key(option) if in_file else option.name), distance
    return found


def _distance(one: str, other: str) -> int:
    """How many characters must be put in, taken out or exchanged to make one of the other."""
    row = list(range(len(other) + 1))
    for at, mine in enumerate(one, 1):
        diagonal, row[0] = row[0], at
        for i, theirs in enumerate(other, 1):
            upper = mine.upper() if mine.isascii() else mine
            exchanged = diagonal + (upper != theirs)
            diagonal, row[i] = row[i], min(exchanged, row[i] + 1, row[i - 1] + 1)
    return row[-1]
