"""lookup.h finds every name and nothing else, and follows cuGetProcAddress's version rule."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from gen import lookup_tables, model
from hypothesis import given
from hypothesis import strategies as st

from .conftest import REPO, Workshop


@pytest.fixture(scope="module")
def real() -> model.Model:
    return model.load(REPO / "lib" / "api")


@pytest.fixture(scope="module")
def answering(
    tmp_path_factory: pytest.TempPathFactory, compiler: str, real_texts: dict[str, str]
) -> Path:
    """A program around lookup.h; a driver is said to have what its list has."""
    workshop = Workshop(tmp_path_factory.mktemp("lookup"), compiler)
    folder = workshop.write("gen", real_texts)
    return workshop.program(folder, "lookup_answers.cpp")


def ask(program: Path, questions: list[str]) -> list[str]:
    text = "".join(f"{question}\n" for question in questions)
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_every_symbol_is_found_by_its_exact_name(answering: Path, real: model.Model) -> None:
    names = [symbol.name for symbol in real.symbols]

    assert ask(answering, names) == names


def test_near_misses_and_foreign_names_are_not_found(answering: Path, real: model.Model) -> None:
    names = [symbol.name for symbol in real.symbols]
    known = set(names)
    near = [n[:-1] for n in names] + [n + "_" for n in names] + [n.swapcase() for n in names]
    foreign = ["curl_easy_init", "cublasCreate_v2", "cudnnCreate", "cupsDoRequest", "nvmlX", "cu"]
    foreign += ["n", "c", "dlsym", "cu" * 100, "cudbgMain", "nvrtcVersion", "cuMemAlloc_v3"]
    questions = [name for name in near + foreign if name not in known]

    assert set(ask(answering, questions)) == {"-"}


# Position of a driver later than every listed one; the last also has the forecast names.
NEWEST_LISTED, FORECAST = 254, 255


# Source: thresholds measured on drivers 470 to 580.
@pytest.mark.parametrize(
    ("base", "versions"),
    [
        ("cuMemAlloc", {1999: "too low", 2000: "cuMemAlloc", 3019: "cuMemAlloc"}),
        ("cuMemAlloc", {3020: "cuMemAlloc_v2", 99999: "cuMemAlloc_v2"}),
        ("cuCtxCreate", {2000: "cuCtxCreate", 3020: "cuCtxCreate_v2"}),
        ("cuCtxCreate", {11040: "cuCtxCreate_v3", 12050: "cuCtxCreate_v4"}),
        ("cuStreamGetCaptureInfo", {10010: "cuStreamGetCaptureInfo"}),
        ("cuStreamGetCaptureInfo", {11030: "cuStreamGetCaptureInfo_v2"}),
        ("cuStreamGetCaptureInfo", {12030: "cuStreamGetCaptureInfo_v3"}),
        ("cuGetProcAddress", {11029: "too low", 11030: "cuGetProcAddress"}),
        ("cuGetProcAddress", {12000: "cuGetProcAddress_v2"}),
        ("cuCtxSynchronize", {2000: "cuCtxSynchronize", 13000: "cuCtxSynchronize_v2"}),
        ("cuEventElapsedTime", {2000: "cuEventElapsedTime", 12080: "cuEventElapsedTime_v2"}),
        ("cuMemAlloc_v2", {99999: "unknown"}),
        ("cuMemAllocAsync_ptsz", {99999: "unknown"}),
        ("nvmlInit", {99999: "unknown"}),
    ],
)
def test_thresholds_are_those_of_real_drivers(
    answering: Path, base: str, versions: dict[int, str]
) -> None:
    answers = ask(answering, [f"{base} {version} 0 {NEWEST_LISTED}" for version in versions])

    assert answers == list(versions.values())


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("cuMemcpyDtoH 7000 1 254", "cuMemcpyDtoH_v2_ptds"),
        ("cuMemcpyDtoH 7000 0 254", "cuMemcpyDtoH_v2"),
        ("cuLaunchKernel 6050 1 254", "too low"),  # with per-thread variants only they count
        ("cuLaunchKernel 6050 0 254", "cuLaunchKernel"),
        ("cuMemAlloc 99999 1 254", "cuMemAlloc_v2"),  # no per-thread variant: the flag is ignored
        ("cuGetProcAddress 99999 0 OLD", "cuGetProcAddress"),  # 470 has no _v2
        ("cuCtxCreate 99999 0 OLD", "cuCtxCreate_v3"),
        ("cuGetProcAddress 0 0 254", "too low"),
    ],
)
def test_flags_and_old_drivers_select_as_measured(
    answering: Path, real: model.Model, question: str, answer: str
) -> None:
    driver_470 = str(real.drivers.index("470.256.02"))

    assert ask(answering, [question.replace("OLD", driver_470)]) == [answer]


def test_every_threshold_selects_its_own_symbol(answering: Path) -> None:
    rows = json.loads((REPO / "lib" / "api" / "cuda.json").read_text(encoding="utf-8"))[
        "thresholds"
    ]
    questions = [
        f"{row['base']} {row['cuda_version']} {int(bool(row['stream']))} {FORECAST}" for row in rows
    ]

    assert ask(answering, questions) == [row["symbol"] for row in rows]


@given(st.lists(st.text("abcuvnml_X012", min_size=1, max_size=30), min_size=1, unique=True))
def test_any_set_of_names_gets_a_perfect_hash(names: list[str]) -> None:
    table = lookup_tables.build(names)

    assert [table.find(name, names) for name in names] == list(range(len(names)))
    assert table.find("another", names) == lookup_tables.EMPTY


def test_equal_names_are_refused() -> None:
    with pytest.raises(ValueError, match="equal"):
        lookup_tables.build(["same", "same"])
