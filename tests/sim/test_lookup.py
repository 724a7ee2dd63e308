"""Lookups answer as the simulated driver's generation does, dlsym and cuGetProcAddress alike."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from tests.support.machine import REPO, Finished, Sim

from . import lookup_rule
from .lookup_rule import API, Answer, Query

DRIVERS = Path(os.environ.get("GPUFENCE_TEST_DRIVERS", REPO / ".drivers"))
REAL_BRANCHES = ["470", "525", "535", "550"]
CUDA_VERSIONS = {
    "340": 6050,
    "390": 9010,
    "418": 10010,
    "450": 11000,
    "460": 11020,
    "470": 11040,
    "525": 12000,
    "535": 12020,
    "550": 12040,
    "580": 13000,
}

# Exports of older drivers that 580, on which the file on disk is modelled, lost again. The file of
# the headers has those of 460 and later; nobody has those of 450.
LOST_BEFORE_580 = {
    "460": {"nvmlRetry_NvRmControl"},
    "470": {"nvmlRetry_NvRmControl"},
    "525": {
        "nvmlDeviceCcuGetStreamState",
        "nvmlDeviceCcuSetStreamState",
        "nvmlRetry_NvRmControl",
    },
}


@pytest.fixture(scope="session")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with every name worth asking cuGetProcAddress for."""
    path = tmp_path_factory.mktemp("lookup") / "names.txt"
    path.write_text("".join(f"{name}\n" for name in lookup_rule.names_to_ask()), encoding="ascii")
    return path


def table(sim: Sim, branch: str, names: Path) -> Finished:
    done = sim.with_env(DRIVER=branch).run("lookup_table", names)
    assert done.returncode == 0, done.stderr
    return done


def ask(sim: Sim, branch: str, tmp_path: Path, name: str) -> dict[tuple[int, int, int], Answer]:
    """Answers for one name by (entry, flags, version), only where they change."""
    asked = tmp_path / "one"
    asked.write_text(f"{name}\n", encoding="ascii")
    rows = lookup_rule.answers(table(sim, branch, asked).stdout)
    return {(query.entry, query.flags, query.version): answer for query, answer in rows}


@pytest.mark.parametrize("branch", REAL_BRANCHES)
def test_every_lookup_is_answered_as_by_the_real_driver(sim: Sim, branch: str, names: Path) -> None:
    real = DRIVERS / branch / "libcuda.so.1"
    if not real.exists():
        pytest.skip(f"no real driver at {real}: run ci/fetch-drivers .drivers")

    theirs = sim.run("lookup_table", names, real)
    ours = table(sim, branch, names)

    assert theirs.returncode == 0, theirs.stderr
    assert len(theirs.stdout.splitlines()) > 4000
    assert ours.stdout == theirs.stdout


@pytest.mark.parametrize("latest", [False, True], ids=["file of 580", "file of the headers"])
@pytest.mark.parametrize("branch", CUDA_VERSIONS)
def test_every_lookup_follows_the_rule_of_the_headers(
    sim: Sim, branch: str, latest: bool, names: Path
) -> None:
    sim = Sim(sim.build, sim.state, sim.env, latest)
    exports = lookup_rule.exports_of(lookup_rule.newest_listed(branch))
    rule = lookup_rule.rule_for(exports, CUDA_VERSIONS[branch])

    done = sim.with_env(DRIVER=branch).run("lookup_table", names)

    if CUDA_VERSIONS[branch] < 11030:
        assert done.stdout == f"driver\t{CUDA_VERSIONS[branch]}\n"  # no entry point at all
        return
    wrong = [
        (query, answer, rule.answer(query))
        for query, answer in lookup_rule.answers(done.stdout)
        if answer != rule.answer(query)
    ]
    assert wrong == []


def test_a_driver_of_the_newest_headers_has_every_variant(sim: Sim, names: Path) -> None:
    model = json.loads((API / "cuda.json").read_text(encoding="utf-8"))
    everything = frozenset(
        function["name"]
        for function in model["functions"]
        if not function["architectures"] or platform.machine() in function["architectures"]
    )
    newest = Sim(sim.build, sim.state, sim.env, latest=True)

    done = newest.run("lookup_table", names)

    rule = lookup_rule.rule_for(everything, 13050)
    rows = list(lookup_rule.answers(done.stdout))
    assert {answer.symbol for _, answer in rows} - {"-", "null"} == everything
    assert [(q, a) for q, a in rows if a != rule.answer(q)] == []


