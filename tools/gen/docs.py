"""The direction of a parameter, from its type and from the header's comment.

Owns the reading of doxygen comments. It keeps one word per parameter and never the text.
"""

from __future__ import annotations

import re

_PARAM = re.compile(
    r"[\\@]param\s*(?:\[([a-z, ]+)\])?\s+(\w+)(.*?)(?=[\\@](?:param|return|note|sa|see)|\n[ *]*\n|\Z)",
    re.S,
)
_RETURNED = re.compile(
    r"\b(?:return(?:s|ed)?|(?:reference|pointer|location) (?:in|to) which)\b", re.I
)
_BOTH_WAYS = re.compile(r"\bin which to provide\b|\[in, ?out\]|\bupdated\b", re.I)


def returned_params(comment: str | None) -> frozenset[str]:
    """Names of the parameters that a function's comment documents as returned, and only that."""
    if not comment:
        return frozenset()
    names = set()
    for marks, name, text in _PARAM.findall(comment):
        if "out" in marks and "in" not in marks:
            names.add(name)
        elif not marks and _RETURNED.search(text) and not _BOTH_WAYS.search(text):
            names.add(name)
    return frozenset(names)
