"""The cuGetProcAddress table: values measured on real drivers, and what must stop generation."""

from __future__ import annotations

import pytest
from gen import ir
from gen.drivers import Exports
from gen.errors import HookgenError
from gen.facts import RawFunction
from gen.ir import AliasType, Param
from gen.typedefs import check_prefixes, thresholds

# From real drivers (470 to 580), where 34,816 of 34,816 lookups on 580 followed this table.
MEASURED = {
    "cuMemAlloc": (2000, 3020),
    "cuCtxCreate": (2000, 3020, 11040, 12050),
    "cuStreamGetCaptureInfo": (10010, 11030, 12030),
    "cuGetProcAddress": (11030, 12000),
    "cuCtxGetDevice": (2000, 13000),
    "cuCtxSynchronize": (2000, 13000),
    "cuStreamGetCtx": (9020, 12050),
    "cuMemAdvise": (8000, 12020),
    "cuMemPrefetchAsync": (8000, 12020),
    "cuGraphExecUpdate": (10020, 12000),
    "cuGraphAddNode": (12020, 12030, 13040),
    "cuEventElapsedTime": (2000, 12080),
    "cuMemcpyBatchAsync": (12080, 13000),
    "cuLaunchHostFunc": (10000, 13010),
}


@pytest.mark.parametrize("base", sorted(MEASURED))
def test_plain_thresholds_are_those_of_real_drivers(cuda: ir.Api, base: str) -> None:
    rows = [row for row in cuda.thresholds if row.base == base and row.stream == ""]

    assert tuple(row.cuda_version for row in rows) == MEASURED[base]
    names = [base] + [f"{base}_v{number}" for number in range(2, len(rows) + 1)]
    assert [row.symbol for row in rows] == names


def test_per_thread_threshold_skips_the_first_variant(cuda: ir.Api) -> None:
    # The per-thread API is younger than the 64-bit one: it never had a v1.
    rows = [row for row in cuda.thresholds if row.base == "cuMemcpyDtoH" and row.stream]

    assert [(row.cuda_version, row.stream, row.symbol) for row in rows] == [
        (7000, "ptds", "cuMemcpyDtoH_v2_ptds")
    ]


def test_every_function_has_exactly_one_threshold(cuda: ir.Api) -> None:
    symbols = sorted(row.symbol for row in cuda.thresholds)

    assert symbols == sorted(function.name for function in cuda.functions)
    assert len(cuda.thresholds) == 723
    assert sum(row.stream != "" for row in cuda.thresholds) == 107


def function(name: str, *params: str) -> RawFunction:
    return RawFunction(
        name=name,
        header="cuda.h",
        returns="CUresult",
        params=tuple(Param(f"p{index}", spelling, "in") for index, spelling in enumerate(params)),
        deprecated=False,
    )


def test_kth_threshold_belongs_to_kth_variant() -> None:
    functions = {"cuX": function("cuX", "int"), "cuX_v2": function("cuX_v2", "size_t")}
    pointers = {"PFN_cuX_v9000": ("CUresult", "size_t"), "PFN_cuX_v2000": ("CUresult", "int")}

    rows = thresholds(pointers, functions, {})

    assert [(row.cuda_version, row.symbol) for row in rows] == [(2000, "cuX"), (9000, "cuX_v2")]


def test_alias_of_a_type_is_the_same_type() -> None:
    functions = {"cuX": function("cuX", "const A *")}

    rows = thresholds(
        {"PFN_cuX_v2000": ("CUresult", "const A_v1 *")}, functions, {"A": AliasType("A", "A_v1")}
    )

    assert len(rows) == 1


@pytest.mark.parametrize(
    ("pointers", "complaint"),
    [
        ({}, "0 PFN typedefs for 1 variants"),
        (
            {"PFN_cuX_v2000": ("CUresult", "int"), "PFN_cuX_v3000": ("CUresult", "int")},
            "2 PFN typedefs for 1 variants",
        ),
        ({"PFN_cuX_v2000": ("CUresult", "size_t")}, "does not have the prototype of cuX"),
        ({"PFN_cuX_v2000": ("CUresult", "int", "int")}, "does not have the prototype of cuX"),
        ({"PFN_cuX_new": ("CUresult", "int")}, "not understood"),
    ],
)
def test_generation_stops_where_the_rule_does_not_hold(
    pointers: dict[str, tuple[str, ...]], complaint: str
) -> None:
    with pytest.raises(HookgenError, match=complaint):
        thresholds(pointers, {"cuX": function("cuX", "int")}, {})


def test_generation_stops_where_a_driver_skips_a_variant() -> None:
    names = ("cuX", "cuX_v2", "cuX_v3")
    driver = Exports("999.1", "x86_64", frozenset({"cuX", "cuX_v3"}))

    with pytest.raises(HookgenError, match=r"999\.1 exports cuX with a gap"):
        check_prefixes(names, [driver])
