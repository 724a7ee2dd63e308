"""The rules a built library of ours must keep, each with the invariant of the design it proves.

Owns the rules, as pure functions over `Library` and `Shape`. Must not do I/O or know lief.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .diff import open_names
from .drivers import version_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .api import Api
    from .diff import Hooked
    from .elf import Library, Shape

SONAME = "libgpufence.so"
ADDPATH_SONAME = "libgpufence-addpath.so"
LOOKUPS = frozenset({"dlsym", "dlvsym"})

_LIBC_FAMILY = re.compile(
    r"(?:libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux[\w.-]*\.so\.\d)"
)

# Rule, number of the invariant that such an import would break, and the imports.
_FORBIDDEN = (
    (
        "process-end",
        1,
        """exit _exit _Exit quick_exit abort raise pthread_exit longjmp _longjmp siglongjmp
        __longjmp_chk __assert __assert_fail __assert_perror_fail err errx verr verrx""",
    ),
    (
        "stdout",
        2,
        """printf vprintf __printf_chk __vprintf_chk puts putchar putchar_unlocked stdout perror
        psignal""",
    ),
    (
        "process-state",
        3,
        """umask signal sigaction bsd_signal __sysv_signal sigset sigignore on_exit
        setenv putenv unsetenv clearenv chdir fchdir system popen""",
    ),
    (
        "shared-locks",
        9,
        "pthread_mutexattr_setpshared pthread_mutexattr_setrobust sem_init sem_open",
    ),
    ("tls-destructors", 16, "__cxa_thread_atexit __cxa_thread_atexit_impl"),
)
# The C++ runtime: exceptions, operator new, mangled functions. crtbegin imports the first of these
# names; the other is what atexit calls, by which the core limiter's thread ends before the driver.
_CXX_RUNTIME = re.compile(r"_Z\w+|__cxa_\w+|__gxx_\w+|_Unwind_\w+|__dynamic_cast")
_CRT_IMPORTS = frozenset({"__cxa_finalize", "__cxa_atexit"})

# What crtbeginS.o puts into the arrays, in every library that gcc or clang links.
_CRT_FUNCTIONS = frozenset({"frame_dummy", "__do_global_dtors_aux"})
_CRT_SIGN = "_ITM_registerTMCloneTable"

_DT_RELR_FLOOR = "2.36"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule applied: `items` are the offenders; a note never fails the check."""

    rule: str
    invariant: int
    detail: str
    items: tuple[str, ...] = ()
    is_note: bool = False

    @property
    def ok(self) -> bool:
        """Whether the rule is kept."""
        return self.is_note or not self.items


def verdicts(
    library: Library,
    shape: Shape,
    api: Api,
    hooked: Hooked,
    *,
    glibc_ceiling: str = "",
    demand_enforced: bool = False,
) -> tuple[Verdict, ...]:
    """Apply every rule, in the order in which a person would ask.

    Args:
        library: exports of the built library.
        shape: its other tables.
        api: what it is expected to export.
        hooked: the same exports, sorted into hooks and passthroughs.
        glibc_ceiling: e.g. 2.17; "" reports the floor without judging it.
        demand_enforced: fail on every enforced function without a hook or an excuse.
    """
    return (
        *_export_rules(library, shape, api),
        *_dependency_rules(shape, glibc_ceiling),
        *_start_rules(shape, constructors=0),
        *_import_rules(shape),
        *_link_rules(library, shape, SONAME),
        *_policy_rules(api, hooked, demand_enforced),
    )


def addpath_verdicts(
    library: Library, shape: Shape, *, glibc_ceiling: str = ""
) -> tuple[Verdict, ...]:
    """The rules for libgpufence-addpath.so: it works by being loaded, and does nothing else."""
    exports = _sorted(symbol.name for symbol in library.symbols)
    return (
        Verdict("extra-exports", 14, "nothing is exported", exports),
        Verdict("version-definitions", 14, "none belongs here", shape.defined_versions),
        *_dependency_rules(shape, glibc_ceiling),
        *_start_rules(shape, constructors=1),
        *_import_rules(shape),
        *_link_rules(library, shape, ADDPATH_SONAME),
    )


def glibc_floor(shape: Shape) -> str:
    """The oldest glibc that has all that the library imports; "" if nothing is versioned."""
    found = [v.removeprefix("GLIBC_") for v in shape.required_versions if v.startswith("GLIBC_2")]
    if "GLIBC_ABI_DT_RELR" in shape.required_versions:
        found.append(_DT_RELR_FLOOR)
    return max(found, key=version_key, default="")


