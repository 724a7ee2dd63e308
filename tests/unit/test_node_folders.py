"""A core limit is told wherever its file lies, also where only the program knows the folder."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpufence import core_file

from .gpufence_command import gpufence
from .region_files import CoreFile, RegionFile, this_process


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Container web under 30 to 60 %, its core file where only its process has it from."""
    (tmp_path / "state").mkdir()
    (tmp_path / "its own").mkdir()
    clock = core_file._clock_identity()
    with (
        RegionFile(tmp_path / "state") as region,
        CoreFile(tmp_path / "its own", clock=clock) as cores,
    ):
        region.device(0)
        region.process(0, this_process())
        region.use(0, 0, held=1 << 20)
        cores.device(0)
        cores.tenant(0, 0, core_file.tenant_key("web"))
        cores.member(0, 0, 0, this_process())
        (path,) = (tmp_path / "its own").iterdir()
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
            yield tmp_path / "state"


def answer(state: Path, *words: str) -> Any:  # noqa: ANN401 - JSON
    done = gpufence(*words, "--json", GPUFENCE_STATE_DIR=str(state))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_status_tells_the_share_that_holds(state: Path) -> None:
    (container,) = answer(state, "status", "web")["containers"]
    (gpu,) = container["gpus"]

    assert gpu["cores"]["share_millipercent"] == 30_000


def test_top_and_export_tell_it_too(state: Path) -> None:
    found = json.dumps(answer(state, "top"))
    said = gpufence("export", GPUFENCE_STATE_DIR=str(state))

    assert '"core_limit_ratio": 0.3' in found
    assert [line for line in said.stdout.splitlines() if "core_limit" in line and " 0.3" in line]


def test_set_says_which_share_was_in_force(state: Path) -> None:
    done = gpufence("set", "web", "--cores", "50", GPUFENCE_STATE_DIR=str(state))

    assert "web: every GPU: cores 50 % (was 30 % by its own variables or files)" in done.stdout
    assert "memory" not in done.stdout
