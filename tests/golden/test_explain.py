"""`hookgen explain`: what a person needs to write an override, and a stub that compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from gen import cli, explain, hooks, model

from .conftest import API, REPO, Workshop


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["explain", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_one_symbol_is_explained_in_full(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = explained(capsys, "cuGadgetOpen_v2", "--api", str(API), "--hooks", str(tmp_path))

    assert lines == [
        "cuGadgetOpen_v2, in libcuda.so.1",
        "",
        "  CUresult cuGadgetOpen_v2(CUgadget* gadget, size_t bytes, CUshape shape, "
        "unsigned long long flags);",
        "",
        "kind        alloc, enforced: takes memory",
        "declared    cuda.h, from 11.8",
        "            last in the headers of 13.5",
        "parameters  gadget out, bytes in, shape in, flags in",
        "drivers     from 550.163.01 (aarch64, x86_64)",
        'lookup      cuGetProcAddress("cuGadgetOpen") from 12040',
        "overridden  no, passed through",
        "",
        "Variants, and how they differ from it:",
        "  cuGadgetOpen (from 470.256.02)",
        "    bytes is unsigned int instead of size_t",
        "    drops CUshape shape",
        "    drops unsigned long long flags",
        "  cuGadgetOpen_v3 (none yet)",
        "    adds const CUplan* plan",
        "    drops size_t bytes",
        "    drops CUshape shape",
        "    drops unsigned long long flags",
        "",
        "An override, for lib/src/hooks/<family>/:",
        "",
        '#include "real.h"',
        "",
        'extern "C" CUresult cuGadgetOpen_v2(CUgadget* gadget, size_t bytes, CUshape shape,',
        "                                    unsigned long long flags) {",
        "  return real::cuGadgetOpen_v2(gadget, bytes, shape, flags);",
        "}",
    ]


@pytest.mark.parametrize(
    ("symbol", "line"),
    [
        ("cuGadgetFill", "    uses the per-thread default stream"),
        ("cuGadgetFill_ptsz", "    uses the legacy default stream"),
        ("cuGadgetRelease", "declared    cuda.h, from 11.8, as a macro for cuGadgetFree"),
        ("cuGadgetRelease", "drivers     470.256.02 to 550.163.01 (aarch64, x86_64)"),
        ("cuGadgetName", "            deprecated there"),
        ("cuGadgetVersion", "parameters  none"),
        ("cuGadgetOpen_v3", "drivers     none yet"),
        ("nvmlGaugeInit", "nvmlGaugeInit_v2, in libnvidia-ml.so.1"),
        (
            "cuGadgetPrivate",
            "It has no prototype, so it is forwarded by a trampoline and cannot be overridden.",
        ),
    ],
)
def test_answer_holds(symbol: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in explained(capsys, symbol, "--api", str(API))


def test_committed_hooks_are_found_beside_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    lines = explained(capsys, "cuGetProcAddress_v2")

    assert any(line.startswith("overridden  in hooks/lookup/proc_address.cpp") for line in lines)


def test_hook_in_the_tree_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "gadget.cpp").write_text(
        '#include "real.h"\n\nextern "C" CUresult cuGadgetFree(void* p) {\n'
        "  return real::cuGadgetFree(p);\n}\n"
    )

    lines = explained(capsys, "cuGadgetFree", "--api", str(API), "--hooks", str(tmp_path))

    assert "overridden  in hooks/gadget.cpp, line 3" in lines


@pytest.mark.parametrize(
    ("symbol", "line"),
    [
        (
            "cuGadgetFill_ptsz",
            "rendered into stream_order.cpp: LeaveKernels(PerThread(hStream)); "
            "const CorePut put(PerThread(hStream))",
        ),
        ("cuGadgetOnDone", "no, on purpose: remembers a function, and puts nothing into a stream"),
    ],
)
def test_rendered_hooks_and_why_there_is_none_are_told(
    symbol: str, line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = explained(capsys, symbol, "--api", str(API), "--hooks", str(tmp_path))

    assert f"overridden  {line}" in lines


def test_who_overrides_a_rendered_hook_learns_that_it_must_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = explained(capsys, "cuGadgetCopy", "--api", str(API))

    assert "(with a line `cuGadgetCopy : by hand, REASON` in lib/api/stream-order.txt)" in lines


def test_without_hooks_nobody_claims_that_there_are_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere")

    lines = explained(capsys, "cuGadgetFree", "--api", str(API), "--hooks", nowhere)

    assert "overridden  unknown: name the folder of the hooks with --hooks" in lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("CUresult cuX(int a) {", 1),
        ('extern "C" CUresult\ncuX(int a,\n    void (*b)(int)) {', 2),
        ("CUresult cuX(int a)\n{", 1),
        ("CUresult cuX(int a);", 0),
        ("CUresult cuY() { return cuX(1); }", 0),
        ("CUresult cuY() { if (real::cuX(1)) { return 1; } }", 0),
        ("CUresult cuX_v2(int a) {", 0),
        ("CUresult mycuX(int a) {", 0),
        ("// CUresult cuX(int a) {", 0),
        ("/* CUresult cuX(int a) { */", 0),
        ('Log("CUresult cuX(int a) {");', 0),
        ("if (ok) cuX(1); else { }", 0),
    ],
)
def test_definitions_are_told_from_calls(text: str, line: int) -> None:
    assert hooks.definition_line(text, "cuX") == line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cuX", "one name"),
        ("cuY", "a family"),
        ("cuY_v2_ptsz", "a family"),
        ("cuYes_v2", ""),
        ("cuZ", ""),
    ],
)
def test_reason_of_a_deliberate_passthrough_is_told(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "passthrough.txt").write_text("# why\ncuX : one name\ncuY* : a family\n")

    assert hooks.passthrough_reason(tmp_path, name) == reason


def test_typo_gets_a_suggestion_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["explain", "cuMemAloc_v2"])

    said = capsys.readouterr()
    assert status == 1
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Did you mean cuMemAlloc_v2" in said.err


def test_missing_symbol_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["explain"])

    assert stopped.value.code == 2


def test_every_override_stub_compiles(workshop: Workshop, real_texts: dict[str, str]) -> None:
    symbols = [s for s in model.load(REPO / "lib" / "api").symbols if s.typed]
    folder = workshop.write("gen", real_texts)
    stubs = ("\n".join(explain.override_stub(symbol)) for symbol in symbols)
    (folder / "hooks.cpp").write_text("\n\n".join(stubs), encoding="utf-8")

    workshop.compile(folder, "hooks.cpp")

    assert len(symbols) > 1150
