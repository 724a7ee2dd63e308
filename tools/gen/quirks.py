"""Every deviation of the headers or of libclang from what one would expect, one function each.

Each docstring holds the evidence. Must not be called for anything that is not a deviation.
"""

from __future__ import annotations

from collections.abc import Mapping

from .clang_protocols import Cursor, Type


def is_nameless_record(ctype: Type, tag_names: Mapping[str, str]) -> bool:
    """Whether a member's struct or union has no typedef, so that it is spelled inline.

    Most such records are anonymous, and no spelling of theirs can be used: libclang 14 says '',
    16 and later 'union (unnamed at FILE:LINE)' with an absolute path (25 of 575 records of 13.5).
    The members of CUstreamBatchMemOpParams have tags but no typedefs; nobody else uses the tags.
    """
    if ctype.kind.name != "RECORD":
        return False
    return ctype.get_declaration().get_usr() not in tag_names


def member_name(cursor: Cursor) -> str:
    """The name of a member, '' for an anonymous one.

    libclang 17 and later may spell an anonymous member like its unnamed type instead of ''.
    """
    name = str(cursor.spelling)
    return "" if "(" in name else name
