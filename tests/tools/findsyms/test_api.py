"""The API folder and the shipped lists are read as docs/interfaces.md describes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from findsyms import api, history
from findsyms.errors import Exit, ToolError

from .conftest import REPOSITORY


@pytest.mark.parametrize(
    ("returns", "params", "text"),
    [
        ("CUresult", [], "CUresult f(void)"),
        ("const char *", [("nvmlReturn_t", "r")], "const char *f(nvmlReturn_t r)"),
        ("int", [("void * *", "p"), ("size_t", "n")], "int f(void * *p, size_t n)"),
        ("int", [("unsigned int [3]", "v")], "int f(unsigned int v[3])"),
        ("void", [("void (*)(void *)", "callback")], "void f(void (*callback)(void *))"),
    ],
)
def test_prototypes_are_c(returns: str, params: list[tuple[str, str]], text: str) -> None:
    listed = [{"type": kind, "name": name} for kind, name in params]

    assert api.prototype(returns, "f", listed) == text


def test_the_model_knows_functions_aliases_and_untyped(api_folder: Path) -> None:
    found = api.load(api_folder)

    assert found.known["cuMemAlloc_v2"] == api.Known(
        name="cuMemAlloc_v2",
        base="cuMemAlloc",
        prototype="CUresult cuMemAlloc_v2(size_t bytesize)",
        header="cuda.h 11.8",
        kind="alloc",
        reason="alloc of cuMemAlloc",
        first_driver="550.163.01",
    )
    assert found.known["cuTheForecast"].first_driver == ""
    assert found.known["cuEGLApiInit"].prototype == ""
    assert found.known["nvmlOldInit"].prototype == "nvmlReturn_t nvmlOldInit(void)"
    assert found.library_of["nvmlOldInit"] == "nvml"


def test_exceptions_cover_names_and_whole_families(api_folder: Path) -> None:
    (api_folder / "passthrough.txt").write_text("cuMemAlloc* : why\ncuLaunchKernel : because\n")

    found = api.load(api_folder)

    assert found.excuse("cuMemAlloc") == found.excuse("cuMemAlloc_v2") == "why"
    assert found.excuse("cuLaunchKernel") == "because"
    assert found.excuse("cuLaunchKernel_ptsz") == ""
    assert found.excuse("cuMemAllocHost") == ""
    assert found.left("cudbgApiInit") == "the debugger's"
    assert found.left("cuDebug") == ""


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("cuda.json", None, "no such file"),
        ("cuda.json", "{", "not an API model of schema 2"),
        ("cuda.json", "[]", "not an API model of schema 2"),
        ("nvml.json", json.dumps({"schema": 1}), "schema 1"),
        ("nvml.json", json.dumps({"schema": 2}), "functions"),
        ("passthrough.txt", "cuInit\n", "line 1 is not"),
        ("left-to-driver.txt", "# fine\n\ncudbg* :\n", "line 3 is not"),
    ],
)
def test_a_broken_api_folder_is_one_clear_error(
    api_folder: Path, name: str, content: str | None, why: str
) -> None:
    path = api_folder / name
    path.unlink()
    if content is not None:
        path.write_text(content)

    with pytest.raises(ToolError) as caught:
        api.load(api_folder)

    assert why in caught.value.refusal.line()
    assert caught.value.status == Exit.ERROR


SYMBOLS = REPOSITORY / "lib" / "api" / "symbols"


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("550", "550.163.01"),
        ("550.163", "550.163.01"),
        ("550.54", "550.54.15"),
        ("550.54.15", "550.54.15"),
        ("535", "535.274.02"),
        ("340", "340.108"),
    ],
)
def test_a_driver_is_chosen_by_version_or_branch(wanted: str, chosen: str) -> None:
    lists = history.shipped(SYMBOLS)

    assert history.choose(lists, "cuda", "x86_64", wanted).driver == chosen


@pytest.mark.parametrize("wanted", ["560", "55", "550.1", "5", "", "latest"])
def test_an_unknown_driver_is_refused_with_the_choices(wanted: str) -> None:
    with pytest.raises(ToolError) as caught:
        history.choose(history.shipped(SYMBOLS), "cuda", "x86_64", wanted)

    assert caught.value.status == Exit.USAGE
    assert "535.274.02, 550.54.15, 550.163.01, 580.159.04." in caught.value.refusal.fix


def test_lists_are_kept_apart_by_architecture() -> None:
    lists = history.shipped(SYMBOLS)

    arm = history.choose(lists, "cuda", "aarch64", "550")
    amd = history.choose(lists, "cuda", "x86_64", "550")

    assert arm.names() - amd.names() == {"cuEventCreateFromEGLSync"}
    with pytest.raises(ToolError, match="580"):
        history.choose(lists, "cuda", "aarch64", "580")


@pytest.mark.parametrize(
    ("driver", "baseline"),
    [
        ("550.163.01", "550.163.01"),
        ("550.999", "550.163.01"),
        ("560.35.03", "550.163.01"),
        ("595.1", "580.159.04"),
        ("304.1", "340.108"),
    ],
)
def test_the_nearest_baseline_is_the_newest_that_is_not_newer(driver: str, baseline: str) -> None:
    lists = history.shipped(SYMBOLS)

    found = history.nearest(lists, "cuda", "x86_64", driver, frozenset())

    assert found is not None
    assert found.driver == baseline


def test_without_a_version_the_most_similar_list_is_the_baseline() -> None:
    lists = history.shipped(SYMBOLS)
    names = history.choose(lists, "nvml", "x86_64", "525").names() | {"nvmlNew"}

    found = history.nearest(lists, "nvml", "x86_64", "", names)

    assert found is not None
    assert found.driver == "525.147.05"
    assert history.nearest((), "nvml", "x86_64", "", names) is None


def test_shipped_lists_tell_functions_from_data() -> None:
    # Counts of functions and data as read from the real drivers (facts of the drivers, not of us).
    for driver, functions, data in (("470.256.02", 532, 18), ("580.159.04", 682, 25)):
        names = history.choose(history.shipped(SYMBOLS), "cuda", "x86_64", driver).names()

        assert sum(history.is_data(name) for name in names) == data
        assert len(names) == functions + data
