"""`findsyms check` proves the shape of the built library: each broken rule is named, alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from findsyms import api, check
from findsyms.diff import Hooked
from findsyms.elf import Import, Library, Shape, Symbol

from .conftest import Compile, RunTool

LINK = ("-Wl,-soname,libgpufence.so", "-Wl,-z,now", "-Wl,-z,relro")


def source(api_folder: Path, *, strong: str = "", without: str = "", extra: str = "") -> str:
    """A library with a body for every name of the small API, and the two lookups."""
    names = set(api.load(api_folder).known) - set(without.split())
    weak = {name: "" if name in strong.split() else "__attribute__((weak)) " for name in names}
    lines = [f"{weak[name]}int {name}(void) {{ return 0; }}" for name in sorted(names)]
    lines += [f"void *{name}(void) {{ return 0; }}" for name in sorted(check.LOOKUPS)]
    return "\n".join([*lines, extra])


WHOLE = "cuMemAlloc cuMemAlloc_v2 cuTheForecast cuLaunchKernel cuLaunchKernel_ptsz"


def broken(run_tool: RunTool, path: Path, *arguments: str) -> set[str]:
    done = run_tool("check", path, "--json", *arguments)
    document = done.json()
    assert done.status == (0 if document["ok"] else 5)
    return {rule["rule"] for rule in document["rules"] if not rule["ok"]}


def test_a_good_library_keeps_every_rule(
    compile_library: Compile, api_folder: Path, run_tool: RunTool
) -> None:
    path = compile_library(source(api_folder, strong=WHOLE), *LINK)

    done = run_tool("check", path, "--enforced", "--glibc", "2.17")

    assert done.status == 0, done.out
    assert "FAIL" not in done.out
    assert re.search(r"all \d+ rules kept$", done.out.strip())


# What is added to the good library or taken from it, and the one rule that must notice.
EXTRA = {
    "extra-exports": "int helper(void) { return 0; }",
    "data-symbols": "int mutex = 3;",
    "driver-owned": "int cudbgApiInit(void) { return 0; }",
    "constructors": "static int n; __attribute__((constructor)) static void c(void) { n++; }",
    "destructors": "static int n; __attribute__((destructor)) static void c(void) { n++; }",
    "process-end": "void exit(int); int nvmlInit_v2(void) { exit(1); }",
    "stdout": 'int puts(const char *); int nvmlInit_v2(void) { return puts(""); }',
    "process-state": "int umask(int); int nvmlInit_v2(void) { return umask(0); }",
    "shared-locks": "int sem_init(void *, int, int);"
    " int nvmlInit_v2(void) { return sem_init(0, 1, 1); }",
    "tls-destructors": "int __cxa_thread_atexit_impl(void *); int nvmlInit_v2(void)"
    " { return __cxa_thread_atexit_impl(0); }",
    "cxx-runtime": "void *_Znwm(unsigned long); int nvmlInit_v2(void) { return _Znwm(8) != 0; }",
}


@pytest.mark.parametrize(("rule", "extra"), EXTRA.items(), ids=EXTRA.keys())
def test_an_addition_breaks_its_rule(
    compile_library: Compile, api_folder: Path, run_tool: RunTool, rule: str, extra: str
) -> None:
    without = "nvmlInit_v2" if "nvmlInit_v2" in extra else ""
    text = source(api_folder, strong=WHOLE, without=without, extra=extra)

    found = broken(run_tool, compile_library(text, *LINK))

    expected = {rule, "extra-exports"} if rule == "driver-owned" else {rule}
    assert found == expected


FLAGS = {
    "soname": ("-Wl,-soname,libother.so", "-Wl,-z,now", "-Wl,-z,relro"),
    "hardening": ("-Wl,-soname,libgpufence.so", "-Wl,-z,lazy"),
    "memory": (*LINK, "-Wl,-z,execstack"),
    "search-path": (*LINK, "-Wl,-rpath,/opt/lib"),
    "needed": (*LINK, "-Wl,--no-as-needed", "-lgcc_s"),
}


@pytest.mark.parametrize(("rule", "flags"), FLAGS.items(), ids=FLAGS.keys())
def test_a_link_flag_breaks_its_rule(
    compile_library: Compile,
    api_folder: Path,
    run_tool: RunTool,
    rule: str,
    flags: tuple[str, ...],
) -> None:
    path = compile_library(source(api_folder, strong=WHOLE), *flags)

    assert broken(run_tool, path) == {rule}


def test_a_dropped_export_is_named(
    compile_library: Compile, api_folder: Path, run_tool: RunTool
) -> None:
    text = source(api_folder, strong=WHOLE, without="cuMemcpyHtoD_v2 dlsym")

    done = run_tool("check", compile_library(text, *LINK))

    assert done.status == 5
    assert re.search(r"^FAIL  missing-exports .*\n      cuMemcpyHtoD_v2$", done.out, re.M)


def test_a_version_node_is_refused(
    compile_library: Compile, api_folder: Path, run_tool: RunTool, tmp_path: Path
) -> None:
    script = tmp_path / "exports.map"
    script.write_text("GPUFENCE_1 { global: *; };\n")
    text = source(api_folder, strong=WHOLE)

    found = broken(run_tool, compile_library(text, *LINK, f"-Wl,--version-script={script}"))

    assert "version-definitions" in found


def test_an_indirect_function_is_refused(
    compile_library: Compile, api_folder: Path, run_tool: RunTool
) -> None:
    ifunc = (
        "static int a(void) { return 1; } static void *r(void) { return a; }"
        'int cuTheForecast(void) __attribute__((ifunc("r")));'
    )
    text = source(api_folder, strong=WHOLE, without="cuTheForecast", extra=ifunc)

    assert "odd-symbols" in broken(run_tool, compile_library(text, *LINK))


def test_a_half_hooked_family_fails_and_an_open_one_is_noted(
    compile_library: Compile, api_folder: Path, run_tool: RunTool
) -> None:
    path = compile_library(source(api_folder, strong="cuMemAlloc_v2"), *LINK)

    done = run_tool("check", path, "--verbose")

    assert done.status == 5
    assert "cuMemAlloc (beside cuMemAlloc_v2)" in done.out
    assert "note  enforced              3 enforced functions" in done.out
    assert "cuLaunchKernel_ptsz" in done.out
    assert broken(run_tool, path, "--enforced") == {"families", "enforced"}


def test_a_stale_excuse_is_noticed(
    compile_library: Compile, api_folder: Path, run_tool: RunTool
) -> None:
    (api_folder / "passthrough.txt").write_text(
        "nvmlDeviceGetMemoryInfo* : fine\ncuMemAlloc* : hooked by now\ncuGone : no such name\n"
    )
    path = compile_library(source(api_folder, strong=WHOLE), *LINK)

    document = run_tool("check", path, "--json").json()

    (excuses,) = (rule for rule in document["rules"] if rule["rule"] == "excuses")
    assert excuses["items"] == ["cuGone", "cuMemAlloc*"]


def test_a_stripped_library_may_keep_the_c_runtimes_initialiser(
    compile_library: Compile, api_folder: Path, run_tool: RunTool
) -> None:
    extra = EXTRA["constructors"]

    good = compile_library(source(api_folder, strong=WHOLE), *LINK, "-s")
    bad = compile_library(source(api_folder, strong=WHOLE, extra=extra), *LINK, "-s")

    bare = compile_library(
        source(api_folder, strong=WHOLE, extra=extra), *LINK, "-s", "-nostartfiles"
    )

    assert broken(run_tool, bare) == {"constructors"}
    assert broken(run_tool, good) == set()
    assert broken(run_tool, bad) == {"constructors"}


SHAPE = Shape(
    needed=("libc.so.6", "ld-linux-aarch64.so.1", "libdl.so.2"),
    search_path=(),
    imports=(Import("dlopen", "GLIBC_2.34", False), Import("memcpy", "GLIBC_2.14", False)),
    required_versions=("GLIBC_2.14", "GLIBC_2.34", "GLIBC_2.4"),
    defined_versions=(),
    initialisers=(),
    finalisers=(),
    relro=True,
    bind_now=True,
    text_relocations=False,
    executable_stack=False,
    indirect_functions=0,
)


def test_the_glibc_floor_is_ordered_by_number() -> None:
    assert check.glibc_floor(SHAPE) == "2.34"


def verdict(api_folder: Path, shape: Shape, rule: str, ceiling: str = "") -> check.Verdict:
    known = api.load(api_folder)
    library = Library("", "x86_64", "", False, (Symbol("x", "func", "global"),), (), ())
    hooked = Hooked("x", frozenset(), frozenset())
    found = check.verdicts(library, shape, known, hooked, glibc_ceiling=ceiling)
    return next(verdict for verdict in found if verdict.rule == rule)


def test_the_glibc_ceiling_names_the_culprits(api_folder: Path) -> None:
    assert verdict(api_folder, SHAPE, "glibc").ok
    assert verdict(api_folder, SHAPE, "glibc", "2.34").ok
    assert verdict(api_folder, SHAPE, "glibc", "2.17").items == ("dlopen@GLIBC_2.34",)
    assert verdict(api_folder, SHAPE, "glibc", "2.4").items == (
        "dlopen@GLIBC_2.34",
        "memcpy@GLIBC_2.14",
    )


@pytest.mark.parametrize("version", ["GLIBC_PRIVATE", "GLIBCXX_3.4", "CXXABI_1.3", "GCC_3.0"])
def test_versions_of_other_libraries_are_refused(api_folder: Path, version: str) -> None:
    shape = replace(SHAPE, required_versions=(*SHAPE.required_versions, version))

    assert verdict(api_folder, shape, "symbol-versions").items == (version,)


def test_relative_relocations_raise_the_floor(api_folder: Path) -> None:
    shape = replace(SHAPE, required_versions=("GLIBC_2.4", "GLIBC_ABI_DT_RELR"))

    assert check.glibc_floor(shape) == "2.36"
    assert not verdict(api_folder, shape, "glibc", "2.17").ok


def test_what_is_no_library_is_an_error_not_a_verdict(run_tool: RunTool, tmp_path: Path) -> None:
    (tmp_path / "empty.so").touch()

    for name in ("empty.so", "missing.so"):
        done = run_tool("check", name)

        assert done.status == 1
        assert done.out == ""
        assert done.err.startswith(f"findsyms: '{name}' refused: ")
        assert done.err.count("\n") == 1


def test_a_bad_version_is_a_usage_error(run_tool: RunTool) -> None:
    assert run_tool("check", "x.so", "--glibc", "new").status == 2
    assert run_tool("check").status == 2


ADDPATH_LINK = ("-Wl,-soname,libgpufence-addpath.so", "-Wl,-z,now", "-Wl,-z,relro")
ADDPATH = "static int n; __attribute__((constructor)) static void c(void) { n++; }"


def test_a_good_addpath_library_exports_nothing_and_has_one_constructor(
    compile_library: Compile, run_tool: RunTool
) -> None:
    done = run_tool("check", compile_library(ADDPATH, *ADDPATH_LINK), "--glibc", "2.17")

    assert done.status == 0, done.out
    assert "ok    constructors          the C runtime's and 1 of ours" in done.out


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("extra-exports", ADDPATH + "int helper(void) { return 0; }"),
        ("constructors", '__attribute__((visibility("hidden"))) int unused;'),
        ("constructors", ADDPATH + "__attribute__((constructor)) static void d(void) { n--; }"),
        ("process-state", ADDPATH.replace("n++", 'unsetenv("A")').replace("static int n;",
         "int unsetenv(const char *);")),
        ("process-end", ADDPATH.replace("n++", "abort()").replace("static int n;",
         "void abort(void);")),
    ],
)  # fmt: skip
def test_an_addpath_library_is_held_to_its_rules(
    compile_library: Compile, run_tool: RunTool, rule: str, text: str
) -> None:
    assert broken(run_tool, compile_library(text, *ADDPATH_LINK)) == {rule}
