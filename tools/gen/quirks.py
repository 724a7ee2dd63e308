"""Every deviation of the headers or of libclang from what one would expect, one function each.

Each docstring holds the evidence. Must not be called for anything that is not a deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_untagged(declaration: Any, tag_names: Mapping[str, str]) -> bool:
    """Whether a struct or union has neither a tag nor a typedef, so that it is spelled inline.

    libclang 14 spells such a record '', 16 and later 'union (unnamed at FILE:LINE)' or
    '(anonymous ...)', with an absolute path: 25 of the 575 records of 13.5 differ so. No C tag
    holds a parenthesis.
    """
    if declaration.get_usr() in tag_names:
        return False
    return declaration.spelling == "" or "(" in declaration.spelling


def member_name(cursor: Any) -> str:
    """The name of a member, '' for an anonymous one.

    libclang 17 and later may spell an anonymous member like its unnamed type instead of ''.
    """
    name = str(cursor.spelling)
    return "" if "(" in name else name
