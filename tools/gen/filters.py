"""C and C++ spellings: declarators, parameter lists, record bodies.

Owns how a type of the model is written in rendered code. Must not know which files are rendered
nor what the functions mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .ir import Constant, Field, Inline, Param, RecordType

_WORD = re.compile(r"[A-Za-z_]\w*")
_TAGGED = re.compile(r"\b(?:struct|union|enum) ")


def cpp_type(spelling: str) -> str:
    """A C spelling as C++ with the star to the left: `const char *` becomes `const char*`."""
    text = _TAGGED.sub("", spelling).replace("_Bool", "bool").replace(" *", "*")
    return text.replace("*const", "* const")


def declare(spelling: str, name: str) -> str:
    """Declare `name` (may be empty) as a type; arrays and function pointers wrap around it."""
    text = cpp_type(spelling)
    if "(*" in text:
        return text.replace("(*", f"(*{name}", 1)
    base, bracket, dims = text.partition("[")
    separator = " " if name else ""
    return f"{base.rstrip()}{separator}{name}{bracket}{dims}"


def words(spelling: str) -> list[str]:
    """Every identifier in a C spelling, in order."""
    return _WORD.findall(spelling)


def is_by_value(spelling: str) -> bool:
    """True when the spelling is a bare type: no pointer, array or function part."""
    return not any(mark in spelling for mark in "*[(")


def param_names(params: Sequence[Param]) -> tuple[str, ...]:
    """The parameter names; a nameless one is called by its position."""
    return tuple(param.name or f"arg{position}" for position, param in enumerate(params))


def param_list(params: Sequence[Param]) -> str:
    """`CUdeviceptr* dptr, size_t bytesize`; empty for no parameters."""
    names = param_names(params)
    return ", ".join(declare(param.type, name) for param, name in zip(params, names, strict=True))


def type_list(params: Sequence[Param]) -> str:
    """`CUdeviceptr*, size_t`; empty for no parameters."""
    return ", ".join(declare(param.type, "") for param in params)


def record_body(fields: Iterable[Field], depth: int = 1) -> list[str]:
    """The member lines of a record, anonymous members included."""
    indent = "  " * depth
    lines: list[str] = []
    for field in fields:
        if isinstance(field.type, Inline):
            lines.append(f"{indent}{'union' if field.type.union else 'struct'} {{")
            lines.extend(record_body(field.type.fields, depth + 1))
            lines.append(f"{indent}}}{' ' if field.name else ''}{field.name}{_dims(field)};")
        else:
            bits = f" : {field.bits}" if field.bits else ""
            lines.append(f"{indent}{declare(field.type, field.name)}{_dims(field)}{bits};")
    return lines


def record_asserts(record: RecordType) -> list[str]:
    """`static_assert` lines that pin the size and every member's offset."""
    lines = [
        f"static_assert(sizeof({record.name}) == {record.size} && "
        f"alignof({record.name}) == {record.align});"
    ]
    for path, offset in _offsets(record.fields, "", 0):
        lines.append(f"static_assert(offsetof({record.name}, {path}) == {offset});")
    return lines


def constant_type(value: int) -> str:
    """The narrowest of unsigned int, int and (unsigned) long long that holds a macro's value."""
    if 0 <= value < 1 << 32:
        return "unsigned int"
    if -(1 << 31) <= value < 0:
        return "int"
    return "unsigned long long" if value > 0 else "long long"


def enumerators(constants: Sequence[Constant]) -> list[str]:
    """`NAME = value,` lines."""
    return [f"{constant.name} = {constant.value}," for constant in constants]


def driver_number(version: str) -> str:
    """`550, 163, 1` of `550.163.01`; a two-part version has no patch number."""
    branch, minor, patch = (*(str(int(part)) for part in version.split(".")), "kListedNoPatch")[:3]
    return f"{branch}, {minor}, {patch}"


# Implementation.


def _dims(field: Field) -> str:
    if field.dims:
        return "".join(f"[{size}]" for size in field.dims)
    return f"[{field.count}]" if field.count else ""


def _offsets(fields: Iterable[Field], prefix: str, start: int) -> Iterable[tuple[str, int]]:
    """(designator, offset) of each addressable member; a bit field has no address."""
    for field in fields:
        offset = start + field.offset
        if isinstance(field.type, Inline):
            if _dims(field):
                yield prefix + field.name, offset
                continue
            inner = f"{prefix}{field.name}." if field.name else prefix
            yield from _offsets(field.type.fields, inner, offset)
        elif not field.bits and field.name:
            yield prefix + field.name, offset
