"""Every deviation of the headers or of libclang from what one would expect, one function each.

Each docstring holds the evidence. Must not be called for anything that is not a deviation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .clang_protocols import Cursor, Type


def is_nameless_record(ctype: Type, tag_names: Mapping[str, str]) -> bool:
    """Whether a member's struct or union has no typedef, so that it is spelled inline.

    Most such records are anonymous, and no spelling of theirs can be used: libclang 14 and 15 say
    '', 16 to 18 'union (anonymous at FILE:LINE:COLUMN)' with the path as it was given to them.
    The members of CUstreamBatchMemOpParams have tags but no typedefs; nobody else uses the tags.
    """
    if ctype.kind.name != "RECORD":
        return False
    return ctype.get_declaration().get_usr() not in tag_names


def member_name(cursor: Cursor) -> str:
    """The name of a member, '' for an anonymous one.

    libclang 18 names an anonymous member 'union S::(anonymous at FILE:LINE:COLUMN)', 14 to 17 ''.
    No C name holds a parenthesis.
    """
    return "" if "(" in cursor.spelling else cursor.spelling


def without_own_const(spelling: str) -> str:
    """A parameter's type without a const on the parameter itself, which no caller can tell.

    cudaTypedefs.h 13.5 has one where cuda.h has none: the second parameter of
    cuLogicalEndpointExport.
    """
    if spelling.endswith("*const"):
        return spelling.removesuffix("const")
    return spelling if "*" in spelling else spelling.removeprefix("const ")


def include_list(headers: Iterable[str]) -> list[str]:
    """What a file includes to read these headers.

    cudaVDPAU.h (11.8 to 13.5) uses the types of vdpau.h without including it.
    """
    return ["vdpau/vdpau.h", *headers]


def all_macros(default: Mapping[str, str], variants: Mapping[str, str]) -> dict[str, str]:
    """The macros of both modes; where both define a name, the mode with all variants counts.

    nvml.h gives nvmlGetExcludedDeviceCount and nvmlGetExcludedDeviceInfoByIndex their older names
    by macros that NVML_NO_UNVERSIONED_FUNC_DEFS switches off, though drivers from 418 on export
    both names of each.
    """
    return {**default, **variants}
