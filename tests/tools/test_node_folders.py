"""A core limit is told wherever its file lies, also where only the program knows the folder."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpufence.container import node_folders
from gpufence.machine.people import People
from gpufence.state import time_file
from gpufence.state.region import find, read_all

from .gpufence_command import gpufence
from .region_files import RegionFile, Signed, TimeFile, this_process


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Container web under 30 to 60 %, its time file where only its process has it from."""
    (tmp_path / "state").mkdir()
    (tmp_path / "its own").mkdir()
    clock = time_file._clock_identity()
    with (
        RegionFile(tmp_path / "state") as region,
        TimeFile(tmp_path / "its own", clock=clock) as cores,
    ):
        region.device(0)
        region.process(0, this_process())
        region.use(0, 0, held=1 << 20)
        cores.device(0)
        cores.tenant(0, 0, time_file.tenant_key("web"))
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


def test_a_node_folder_that_is_named_is_looked_into(tmp_path: Path) -> None:
    """Also beside a state folder that is the only one."""
    (tmp_path / "state").mkdir()
    (tmp_path / "node").mkdir()
    clock = time_file._clock_identity()
    found = []
    with RegionFile(tmp_path / "state") as region, TimeFile(tmp_path / "node", clock=clock) as core:
        region.device(0)
        region.process(0, this_process())
        region.use(0, 0, held=1 << 20)
        core.device(0)
        core.tenant(0, 0, time_file.tenant_key("web"))
        core.member(0, 0, 0, this_process())
        for more in ((), ("--node-dir", tmp_path / "node")):
            command = ("status", "web", "--json", "--state-dir", tmp_path / "state", *more)
            done = gpufence(*command)
            (container,) = json.loads(done.stdout)["containers"]
            found.append(container["gpus"][0]["cores"])

    assert found[0] is None
    assert found[1]["share_millipercent"] == 30_000


def test_top_and_export_tell_it_too(state: Path) -> None:
    found = json.dumps(answer(state, "top"))
    said = gpufence("export", GPUFENCE_STATE_DIR=str(state))

    assert '"core_limit_ratio": 0.3' in found
    assert [line for line in said.stdout.splitlines() if "core_limit" in line and " 0.3" in line]


def test_set_says_which_share_was_in_force(state: Path) -> None:
    done = gpufence("set", "web", "--cores", "50", GPUFENCE_STATE_DIR=str(state))

    assert "web: every GPU: cores 50 % (was 30 % by its own variables or files)" in done.stdout
    assert "memory" not in done.stdout


# ---- where nobody can tell ----

HIDDEN = Signed()  # of another pid namespace, and not to be found from here


def held_by(folder: Path, *owners: Signed, limit: int = 0) -> RegionFile:
    """Container web, used by these processes."""
    region = RegionFile(folder)
    region.device(0)
    for slot, owner in enumerate(owners):
        region.process(slot, owner)
        region.use(0, slot, held=1 << 20, limit=limit)
    return region


def cores_of(folder: Path) -> tuple[object, bool, str]:
    """What status knows, in JSON and for people."""
    (container,) = answer(folder, "status", "web")["containers"]
    (gpu,) = container["gpus"]
    text = gpufence("status", "--all", GPUFENCE_STATE_DIR=str(folder)).stdout
    (row,) = [line for line in text.splitlines() if line.startswith("web ")]
    (word,) = [each for each in ("no limit", "unknown", "40 %") if f"  {each}  " in row]
    return gpu["cores"] and gpu["cores"]["share_millipercent"], gpu["cores_known"], word


@pytest.mark.parametrize("others", [(), (this_process(),)], ids=["alone", "beside a readable one"])
def test_a_process_that_cannot_be_asked_makes_the_limit_unknown(
    tmp_path: Path, others: tuple[Signed, ...]
) -> None:
    with held_by(tmp_path, *others, HIDDEN, limit=1 << 30):
        found = json.dumps(answer(tmp_path, "top"))
        screen = gpufence("top", "--once", GPUFENCE_STATE_DIR=str(tmp_path)).stdout
        told = gpufence("export", GPUFENCE_STATE_DIR=str(tmp_path)).stdout

        assert cores_of(tmp_path) == (None, False, "unknown")
        details = gpufence("status", "web", GPUFENCE_STATE_DIR=str(tmp_path)).stdout
    assert "  cores     unknown: " in details
    assert '"core_limit_known": false, "core_limit_ratio": null' in found
    assert "unknown" in screen
    (known,) = [line for line in told.splitlines() if line.startswith("gpufence_core_limit_known{")]
    assert known.endswith(" 0.0")


def test_a_container_that_has_none_has_no_limit(tmp_path: Path) -> None:
    with held_by(tmp_path, this_process(), limit=1 << 30):
        assert cores_of(tmp_path) == (None, True, "no limit")
        screen = gpufence("top", "--all", "--once", GPUFENCE_STATE_DIR=str(tmp_path)).stdout

    assert "unknown" not in screen


def test_what_was_set_is_known_of_a_hidden_process_too(tmp_path: Path) -> None:
    with held_by(tmp_path, HIDDEN, limit=1 << 30):
        gpufence("set", "web", "--cores", "40", GPUFENCE_STATE_DIR=str(tmp_path))

        assert cores_of(tmp_path) == (40_000, True, "40 %")


def test_maps_that_may_not_be_read_leave_it_unknown(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions = read_all(find({"GPUFENCE_STATE_DIR": str(state)}))[0]
    owners = [owner for each in regions for owner in each.owners]
    assert node_folders.look({}, str(state), regions, People()).covers(owners) is False
    assert node_folders.look({}, None, regions, People()).covers(owners) is True

    monkeypatch.setattr(Path, "read_bytes", forbidden)

    assert node_folders.look({}, None, regions, People()).covers(owners) is False


def test_a_time_file_that_cannot_be_seen_leaves_it_unknown(state: Path) -> None:
    (file,) = (state.parent / "its own").iterdir()
    file.unlink()  # its process still has it mapped

    (container,) = answer(state, "status", "web")["containers"]
    (gpu,) = container["gpus"]
    assert (gpu["cores"], gpu["cores_known"]) == (None, False)


def forbidden(path: Path) -> bytes:
    raise PermissionError(path)


# ---- set ----


def test_set_says_which_memory_limit_was_in_force(tmp_path: Path) -> None:
    with held_by(tmp_path, this_process(), limit=4 << 30):
        first = gpufence("set", "web", "--memory", "6g", GPUFENCE_STATE_DIR=str(tmp_path))
        second = gpufence("set", "web", "--memory", "5g", GPUFENCE_STATE_DIR=str(tmp_path))
        one = ("set", "web", "--memory", "3g", "--gpu", "0")
        third = gpufence(*one, GPUFENCE_STATE_DIR=str(tmp_path))

    own = "4 GiB by its own variables or files"
    assert first.stdout == f"web: every GPU: memory 6 GiB (was {own})\n"
    assert second.stdout == "web: every GPU: memory 5 GiB (was 6 GiB)\n"
    # What the program publishes by now may be what was set for every GPU.
    assert third.stdout.endswith(": memory 3 GiB (was not set)\n")
