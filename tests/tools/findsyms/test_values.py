"""Values that came between two drivers: told as holes until somebody judged them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from findsyms import cli, values

API = Path(__file__).resolve().parents[3] / "lib" / "api"
DOMAIN = "CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN"


@pytest.fixture
def unjudged(tmp_path: Path) -> Path:
    """The model, in which nobody judged parts of GPUs."""
    api = Path(shutil.copytree(API, tmp_path / "api"))
    lines = (api / "judged.txt").read_text("utf-8").splitlines(keepends=True)
    (api / "judged.txt").write_text("".join(x for x in lines if DOMAIN not in x), "utf-8")
    return api


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A list that says no more than that a driver is of branch 615."""
    path = tmp_path / "libcuda-615.10.txt"
    shutil.copy(API / "symbols" / "libcuda-580.159.04.txt", path)
    return path


def test_values_are_those_of_the_headers_between(unjudged: Path) -> None:
    def names(old: str, new: str) -> set[str]:
        return {v.name for v in values.between(unjudged, "cuda", old, new)}

    assert DOMAIN in names("580.159.04", "615.10")
    assert DOMAIN in names("610", "999.1")  # no table knows it: all that headers have
    assert DOMAIN not in names("580.159.04", "610.1")
    assert names("615", "615") == set()
    assert names("", "615") == set()


def test_what_the_committed_tables_say_is_judged_whole() -> None:
    for library in ("cuda", "nvml"):
        assert [v for v in values.between(API, library, "525", "999") if not v.judged] == []


def test_an_unjudged_value_is_a_hole_in_every_format(
    unjudged: Path, newer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(newer), "--since", "580", "--api", str(unjudged), "--hooked", "model"]

    assert cli.main(words) & 16
    assert f"{DOMAIN}  6" in " ".join(capsys.readouterr().out.split("\n"))
    for suffix in ("json", "md", "sarif"):
        cli.main([*words, "-o", str(tmp_path / f"report.{suffix}")])
    (library,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["libraries"]
    (found,) = [v for v in library["values"] if v["name"] == DOMAIN]
    assert (found["value"], found["headers"], found["judged"]) == ("6", "13.4", None)
    assert f"`{DOMAIN}` | `6` | 13.4" in (tmp_path / "report.md").read_text("utf-8")
    assert "value-not-judged" in (tmp_path / "report.sarif").read_text("utf-8")


def test_judged_values_are_no_holes(newer: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not cli.main([str(newer), "--since", "580", "--hooked", "model"]) & 16

    assert "nobody judged" not in capsys.readouterr().out
