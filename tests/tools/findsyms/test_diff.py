"""Status, kind and holes of a symbol follow from the model, the built library and the rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from findsyms import api, diff
from findsyms.elf import Symbol
from findsyms.errors import Exit

ALL = (
    "cuDriverGetVersion",
    "cuEGLApiInit",
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuMemAlloc",
    "cuMemAlloc_v2",
    "cuMemcpyHtoD_v2",
    "cudbgApiInit",
)
SUBJECT = diff.Subject(
    library="cuda",
    soname="libcuda.so.1",
    asked="libcuda.so.1",
    path="/lib/libcuda.so.1",
    driver="550.163.01",
    machine="x86_64",
    build_id="",
    symbols=(
        *(Symbol(n, "func", "global") for n in ALL),
        Symbol("cudbgIpcFlag", "object", "global"),
    ),
    plt_self=("cuMemAlloc",),
    data_self=("cuMemAlloc_v2",),
    self_calls_known=True,
)
NOTHING_NEW = diff.Baseline("driver 550.163.01", frozenset([*ALL, "cudbgIpcFlag"]))
OURS = frozenset(name for name in ALL if not name.startswith("cudbg"))


def hooked(*strong: str, without: tuple[str, ...] = ()) -> diff.Hooked:
    weak = OURS - set(strong) - set(without)
    return diff.Hooked("libgpufence.so", frozenset(strong), weak)


@pytest.fixture
def known(api_folder: Path) -> api.Api:
    return api.load(api_folder)


def examine(
    known: api.Api,
    built: diff.Hooked | None,
    subject: diff.Subject = SUBJECT,
    baseline: diff.Baseline = NOTHING_NEW,
) -> diff.Report:
    return diff.examine(subject, known, built, baseline, {"cudbgApiInit": "340.108"})


def rows(report: diff.Report) -> dict[str, diff.Row]:
    return {row.name: row for row in report.rows}


def with_symbols(*names: str) -> diff.Subject:
    return replace(SUBJECT, symbols=tuple(Symbol(name, "func", "global") for name in names))


def test_every_status_has_its_sign(known: api.Api) -> None:
    built = hooked("cuMemAlloc_v2", "cuMemAlloc", without=("cuMemcpyHtoD_v2",))

    found = rows(examine(known, built))

    assert found["cuMemAlloc_v2"].status == diff.OVERRIDDEN
    assert found["cuLaunchKernel"].status == diff.PASSTHROUGH
    assert found["cuEGLApiInit"].status == diff.UNTYPED
    assert found["cudbgApiInit"].status == diff.DRIVER
    assert found["cudbgApiInit"].status_reason == "the debugger's"
    assert found["cudbgApiInit"].first_driver == "340.108"
    assert found["cudbgIpcFlag"].status == diff.DRIVER
    assert found["cuMemcpyHtoD_v2"].status == diff.UNCOVERED
    assert "build it again" in found["cuMemcpyHtoD_v2"].status_reason


def test_an_untyped_export_is_never_called_overridden(known: api.Api) -> None:
    # Its trampoline is assembler, and may well be a strong symbol.
    assert rows(examine(known, hooked("cuEGLApiInit")))["cuEGLApiInit"].status == diff.UNTYPED


def test_without_a_library_the_model_is_the_measure(known: api.Api) -> None:
    report = examine(known, None)

    assert {row.status for row in report.rows} == {diff.PASSTHROUGH, diff.UNTYPED, diff.DRIVER}
    assert report.holes == ()
    assert report.findings() == Exit.OK


def test_an_enforced_symbol_without_a_hook_is_a_hole(known: api.Api) -> None:
    report = examine(known, hooked())

    assert [row.name for row in report.holes] == [
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuMemAlloc",
        "cuMemAlloc_v2",
    ]
    assert report.findings() == Exit.UNHANDLED


def test_a_sibling_of_an_override_is_a_hole(known: api.Api) -> None:
    report = examine(known, hooked("cuMemAlloc_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz"))

    assert [(row.name, row.hole) for row in report.holes] == [
        ("cuMemAlloc", "its sibling cuMemAlloc_v2 is overridden")
    ]


def test_the_sibling_rule_holds_for_kinds_that_are_not_enforced(known: api.Api) -> None:
    subject = with_symbols("cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds")
    built = diff.Hooked("x", frozenset(["cuMemcpyHtoD_v2"]), frozenset(["cuMemcpyHtoD_v2_ptds"]))

    report = examine(known, built, subject)

    assert [row.name for row in report.holes] == ["cuMemcpyHtoD_v2_ptds"]


def test_a_complete_family_is_no_hole(known: api.Api) -> None:
    built = hooked("cuMemAlloc_v2", "cuMemAlloc", "cuLaunchKernel", "cuLaunchKernel_ptsz")

    report = examine(known, built)

    assert report.holes == ()
    assert report.findings() == Exit.OK


def test_an_excuse_closes_a_hole_and_is_shown(api_folder: Path) -> None:
    (api_folder / "passthrough.txt").write_text("cuMemAlloc* : nobody may\n")

    report = examine(api.load(api_folder), hooked("cuLaunchKernel", "cuLaunchKernel_ptsz"))

    assert report.holes == ()
    assert rows(report)["cuMemAlloc_v2"].status_reason == "nobody may"


@pytest.mark.parametrize(
    ("name", "kind", "because"),
    [
        ("cuMemAlloc_v7_ptsz", "alloc", "as cuMemAlloc"),
        ("cuMemAllocSideways", "alloc", "guessed from the name"),
        ("cuLaunchTriangle_ptsz", "launch", "guessed from the name"),
        ("cuSidewaysMemFree", "free", "guessed from the name"),
        ("nvmlDeviceGetMemoryInfo_v9", "query", "as nvmlDeviceGetMemoryInfo"),
        ("cuGetProcAddress_v3", "lookup", "guessed from the name"),
        ("cuBlueCtxCreate", "context", "guessed from the name"),
        ("cuMemGetAllocationGranularityOf", "unknown", "no header"),
        ("cuFlush", "unknown", "no header"),
    ],
)
def test_an_unknown_name_is_given_the_kind_it_suggests(
    known: api.Api, name: str, kind: str, because: str
) -> None:
    (row,) = examine(known, hooked(), with_symbols(name)).rows

    assert row.status == diff.UNCOVERED
    assert row.kind == kind
    assert row.kind_reason.startswith(because)
    assert bool(row.hole) == (kind in api.ENFORCED)


def test_an_unknown_enforced_name_is_a_hole_even_for_the_model(known: api.Api) -> None:
    report = examine(known, None, with_symbols("cuMemAllocSideways"))

    assert report.findings() & Exit.UNHANDLED


def test_new_and_gone_are_measured_against_the_baseline(known: api.Api) -> None:
    before = diff.Baseline("driver 1", NOTHING_NEW.names - {"cuMemAlloc_v2"} | {"cuLost"})
    built = hooked("cuMemAlloc_v2", "cuMemAlloc", "cuLaunchKernel", "cuLaunchKernel_ptsz")

    report = examine(known, built, baseline=before)

    assert [row.name for row in report.new] == ["cuMemAlloc_v2"]
    assert report.removed == ("cuLost",)
    assert report.findings() == Exit.ADDITIONS | Exit.REMOVALS


def test_an_uncovered_name_counts_as_an_addition(known: api.Api) -> None:
    subject = with_symbols("cuFlush")
    baseline = diff.Baseline("itself", frozenset(["cuFlush"]))

    assert examine(known, hooked(), subject, baseline).findings() == Exit.ADDITIONS


def test_self_calls_say_which_are_overridden(known: api.Api) -> None:
    report = examine(known, hooked("cuMemAlloc"))

    assert report.self_calls == (
        diff.SelfCall("cuMemAlloc", "plt", True),
        diff.SelfCall("cuMemAlloc_v2", "data", False),
    )


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("cuMemAlloc", "cuMemAlloc"),
        ("cuMemcpyDtoH_v2_ptds", "cuMemcpyDtoH"),
        ("cuStreamGetCaptureInfo_v3_ptsz", "cuStreamGetCaptureInfo"),
        ("cuStreamWaitValue32", "cuStreamWaitValue32"),
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", "nvmlDeviceGetUnrepairableMemoryFlag"),
    ],
)
def test_a_base_has_no_suffix(name: str, base: str) -> None:
    assert diff.base_of(name) == base
