"""Nothing is put into a stream behind the core limit's back, whichever function a driver brings.

What has to do with streams is rendered, written by hand, or excused with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from findsyms import elf, vet
from gen import hooks, ir, model, naming, rules, stream_order
from gen.kinds import classify

REPO = Path(__file__).resolve().parents[3]
API = REPO / "lib" / "api"
HOOKS = REPO / "lib" / "src" / "hooks"
BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build"))


@pytest.fixture(scope="module")
def committed() -> model.Model:
    return model.load(API)


@pytest.fixture(scope="module")
def by_hand(committed: model.Model) -> frozenset[str]:
    """Functions of the model that a source in lib/src/hooks defines."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(HOOKS.rglob("*.cpp"))]
    return frozenset(
        name
        for text in texts
        for name in (symbol.name for symbol in committed.symbols if symbol.name in text)
        if hooks.definition_line(text, name)
    )


def open_doors(loaded: model.Model, by_hand: frozenset[str]) -> Iterator[str]:
    """Functions about streams that nobody thought of, each with what is wrong."""
    for symbol in loaded.symbols:
        function, row = symbol.function, rules.naming(symbol.name, loaded.exempt)
        if function is None or not stream_order.concerns(function):
            continue
        ways = [
            bool(symbol.leaves),
            symbol.name in by_hand,
            bool(row and not stream_order.is_by_hand(row))
            or bool(hooks.passthrough_reason(API, symbol.name)),
        ]
        if sum(ways) != 1 or (row and stream_order.is_by_hand(row) and symbol.name not in by_hand):
            rendered, written, excused = ways
            yield f"{symbol.name}: {rendered=} {written=} {excused=}"


def test_every_function_about_streams_is_rendered_written_or_excused(
    committed: model.Model, by_hand: frozenset[str]
) -> None:
    assert list(open_doors(committed, by_hand)) == []


def test_every_line_of_the_table_is_needed_and_none_contradicts_another(
    committed: model.Model,
) -> None:
    functions = [(symbol.name, symbol.function) for symbol in committed.symbols]
    concerned = [name for name, one in functions if one and stream_order.concerns(one)]
    named = {
        row.pattern: [n for n in concerned if rules.naming(n, [row])] for row in committed.exempt
    }
    twice = [name for names in named.values() for name in names]

    assert [pattern for pattern, names in named.items() if not names] == []
    assert sorted(twice) == sorted(set(twice))


def test_what_the_gpu_does_like_kernels_is_told_from_other_copies(committed: model.Model) -> None:
    leaves = {symbol.name: symbol.leaves for symbol in committed.symbols if symbol.leaves}

    assert leaves["cuMemsetD8Async"][0] == "LeaveKernelsToFill(hStream)"
    assert leaves["cuMemsetD2D32Async_ptsz"][0] == "LeaveKernelsToFill(PerThread(hStream))"
    assert leaves["cuMemcpyDtoDAsync_v2"][0] == "LeaveKernelsToCopy(hStream)"
    assert leaves["cuMemcpyAsync"][0] == "LeaveKernels(hStream)"
    assert leaves["cuMemcpyDtoHAsync_v2"][0] == "LeaveKernels(hStream)"


def test_the_built_library_exports_every_rendered_hook_as_one(committed: model.Model) -> None:
    library = BUILD / "lib" / "libgpufence.so"
    if not library.is_file():
        pytest.skip("build/lib/libgpufence.so is not built")
    exports = elf.read_library(library, vet.vet(library)).symbols
    strong = {symbol.name for symbol in exports if symbol.binding == "global"}

    assert {symbol.name for symbol in committed.symbols if symbol.leaves} <= strong


def newcomer(name: str, *types: str, kind: str = "") -> ir.Function:
    """A function as newer headers might declare it, of the kind that hookgen gives its name."""
    parts = naming.split(name)
    found, reason = classify(parts.base)
    params = tuple(ir.Param(f"a{place}", spelling, "in") for place, spelling in enumerate(types))
    return ir.Function(
        name=name,
        base=parts.base,
        version=parts.version,
        stream=parts.stream,
        header="cuda.h",
        returns="CUresult",
        params=params,
        kind=kind or found,
        reason=reason,
        deprecated=False,
        headers=ir.Span("14.0", "14.0"),
        drivers=None,
        architectures=(),
    )


def with_newcomers(committed: model.Model, *functions: ir.Function) -> model.Model:
    cuda, nvml = (library.api for library in committed.libraries)
    known: Sequence[ir.Function] = (*cuda.functions, *functions)
    return model.build((replace(cuda, functions=tuple(known)), nvml), {}, (), "", committed.exempt)


@pytest.mark.parametrize(
    ("function", "leaves"),
    [
        (
            newcomer("cuMemcpyTwiceAsync", "size_t", "CUstream"),
            ("LeaveKernels(a1)", "const CorePut put(a1)"),
        ),
        (
            newcomer("cuMemcpyTwiceAsync_ptsz", "CUstream"),
            ("LeaveKernels(PerThread(a0))", "const CorePut put(PerThread(a0))"),
        ),
        (newcomer("cuMemcpyTwice_v2_ptds", "size_t"), ("LeaveAllKernels()",)),
        (newcomer("cuMemsetD64", "CUdeviceptr"), ("LeaveAllKernels()",)),
        (
            newcomer("cuStreamWaitValue128", "CUstream", "size_t"),
            ("LeaveKernels(a0)", "const CorePut put(a0)"),
        ),
        (
            newcomer("cuStreamJoin", "CUstream", "CUstream"),
            ("LeaveKernels(a0)", "LeaveKernels(a1)", "const CorePut put(a0)"),
        ),
        (
            newcomer("cuTexFetchAsync", "CUstream", kind="plain"),
            ("LeaveKernels(a0)", "const CorePut put(a0)"),
        ),
        (newcomer("cuTexFetch", "CUstream *", kind="plain"), ()),
        (newcomer("cuStreamGetColour", "CUstream"), ()),
        (newcomer("cuMemAllocTwiceAsync", "CUstream"), ()),
    ],
    ids=lambda item: item.name if isinstance(item, ir.Function) else "",
)
def test_a_newcomer_gets_the_hook_that_its_kind_and_parameters_ask_for(
    committed: model.Model, function: ir.Function, leaves: tuple[str, ...]
) -> None:
    added = with_newcomers(committed, function).find(function.name)

    assert added is not None
    assert added.leaves == leaves


@pytest.mark.parametrize(
    "function",
    [
        newcomer("cuMemAllocTwiceAsync", "CUstream"),  # enforced, so nothing is rendered
        newcomer("cuLaunchTwice", "CUstream"),
        newcomer("cuStreamSynchronize_v2", "CUstream"),  # its line says "by hand"
        newcomer("cuStreamBeginCapture_v9", "CUstream"),
    ],
    ids=lambda function: function.name,
)
def test_a_newcomer_that_needs_a_hook_by_hand_is_noticed(
    committed: model.Model, by_hand: frozenset[str], function: ir.Function
) -> None:
    doors = list(open_doors(with_newcomers(committed, function), by_hand))

    assert [door.partition(":")[0] for door in doors] == [function.name]


def test_a_hook_by_hand_that_nobody_wrote_down_is_noticed(
    committed: model.Model, by_hand: frozenset[str]
) -> None:
    # The linker would say so as well: both are strong.
    doors = list(open_doors(committed, by_hand | {"cuMemcpyAsync", "cuStreamGetFlags"}))

    assert [door.partition(":")[0] for door in doors] == ["cuMemcpyAsync", "cuStreamGetFlags"]
