"""Every call arrives: exactly its symbol, exactly its arguments, exactly its result.

A fake driver records what reaches it, a caller gives every argument another value. Then each kind
of mistake that generators and hand-written forwarders make is made on purpose, and must be noticed
by the compiler, the linker or the caller.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gen import explain, ir, model, render
from gen.rules import Rule

from .conftest import BuildFailed, Workshop

BUILD = Path(os.environ.get("GPUFENCE_BUILD", Path(__file__).resolve().parents[2] / "build"))


@dataclass(frozen=True, slots=True)
class Proof:
    """What the caller said: status 0 and no lines, or a line per deviation."""

    status: int
    deviations: list[str]


def call_everything(echo: Path, library: Path, *runner: str, preload: bool = False) -> Proof:
    env = {**os.environ, "LD_LIBRARY_PATH": str(echo)}
    if preload:
        env["LD_PRELOAD"] = str(library)
    command = [*runner, str(echo / "echo_caller"), str(library)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    return Proof(done.returncode, done.stdout.splitlines()[:-1])


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory, compiler: str, rendered: dict[str, str]) -> Path:
    workshop = Workshop(tmp_path_factory.mktemp("echo"), compiler)
    return workshop.echo(workshop.write("echo", rendered))


@pytest.fixture(scope="module")
def real_echo(
    tmp_path_factory: pytest.TempPathFactory, compiler: str, real_texts: dict[str, str]
) -> Path:
    workshop = Workshop(tmp_path_factory.mktemp("real_echo"), compiler)
    return workshop.echo(workshop.write("echo", real_texts))


@pytest.fixture(scope="module")
def sound(
    tmp_path_factory: pytest.TempPathFactory, compiler: str, rendered: dict[str, str]
) -> Path:
    """The library as it should be; its folder holds the objects too."""
    workshop = Workshop(tmp_path_factory.mktemp("sound"), compiler)
    return workshop.library(workshop.write("lib", rendered))


def test_every_awkward_call_arrives(echo: Path, sound: Path) -> None:
    assert call_everything(echo, sound) == Proof(0, [])


def test_every_call_of_the_committed_model_arrives(real_echo: Path, real_library: Path) -> None:
    assert call_everything(real_echo, real_library) == Proof(0, [])


def test_every_call_arrives_through_the_built_library(real_echo: Path) -> None:
    library = BUILD / "lib" / "libgpufence.so"
    if not library.is_file():
        pytest.skip("build/lib/libgpufence.so is not built")

    assert call_everything(real_echo, library, preload=True) == Proof(0, [])


@dataclass(frozen=True, slots=True)
class Slip:
    """One line of a rendered file gone wrong, and who has to notice."""

    file: str
    pattern: str
    instead: str
    noticed_by: str


def test_every_awkward_call_arrives_on_aarch64(tmp_path: Path, rendered: dict[str, str]) -> None:
    compiler = shutil.which("aarch64-linux-gnu-g++")
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("no aarch64-linux-gnu-g++ or no qemu-aarch64")
    workshop = Workshop(tmp_path, compiler)
    echo = workshop.echo(workshop.write("echo", rendered))
    # Without the C runtime's start files, which are not marked for it, branch targets are checked.
    library = workshop.library(
        workshop.write("lib", rendered), "-mbranch-protection=standard", "-nostartfiles"
    )

    root = "/usr/aarch64-linux-gnu"
    proof = call_everything(
        echo,
        library,
        emulator,
        "-cpu",
        "max",
        "-L",
        root,
        "-E",
        f"LD_LIBRARY_PATH={echo}:{root}/lib",
    )

    assert proof == Proof(0, [])


# Mistakes as a template or a hand edit could make them.
SLIPS = {
    "two arguments swapped": Slip(
        "real.h",
        r"\(plan, a, b, c, d, e, (.*), l, m",
        r"(plan, a, b, c, d, l, \1, e, m",
        "caller",
    ),
    "ptsz forwarded to the base": Slip(
        "passthrough.cpp", r"real::cuGadgetFill_ptsz\(", "real::cuGadgetFill(", "caller"
    ),
    "ptds entry of the base": Slip(
        "real.h", r"kSym_cuGadgetCopy_ptds\)", "kSym_cuGadgetCopy)", "caller"
    ),
    "alias that calls its target": Slip(
        "real.h", r"kSym_nvmlGaugeGet\)", "kSym_nvmlGaugeRead)", "caller"
    ),
    "wrong return type": Slip(
        "passthrough.cpp", r"CUresult cuGadgetFree\(", "void cuGadgetFree(", "compiler"
    ),
    "narrowed result": Slip(  # a compiler that is told to make tail calls objects already
        "real.h", r"Entry<unsigned long long\(\)>", "Entry<unsigned int()>", "caller or compiler"
    ),
    "argument dropped": Slip("real.h", r"(_cuGadgetCopy\)\(dst, src), bytes\)", r"\1)", "compiler"),
    "float sent as integer": Slip(
        "real.h",
        r"\(void\*, float, double, CUstream\)>",
        "(void*, int, double, CUstream)>",
        "compiler",
    ),
    "export dropped from the map": Slip("exports.map", r" +cuGadgetName;\n", "", "caller"),
    "body dropped": Slip(
        "passthrough.cpp", r"\[\[gnu::weak\]\] CUresult cuGadgetName\(.*\n", "", "linker"
    ),
    "call made twice": Slip(
        "passthrough.cpp",
        r"\{ (GPUFENCE_TAIL return real::cuGadgetFree\(p\);)",
        r"{ (void)real::cuGadgetFree(p); \1",
        "caller",
    ),
    "trampoline of a neighbour": Slip(
        "trampolines.S", r"(TRAMPOLINE cuGadgetPrivate), (\d+)", r"\1, 0", "caller"
    ),
    "lazy stub of a neighbour": Slip(
        "trampolines.S", r"CARRY_INDEX (\\index)\n  JUMP", r"CARRY_INDEX \1^1\n  JUMP", "caller"
    ),
}

# Mistakes in the model that the library is rendered from; the fake driver keeps the truth.
Edit = Callable[[ir.Function], ir.Function]


def with_type(position: int, spelling: str) -> Edit:
    def edit(function: ir.Function) -> ir.Function:
        params = list(function.params)
        params[position] = replace(params[position], type=spelling)
        return replace(function, params=tuple(params))

    return edit


def without_last(function: ir.Function) -> ir.Function:
    return replace(function, params=function.params[:-1])


def returning(spelling: str) -> Edit:
    return lambda function: replace(function, returns=spelling)


MISREADINGS: dict[str, tuple[str, Edit]] = {
    "size_t parsed as int": ("cuGadgetOpen_v2", with_type(1, "int")),
    "64-bit argument as 32-bit": ("cuGadgetOpen_v2", with_type(3, "unsigned int")),
    "struct by value parsed as a pointer": ("cuGadgetImport", with_type(1, "const CUtoken *")),
    "trailing parameter lost": ("cuGadgetMany", without_last),
    "float parsed as double": ("cuGadgetFill", with_type(1, "double")),
    "64-bit result as 32-bit": ("cuGadgetVersion", returning("unsigned int")),
    "status as one byte": ("cuGadgetFree", returning("unsigned char")),
    "text result as a status": ("nvmlErrorString", returning("nvmlReturn_t")),
}
# Registers carry these unharmed whatever the prototype says, so only a compiler can object.
HARMLESS_IN_REGISTERS = list(MISREADINGS)[4:]


def who_notices(
    workshop: Workshop,
    echo: Path,
    texts: dict[str, str],
    *flags: str,
    compiled: Path | None = None,
) -> str:
    try:
        library = workshop.library(workshop.write("lib", texts), *flags, compiled=compiled)
    except BuildFailed as failed:
        return failed.by
    return "nobody" if call_everything(echo, library) == Proof(0, []) else "caller"


@pytest.mark.parametrize("mistake", SLIPS)
def test_slip_in_rendered_text_is_noticed(
    mistake: str, workshop: Workshop, echo: Path, sound: Path, rendered: dict[str, str]
) -> None:
    slip = SLIPS[mistake]
    spoilt, places = re.subn(slip.pattern, slip.instead, rendered[slip.file], count=1)
    texts = {**rendered, slip.file: spoilt}
    compiled = None if slip.file.endswith((".h", ".cpp")) else sound.parent

    assert places == 1
    assert who_notices(workshop, echo, texts, compiled=compiled) in slip.noticed_by


@pytest.mark.parametrize("misreading", [m for m in MISREADINGS if m not in HARMLESS_IN_REGISTERS])
def test_misread_prototype_is_noticed(
    misreading: str, workshop: Workshop, echo: Path, invented: model.Model
) -> None:
    texts = render.render(misread(invented, misreading))

    # A tail jump forgives whatever the prototype says, a hook that calls real:: does not: so each
    # passthrough is compiled as a call here.
    assert who_notices(workshop, echo, texts, "-O0", "-DGPUFENCE_TAIL=") == "caller"


@pytest.mark.parametrize("misreading", MISREADINGS)
def test_hook_with_the_true_prototype_does_not_compile_against_a_misread_one(
    misreading: str, workshop: Workshop, invented: model.Model
) -> None:
    hooked = invented.find(MISREADINGS[misreading][0])
    assert hooked is not None
    hook = "\n".join(explain.override_stub(hooked))
    folder = workshop.write("lib", render.render(misread(invented, misreading)))
    (folder / "hook.cpp").write_text(hook, encoding="utf-8")

    with pytest.raises(BuildFailed, match=hooked.name):
        workshop.compile(folder, "hook.cpp")


def misread(truth: model.Model, misreading: str) -> model.Model:
    name, edit = MISREADINGS[misreading]
    return with_edited(truth, name, edit)


def with_edited(truth: model.Model, name: str, edit: Edit) -> model.Model:
    apis = []
    for library in truth.libraries:
        functions = tuple(edit(f) if f.name == name else f for f in library.api.functions)
        apis.append(replace(library.api, functions=functions))
    lists = {stem: tuple(sorted(names)) for stem, names in truth.lists.items()}
    return model.build(tuple(apis), lists, (Rule("cudbg*", "a debugger's"),), truth.digest)


# Each argument register that the lazy stub gives back, left out once. A resolver that spoils them
# all stands behind it.
RESTORES = {
    **{f"xmm{n}": (rf"  movaps (\d*)\(%rsp\), %xmm{n}\n", "") for n in range(8)},
    **{
        name: (rf"  popq %{name}\n", "  addq $8, %rsp\n")
        for name in ("r9", "r8", "rcx", "rdx", "rsi", "rdi")
    },
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="spoils the x86-64 stub")
@pytest.mark.parametrize("register", RESTORES)
def test_register_that_the_lazy_stub_forgets_is_noticed(
    register: str, workshop: Workshop, echo: Path, sound: Path, rendered: dict[str, str]
) -> None:
    pattern, instead = RESTORES[register]
    spoilt, places = re.subn(pattern, instead, rendered["trampolines.S"])
    texts = {**rendered, "trampolines.S": spoilt}

    assert places == 1
    assert who_notices(workshop, echo, texts, compiled=sound.parent) == "caller"
