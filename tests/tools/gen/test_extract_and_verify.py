"""Extract and verify on the pinned headers: the committed model, and every lie to be caught."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gen import cli, codec, extract, ir, join, probe, surface, verify
from gen.errors import HookgenError
from gen.facts import HeaderSet

REPO = Path(__file__).resolve().parents[3]
API = REPO / "lib" / "api"
Sets = tuple[HeaderSet, ...]


@pytest.fixture
def api_copy(tmp_path: Path, pinned: Sets) -> Path:
    """The model folder, to be spoilt."""
    return Path(shutil.copytree(API, tmp_path / "api"))


def spoil(api: Path, library: str, old: str, new: str) -> None:
    """Edit a model file by hand, once."""
    path = api / f"{library}.json"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, cuda: ir.Api, nvml: ir.Api) -> None:
    """Spares verify the extraction, which `test_verify_finds_nothing` shows to give just this."""
    texts = {"cuda.json": codec.dumps(cuda), "nvml.json": codec.dumps(nvml)}
    for file in map(surface.file_of, join.LIBRARIES):
        texts[file] = (API / file).read_text(encoding="utf-8")
    monkeypatch.setattr(extract, "extract", lambda *_: texts)


@pytest.mark.parametrize("library", join.LIBRARIES)
def test_compiler_agrees_with_the_committed_model(library: str, pinned: Sets) -> None:
    compiler = probe.find_compiler()
    if not compiler:
        pytest.skip("no C compiler: neither CC, cc, gcc nor clang")

    assert probe.complaints(codec.load(API / f"{library}.json"), pinned[-1], compiler) == []


def test_verify_finds_nothing(pinned: Sets, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify"]) == 0

    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("known")
def test_hand_edit_of_the_model_is_shown_as_a_diff(
    api_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(api_copy, "nvml", '"kind": "query"', '"kind": "plain"')

    status = cli.main(["verify", "--api", str(api_copy)])

    out = capsys.readouterr().out
    assert status == 5
    assert '-      "kind": "plain",' in out.splitlines()
    assert '+      "kind": "query",' in out.splitlines()
    assert len(out.splitlines()) < 20


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("text", ["{", '{"schema": 2}'])
def test_damaged_model_is_a_difference_not_a_traceback(
    api_copy: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (api_copy / "nvml.json").write_text(text, encoding="utf-8")

    assert cli.main(["verify", "--api", str(api_copy)]) == 5

    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.usefixtures("known")
def test_spoilt_golden_file_is_shown(
    tmp_path: Path, pinned: Sets, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = Path(shutil.copytree(REPO / "tests" / "golden", tmp_path / "golden"))
    listing = golden / "signatures.txt"
    text = listing.read_text(encoding="utf-8")
    listing.write_text(text.replace("cuInit ", "cuInot ", 1), encoding="utf-8")
    (golden / "rendered" / "left_over.h").write_text("left over\n", encoding="utf-8")

    status = cli.main(["verify", "--golden", str(golden)])

    out = capsys.readouterr().out
    assert status == 5
    assert "committed/signatures.txt" in out
    assert "committed/left_over.h" in out


Change = Callable[[ir.Api], ir.Api]


def with_param(name: str, index: int, spelling: str) -> Change:
    def change(api: ir.Api) -> ir.Api:
        functions = [
            replace(
                item,
                params=tuple(
                    replace(param, type=spelling) if position == index else param
                    for position, param in enumerate(item.params)
                ),
            )
            if item.name == name
            else item
            for item in api.functions
        ]
        return replace(api, functions=tuple(functions))

    return change


def with_field(record: str, index: int, **changes: int | str) -> Change:
    def change(api: ir.Api) -> ir.Api:
        types = []
        for decl in api.types:
            if isinstance(decl, ir.RecordType) and decl.name == record:
                fields = list(decl.fields)
                fields[index] = replace(fields[index], **changes)  # type: ignore[arg-type]
                decl = replace(decl, fields=tuple(fields))
            types.append(decl)
        return replace(api, types=tuple(types))

    return change


LIES: dict[str, Change] = {
    "a size_t parsed as int": with_param("cuMemAlloc_v2", 1, "int"),
    "a lost const": with_param("cuMemCreate", 2, "CUmemAllocationProp *"),
    "a swapped handle": with_param("cuCtxSetCurrent", 0, "CUstream"),
    "a parameter too few": lambda api: replace(
        api,
        functions=tuple(
            replace(item, params=item.params[:-1]) if item.name == "cuLaunchKernel" else item
            for item in api.functions
        ),
    ),
    "a wrong return type": lambda api: replace(
        api,
        functions=tuple(
            replace(item, returns="void") if item.name == "cuInit" else item
            for item in api.functions
        ),
    ),
    "a moved member": with_field("CUmemAllocationProp_v1", 2, offset=16),
    "a member of another type": with_field("CUmemAllocationProp_v1", 0, type="float"),
    "a wrong constant": lambda api: replace(
        api, constants=(*api.constants, ir.Constant("CU_IPC_HANDLE_SIZE", 63))
    ),
    "an alias of another type": lambda api: replace(
        api, types=(*api.types, ir.AliasType("CUdeviceptr", "unsigned int"))
    ),
    "a record of another size": lambda api: replace(
        api, types=(*api.types, ir.RecordType("CUuuid", False, 15, 1, (), ()))
    ),
    "a signed enum": lambda api: replace(
        api, types=(*api.types, ir.EnumType("CUresult", "int", ()))
    ),
}


@pytest.mark.parametrize("lie", sorted(LIES))
def test_compiler_catches(lie: str, cuda: ir.Api, pinned: Sets) -> None:
    compiler = probe.find_compiler()
    if not compiler:
        pytest.skip("no C compiler: neither CC, cc, gcc nor clang")

    assert probe.complaints(LIES[lie](cuda), pinned[-1], compiler)


def test_without_a_compiler_verify_says_that_it_did_not_probe(
    cuda: ir.Api,
    pinned: Sets,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)

    assert list(verify.check_headers([cuda], pinned[-1])) == []

    assert "no C compiler" in capsys.readouterr().err


def test_extract_depends_on_nothing_but_its_inputs(tmp_path: Path, pinned: Sets) -> None:
    # Another hash seed reorders sets; another folder may leak.
    command = [sys.executable, "-m", "gen", "extract", "--out", str(tmp_path)]
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(REPO / "tools")}

    subprocess.run(command, env=env, check=True, cwd=tmp_path, capture_output=True)

    for library in join.LIBRARIES:
        name = f"{library}.json"
        assert (tmp_path / name).read_bytes() == (API / name).read_bytes(), name


def test_installed_toolkit_gives_the_same_functions_without_history(
    tmp_path: Path, pinned: Sets, capsys: pytest.CaptureFixture[str]
) -> None:
    include = tmp_path / "include"
    include.mkdir()
    for name, text in pinned[-1].files.items():
        (include / name).write_bytes(text)

    status = cli.main(["extract", "--cuda-include", str(include), "--out", str(tmp_path)])

    assert status == 0
    assert "no wheel is recorded" in capsys.readouterr().err
    ours, committed = codec.load(tmp_path / "cuda.json"), codec.load(API / "cuda.json")
    assert ours.sources == ()
    assert {item.headers for item in ours.functions} == {ir.Span("13.5", "13.5")}
    assert [replace(item, headers=ir.Span("", "")) for item in ours.functions] == [
        replace(item, headers=ir.Span("", "")) for item in committed.functions
    ]
    assert ours.thresholds == committed.thresholds


@pytest.mark.parametrize(
    ("key", "name", "complaint"),
    [
        ("records", "CUnoSuchRecord", "'CUnoSuchRecord'"),
        ("records", "CUmemLocation", "'CUmemLocation'"),  # another name of CUmemLocation_v1
        ("records", "CUresult", "'CUresult'"),
        ("enums", "CUnoSuchEnum", "'CUnoSuchEnum'"),
        ("macros", "CU_NO_SUCH_MACRO", "'CU_NO_SUCH_MACRO'"),
    ],
)
def test_unknown_touched_name_writes_nothing(
    api_copy: Path, key: str, name: str, complaint: str, pinned: Sets
) -> None:
    path = api_copy / "touched.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw[key].append(name)
    path.write_text(json.dumps(raw), encoding="utf-8")

    with pytest.raises(HookgenError, match=f"touched.json names {complaint}"):
        extract.extract(api_copy, pinned[-1:], [])


def test_touched_name_of_no_library_is_refused(api_copy: Path, pinned: Sets) -> None:
    path = api_copy / "touched.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["records"].append("EGLint")
    path.write_text(json.dumps(raw), encoding="utf-8")

    with pytest.raises(HookgenError, match=r"'EGLint' in touched\.json belongs to no library"):
        extract.extract(api_copy, pinned[-1:], [])


def test_record_in_registers_needs_its_fields(api_copy: Path, pinned: Sets) -> None:
    # CUmemLocation travels by value in 8 bytes: opaque, the compiler could not know how.
    path = api_copy / "touched.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["records"].remove("CUmemLocation_v1")
    path.write_text(json.dumps(raw), encoding="utf-8")

    with pytest.raises(HookgenError, match=r"CUmemLocation_v1 \(8 bytes\) is passed by value"):
        extract.extract(api_copy, pinned[-1:], [])
