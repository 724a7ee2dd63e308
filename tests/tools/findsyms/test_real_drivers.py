"""The real thing: drivers as NVIDIA ships them, and the model as it is committed.

Needs no GPU. Files come from `ci/fetch-drivers`; GPUFENCE_TEST_DRIVERS names another folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from findsyms import api, diff, history, reader, session, targets, vet

from .conftest import REPOSITORY

API = REPOSITORY / "lib" / "api"
FindDriver = Callable[[str, str], Path]

# Branch, library, functions, data, exports called through the PLT, and through data.
DRIVERS = [
    ("470", "libcuda", 532, 18, 0, 0),
    ("525", "libcuda", 583, 20, 0, 0),
    ("535", "libcuda", 600, 20, 0, 0),
    ("550", "libcuda", 636, 20, 0, 0),
    ("470", "libnvidia-ml", 255, 0, 17, 10),
    ("525", "libnvidia-ml", 312, 0, 30, 10),
    ("535", "libnvidia-ml", 332, 0, 30, 10),
    ("550", "libnvidia-ml", 350, 0, 28, 10),
]


def examine(*libraries: str, **changes: object) -> tuple[diff.Report, ...]:
    options = {
        "libraries": libraries,
        "hooked": session.MODEL,
        "since": "",
        "against": (),
        "driver": "",
        "places": targets.Places("x86_64", {}),
        "api_folder": API,
        "installed": None,
    }
    outcome = session.run(session.Options(**(options | changes)))  # type: ignore[arg-type]
    assert outcome.refusals == ()
    return outcome.reports


@pytest.mark.parametrize(("branch", "library", "functions", "data", "plt", "by_data"), DRIVERS)
def test_a_real_driver_is_read_and_covered_whole(
    driver_library: FindDriver,
    branch: str,
    library: str,
    functions: int,
    data: int,
    plt: int,
    by_data: int,
) -> None:
    path = driver_library(branch, library)

    (report,) = examine(str(path))

    assert report.subject.driver.startswith(f"{branch}.")
    assert (len(report.functions), len(report.data)) == (functions, data)
    assert report.with_status(diff.UNCOVERED) == ()
    through = [call.through for call in report.self_calls]
    assert (through.count("plt"), through.count("data")) == (plt, by_data)
    assert all(row.first_driver for row in report.rows)


@pytest.mark.parametrize(("branch", "library"), [row[:2] for row in DRIVERS])
def test_a_real_driver_exports_its_shipped_list(
    driver_library: FindDriver, branch: str, library: str
) -> None:
    path = driver_library(branch, library)
    lists = history.shipped(API / "symbols")

    facts = reader.read_all([reader.Request(path, vet.vet(path))])[0].facts()

    key = "cuda" if library == "libcuda" else "nvml"
    driver = path.resolve().name.partition(".so.")[2]
    assert {s.name for s in facts.symbols} == history.choose(lists, key, "x86_64", driver).names()
    assert {s.name for s in facts.symbols if s.type == "object"} == {
        s.name for s in facts.symbols if history.is_data(s.name)
    }


def test_from_535_to_550(driver_library: FindDriver) -> None:
    paths = [str(driver_library("550", name)) for name in ("libcuda", "libnvidia-ml")]
    old = tuple(str(driver_library("535", name)) for name in ("libcuda", "libnvidia-ml"))

    by_list = examine(*paths, since="535")
    by_file = examine(*paths, against=old)

    assert [len(report.new) for report in by_list] == [36, 18]
    assert [len(report.removed) for report in by_list] == [0, 0]
    assert [report.new for report in by_list] == [report.new for report in by_file]


PROMISED = [e for e in history.shipped(API / "symbols") if int(e.driver.partition(".")[0]) >= 470]


@pytest.mark.parametrize("entry", PROMISED, ids=lambda e: e.path.stem)
def test_every_listed_driver_from_470_is_covered_whole(entry: history.DriverList) -> None:
    (report,) = examine(str(entry.path))

    assert report.with_status(diff.UNCOVERED) == ()


def test_the_committed_exceptions_name_something() -> None:
    known = api.load(API)

    for rule in known.passed_through:
        names = [name for name, entry in known.known.items() if rule.covers(name, entry.base)]
        assert names, rule.pattern
        assert any(known.known[name].kind in api.ENFORCED for name in names), rule.pattern