def _export_rules(library: Library, shape: Shape, api: Api) -> Iterator[Verdict]:
    names = {symbol.name for symbol in library.symbols}
    data = [s.name for s in library.symbols if s.type in ("object", "tls")]
    wanted = api.known.keys() | LOOKUPS
    yield Verdict("missing-exports", 14, f"{len(wanted)} names expected", _sorted(wanted - names))
    extra = names - wanted - set(data)
    yield Verdict("extra-exports", 14, f"{len(names)} names exported", _sorted(extra))
    yield Verdict("data-symbols", 14, "none belongs here", _sorted(data))
    left = (name for name in names if api.left(name))
    yield Verdict("driver-owned", 14, "names that must stay the driver's", _sorted(left))
    odd = {s.name for s in library.symbols if s.type == "ifunc" or s.binding == "unique"}
    yield Verdict("odd-symbols", 14, "indirect or unique symbols", _sorted(odd))
    yield Verdict("version-definitions", 14, "none belongs here", shape.defined_versions)


def _dependency_rules(shape: Shape, ceiling: str) -> Iterator[Verdict]:
    foreign = [name for name in shape.needed if not _LIBC_FAMILY.fullmatch(name)]
    yield Verdict("needed", 15, ", ".join(shape.needed) or "nothing", _sorted(foreign))
    odd = [v for v in shape.required_versions if not re.fullmatch(r"GLIBC_(2[\d.]*|ABI_.*)", v)]
    yield Verdict("symbol-versions", 15, "of the public glibc only", _sorted(odd))
    floor = glibc_floor(shape)
    too_new: tuple[str, ...] = ()
    if ceiling and floor and version_key(floor) > version_key(ceiling):
        versions = [v for v in shape.required_versions if version_key(v) > version_key(ceiling)]
        users = [f"{i.name}@{i.version}" for i in shape.imports if i.version in versions]
        too_new = _sorted(users or versions or [f"glibc {floor}"])
    limit = f", at most {ceiling} allowed" if ceiling else ""
    yield Verdict("glibc", 15, f"needs glibc {floor or 'of any version'}{limit}", too_new)


def _start_rules(shape: Shape, constructors: int) -> Iterator[Verdict]:
    has_crt = any(entry.name == _CRT_SIGN for entry in shape.imports)
    for rule, functions, allowed in (
        ("constructors", shape.initialisers, constructors),
        ("destructors", shape.finalisers, 0),
    ):
        ours = [name for name in functions if name not in _CRT_FUNCTIONS]
        # Stripped, no entry has a name; where crtbegin was linked, the first one is its own.
        if has_crt and ours and all(name.startswith("0x") for name in functions):
            ours.pop(0)
        detail = f"the C runtime's and {allowed} of ours" if allowed else "the C runtime's only"
        wrong = ours or ["(none)"] if len(ours) != allowed else []
        yield Verdict(rule, 16, detail, _sorted(wrong))
    count = shape.indirect_functions
    items = (f"{count} relocations",) if count else ()
    yield Verdict("indirect-functions", 16, "no code of ours runs while loading", items)


def _import_rules(shape: Shape) -> Iterator[Verdict]:
    names = {entry.name for entry in shape.imports}
    judged = set(_CRT_IMPORTS)
    for rule, invariant, words in _FORBIDDEN:
        found = names & set(words.split())
        judged |= found
        yield Verdict(rule, invariant, "no forbidden import", _sorted(found))
    found = {name for name in names - judged if _CXX_RUNTIME.fullmatch(name)}
    yield Verdict("cxx-runtime", 1, "no exceptions, no operator new", _sorted(found))


def _link_rules(library: Library, shape: Shape, expected: str) -> Iterator[Verdict]:
    soname = () if library.soname == expected else (library.soname or "(none)",)
    yield Verdict("soname", 15, expected, soname)
    missing = [
        name for name, there in (("RELRO", shape.relro), ("NOW", shape.bind_now)) if not there
    ]
    yield Verdict("hardening", 14, "RELRO and NOW", _sorted(missing))
    bad = [
        ("text relocations", shape.text_relocations),
        ("executable stack", shape.executable_stack),
    ]
    yield Verdict("memory", 14, "nothing writable is code", _sorted(n for n, there in bad if there))
    yield Verdict("search-path", 15, "no RPATH or RUNPATH", shape.search_path)


def _policy_rules(api: Api, hooked: Hooked, demand_enforced: bool) -> Iterator[Verdict]:
    holes = open_names(api, hooked)
    siblings = [f"{h.name} (beside {h.sibling})" for h in holes if h.sibling]
    yield Verdict("families", 24, "a hooked family is hooked whole", _sorted(siblings))
    unhandled = [hole.name for hole in holes if not hole.sibling]
    detail = f"{len(unhandled)} enforced functions have neither hook nor excuse"
    yield Verdict("enforced", 24, detail, _sorted(unhandled), is_note=not demand_enforced)
    stale = [rule.pattern for rule in api.passed_through if _is_stale(rule.pattern, api, hooked)]
    yield Verdict("excuses", 24, "every line of passthrough.txt is needed", _sorted(stale))


def _is_stale(pattern: str, api: Api, hooked: Hooked) -> bool:
    base = pattern.removesuffix("*")
    if base == pattern:
        return pattern not in api.known or pattern in hooked.strong
    names = [name for name, known in api.known.items() if known.base == base]
    typed = [name for name in names if api.known[name].prototype]
    return not names or (bool(typed) and all(name in hooked.strong for name in typed))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
