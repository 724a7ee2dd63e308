"""A C program that only compiles if the model tells the truth about the real headers.

Owns the text of the probe and the call of the compiler: the model's every prototype is declared
again beside the header's, every alias, size, offset and constant is asserted. It uses the system's
own headers and compiler, so that it shares no error with libclang or with our stubs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import quirks
from .facts import HeaderSet
from .headers import ALL_VARIANTS, HEADERS
from .ir import (
    AliasType,
    Api,
    EnumType,
    Function,
    FunctionType,
    HandleType,
    RecordType,
    TypeDecl,
)
from .layouts import Member, members
from .stubs import STUBS

# What a machine may lack; the C library's own headers must be real.
_FOREIGN = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
_COMPILERS = ("cc", "gcc", "clang")


def find_compiler() -> list[str]:
    """The command of a C compiler: $CC, else the first of cc, gcc, clang; [] if there is none."""
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted and shutil.which(wanted[0]):
        return wanted
    return next(([name] for name in _COMPILERS if shutil.which(name)), [])


def complaints(api: Api, headers: HeaderSet, compiler: list[str]) -> list[str]:
    """Compile the probe of one library; [] if the headers agree with the model.

    The headers lie in a temporary folder while the compiler runs. Returns its error lines.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in _FOREIGN:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(STUBS[name])
        for name, text in headers.files.items():
            (folder / name).write_bytes(text)
        (folder / "probe.c").write_text(program(api), encoding="utf-8")
        command = [*compiler, "-std=c11", "-fsyntax-only", "-I.", *ALL_VARIANTS, "probe.c"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
    if done.returncode == 0:
        return []
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    return lines or done.stderr.splitlines() or [f"the compiler exits {done.returncode}"]


def program(api: Api) -> str:
    """The text of the probe."""
    includes = ["stddef.h", *quirks.include_list(HEADERS[api.library])]
    lines = [f"#include <{name}>" for name in includes]
    lines += [_prototype(function) for function in api.functions]
    for decl in api.types:
        lines += _type_checks(decl)
    lines += [_check(f"(long long)({item.name}) == {item.value}") for item in api.constants]
    return "\n".join(lines) + "\n"


# Implementation.


def _check(condition: str) -> str:
    return f'_Static_assert({condition}, "{condition}");'


def _same_type(name: str, meant: str) -> str:
    return _check(f"__builtin_types_compatible_p({name}, {meant})")


def _prototype(function: Function) -> str:
    params = ", ".join(param.type for param in function.params) or "void"
    return f"extern {function.returns} {function.name}({params});"


def _type_checks(decl: TypeDecl) -> Iterator[str]:
    match decl:
        case AliasType():
            yield _same_type(decl.name, decl.of)
        case HandleType():
            yield _same_type(decl.name, f"struct {decl.tag} *")
        case FunctionType():
            star = "(*)" if decl.pointer else ""
            params = ", ".join(decl.params) or "void"
            yield _same_type(decl.name, f"{decl.returns} {star}({params})")
        case EnumType():
            yield _check(f"sizeof({decl.name}) == sizeof({decl.underlying})")
            yield _check(f"(({decl.name})-1 < 0) == (({decl.underlying})-1 < 0)")
            for item in decl.constants:
                yield _check(f"{item.name} == {item.value}")
        case RecordType() if decl.size:
            yield _check(f"sizeof({decl.name}) == {decl.size}")
            yield _check(f"_Alignof({decl.name}) == {decl.align}")
            for member in members(decl.fields):
                yield from _member_checks(decl.name, member)


def _member_checks(record: str, member: Member) -> Iterator[str]:
    if member.field.bits:  # has no address
        return
    place = f"(({record} *)0)->{member.path}"
    yield _check(f"offsetof({record}, {member.path}) == {member.offset}")
    yield _check(f"sizeof({place}) == {member.field.size}")
    dims = member.field.dims or ((member.field.count,) if member.field.count else ())
    array = "".join(f"[{dim}]" for dim in dims)
    yield _same_type(f"__typeof__({place})", f"{member.spelling}{array}")