@pytest.mark.parametrize("branch", ["470", "550", "580"])
def test_the_entry_point_decides_how_a_miss_is_told(sim: Sim, branch: str, tmp_path: Path) -> None:
    answers = ask(sim, branch, tmp_path, "cuMemAlloc_v2")

    assert answers[1, 0, 0] == Answer(500, "-", "-")
    assert answers.get((2, 0, 0)) == (None if branch == "470" else Answer(0, "1", "null"))


def test_per_thread_callers_get_per_thread_variants_only(sim: Sim, tmp_path: Path) -> None:
    answers = ask(sim, "550", tmp_path, "cuMemcpyDtoH")

    assert answers[2, 0, 2000] == Answer(0, "0", "cuMemcpyDtoH")
    assert answers[2, 0, 3020] == Answer(0, "0", "cuMemcpyDtoH_v2")
    assert answers[2, 2, 0] == Answer(0, "2", "null")
    assert (2, 2, 6999) not in answers  # still too low
    assert answers[2, 2, 7000] == Answer(0, "0", "cuMemcpyDtoH_v2_ptds")


def test_asked_for_itself_the_version_decides(sim: Sim, tmp_path: Path) -> None:
    modern = ask(sim, "535", tmp_path, "cuGetProcAddress")
    old = ask(sim, "470", tmp_path, "cuGetProcAddress")

    for entry, status in ((1, "-"), (2, "0")):
        assert modern[entry, 0, 11030] == Answer(0, status, "cuGetProcAddress")
        assert modern[entry, 0, 12000] == Answer(0, status, "cuGetProcAddress_v2")
    assert old[1, 0, 11030] == Answer(0, "-", "cuGetProcAddress")
    assert (1, 0, 12000) not in old


def test_driver_580_refuses_versions_above_its_own(sim: Sim, tmp_path: Path) -> None:
    strict = ask(sim, "580", tmp_path, "cuMemAlloc")
    lenient = ask(sim, "550", tmp_path, "cuMemAlloc")

    for entry in (1, 2):
        assert strict[entry, 0, 13001] == lookup_rule.REFUSED
        assert (entry, 0, 13001) not in lenient


def test_negative_versions_are_the_newest_to_580_too(sim: Sim, tmp_path: Path) -> None:
    answers = ask(sim, "580", tmp_path, "cuMemAlloc")

    for entry, status in ((1, "-"), (2, "0")):
        # Asked after the versions that are refused, and the answer that -1 gets as well.
        assert answers[entry, 0, -(1 << 31)] == Answer(0, status, "cuMemAlloc_v2")
        assert (entry, 0, -1) not in answers


@pytest.mark.parametrize("library", ["libcuda", "libnvidia-ml"])
@pytest.mark.parametrize("latest", [False, True], ids=["file of 580", "file of the headers"])
@pytest.mark.parametrize("branch", CUDA_VERSIONS)
def test_the_loader_finds_exactly_the_names_of_the_driver(
    sim: Sim, branch: str, latest: bool, library: str, tmp_path: Path
) -> None:
    sim = Sim(sim.build, sim.state, sim.env, latest)
    listed = lookup_rule.exports_of(lookup_rule.newest_listed(branch), library)
    lost = set() if latest else LOST_BEFORE_580.get(branch, set())
    expected = {name for name in listed - lost if not name.startswith("nscq_")}
    asked = tmp_path / "names"
    asked.write_text("\n".join(sorted(every_name())), encoding="ascii")

    done = sim.with_env(DRIVER=branch).run("lookup_names", asked, f"{library}.so.1")

    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == expected


def every_name() -> set[str]:
    """All names that any list or header knows."""
    names: set[str] = set()
    for listing in (API / "symbols").iterdir():
        names |= set(listing.read_text(encoding="utf-8").split())
    for library in ("cuda", "nvml"):
        model = json.loads((API / f"{library}.json").read_text(encoding="utf-8"))
        names |= {function["name"] for function in model["functions"]}
    return names


def test_queries_know_that_versions_are_unsigned() -> None:
    rule = lookup_rule.rule_for(frozenset({"cuMemAlloc", "cuMemAlloc_v2"}), 12040)

    newest = rule.answer(Query(2, "cuMemAlloc", 0, -1))

    assert newest == Answer(0, "0", "cuMemAlloc_v2")
