"""The direction of a parameter, from the comment in front of its function.

Owns the reading of doxygen comments. It keeps the names of parameters and never any text.
libclang's own idea of a function's comment is not used: 14 to 16 find none where a macro gives the
function its name, which is the case for 45 functions of cuda.h, 17 and later do.
"""

from __future__ import annotations

import re

_PARAM = re.compile(
    r"[\\@]param\s*(?:\[(?P<marks>[a-z, ]+)\])?\s+(?P<name>\w+)(?P<text>.*?)"
    r"(?=[\\@](?:param|return|note|sa|see)|\n[ *]*\n|\Z)",
    re.DOTALL,
)
_RETURNED = re.compile(
    r"\breturn(?:s|ed)?\b|\b(?:reference|pointer|location) (?:in|to) which\b", re.IGNORECASE
)
_BOTH_WAYS = re.compile(r"\bin which to provide\b|\bupdated?\b", re.IGNORECASE)
# What may stand between a comment and the declaration that it belongs to.
_BETWEEN = re.compile(rb"(?:\s|__CUDA_DEPRECATED)*\Z")


def comment_before(text: bytes, start: int) -> str:
    """The doxygen comment that ends right before byte `start`; empty if there is none."""
    head = text[max(0, start - 64) : start]
    gap = _BETWEEN.search(head)
    end = start - (len(head) - gap.start()) if gap else start
    if not text.endswith(b"*/", 0, end):
        return ""
    opening = text.rfind(b"/*", 0, end)
    return text[opening:end].decode("utf-8", "replace") if opening >= 0 else ""


def returned_params(comment: str) -> frozenset[str]:
    """Names of the parameters that a comment documents as returned, and only that."""
    return frozenset(
        match["name"] for match in _PARAM.finditer(comment) if _is_returned(match["marks"], match)
    )


def _is_returned(marks: str | None, match: re.Match[str]) -> bool:
    if marks is not None:
        return "out" in marks and "in" not in marks
    return _RETURNED.search(match["text"]) is not None and not _BOTH_WAYS.search(match["text"])
