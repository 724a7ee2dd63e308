"""ci/systems: what its guest tells under the library is as promised, and without it is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import guest, judging, systems
from .conftest import BUILD

GOOD = {
    "begun": [0, 0, 0],
    "total_mib": judging.LIMIT_MIB,
    "granted_mib": judging.LIMIT_MIB - 500,
    "refused": judging.OUT_OF_MEMORY,
    "nvml_mib": judging.LIMIT_MIB,
}


def run(tmp_path: Path, way: str, **more: str) -> dict[str, Any]:
    """The guest over the simulated driver of this checkout's build."""
    if not (BUILD / "sim" / "libcuda.so.1").is_file():
        pytest.skip(f"{BUILD} holds no build: run ci/build first")
    env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(BUILD / "sim"),
           "GPUFENCE_SIM_STATE": str(tmp_path / "machine"), **more}  # fmt: skip
    text = subprocess.check_output([sys.executable, guest.__file__, way], env=env, text=True)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("way", guest.WAYS)
def test_the_guest_is_held_whatever_way_it_goes(tmp_path: Path, way: str) -> None:
    told = run(
        tmp_path,
        way,
        LD_PRELOAD=str(BUILD / "lib" / "libgpufence.so"),
        GPUFENCE_MEMORY_LIMIT=f"{judging.LIMIT_MIB}MiB",
        GPUFENCE_STATE_DIR=str(tmp_path),
    )

    assert judging.problems(told) == []


def test_without_the_library_the_guest_is_not_as_promised(tmp_path: Path) -> None:
    found = judging.problems(run(tmp_path, "linked"))

    assert [line.split()[0] for line in found] == ["total_mib", "nvml_mib", "granted"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"begun": [0, 2, 0]}, "cuInit and its followers returned [0, 2, 0]"),
        ({"total_mib": 1}, "total_mib is 1, not 4096"),
        ({"nvml_mib": 1}, "nvml_mib is 1, not 4096"),
        ({"granted_mib": 4097}, "granted 4097 MiB, not 3496 to 4096"),
        ({"granted_mib": 3495}, "granted 3495 MiB, not 3496 to 4096"),
        ({"refused": 0}, "refused with 0, not 2"),
    ],
)
def test_each_broken_promise_is_named(wrong: dict[str, Any], said: str) -> None:
    assert judging.problems(GOOD) == []
    assert judging.problems(GOOD | wrong) == [said]


def test_what_another_process_holds_is_not_granted_again() -> None:
    assert judging.problems(GOOD | {"granted_mib": 3000}, held_mib=1024) == []
    assert judging.problems(GOOD | {"granted_mib": 3500}, held_mib=1024) == [
        "granted 3500 MiB, not 1872 to 3072"
    ]


def test_a_guest_that_dies_is_a_problem() -> None:
    done = subprocess.CompletedProcess(["guest"], -11, "", "it said this\n")

    assert systems.told(done) == "status -11: it said this"


def test_a_machine_without_the_means_is_a_reason_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert systems.main(tmp_path, tmp_path / "systems") == 3
    assert capsys.readouterr().err == (
        "ci/systems: skipped: only root can make systems, with debootstrap\n"
    )
