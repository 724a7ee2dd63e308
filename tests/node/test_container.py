"""A container as `gpufence node serve` makes it, with the real library: it is held to its grant.

The kubelet's part of it, which mounts what the agent answers, is played here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpufence import locate
from gpufence.node import config
from gpufence.node.book import Grant
from gpufence.node.boxes import Boxes
from gpufence.node.pods import Pod
from gpufence.node.steering import Steering

from tests.host.test_container import NOBODY, OUT_OF_MEMORY, Box, box_of, cleared
from tests.memory.test_views import GIB
from tests.support.machine import Sim

LIMIT = GIB
GRANT = Grant("g0", "ml/train/main", {}, ("GPU-x",), LIMIT, 50)


@pytest.fixture(params=["device-plugin", "dra"])
def boxes(request: pytest.FixtureRequest, bare: Sim, tmp_path: Path) -> Boxes:
    """Where either interface of the agent keeps its containers' files."""
    library = bare.build / "lib" / "libgpufence.so"
    turns = tmp_path / "turns"
    turns.mkdir()
    turns.chmod(0o1777)
    return Boxes(
        folder=tmp_path / "agent",
        cdi_dir=tmp_path / "cdi",
        node_dir=str(turns),
        library=str(library),
        preload=str(locate.preload_file(library, with_addpath=False)),
        expose="environment",
        mounts_by_cdi=request.param == "dra",
    )


@pytest.fixture
def box(boxes: Boxes, bare: Sim, tmp_path: Path) -> Box:
    """A container that has 1 GiB of a GPU."""
    boxes.fill(GRANT)
    (path,) = boxes.cdi_dir.glob("*.json")
    document: Any = json.loads(path.read_text())
    mounted_by_kubelet = [
        {"hostPath": outside, "containerPath": inside, "options": ["ro" if read_only else "rw"]}
        for inside, outside, read_only in boxes.mounts("g0")
    ]
    by_kubelet = [] if boxes.mounts_by_cdi else mounted_by_kubelet
    document["containerEdits"] = {"mounts": by_kubelet}
    document["devices"][0]["containerEdits"].setdefault("mounts", [])
    return box_of(bare, tmp_path, document)


@pytest.mark.parametrize("uid", [0, NOBODY])
def test_a_container_is_held_to_what_the_agent_gave_it(box: Box, uid: int) -> None:
    done = box.but(uid=uid).run(box.program("limit_probe"))

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "init": 0,
        "granted 0": LIMIT,
        "refused 0": OUT_OF_MEMORY,
    }


def test_a_program_without_the_containers_variables_is_held(box: Box) -> None:
    done = box.run(*cleared(box, NOBODY), box.program("limit_probe"))

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["granted 0"] == LIMIT


def test_the_containers_ledger_is_seen_from_the_host(box: Box, tmp_path: Path) -> None:
    box.run(box.program("limit_probe"))

    state = tmp_path / "agent" / "containers" / "g0" / "state"
    assert list(state.glob("gpufence-*.v*")) != []


def test_what_a_pod_says_holds_in_programs_that_run(box: Box, boxes: Boxes) -> None:
    steering = Steering(config.of_table({"annotations": ["memory"]}), boxes, lambda: [GRANT])

    def say(**said: str) -> None:
        named = {f"gpufence.io/{name}": text for name, text in said.items()}
        steering.tell({"ml/train": Pod("ml/train", "Burstable", named, ())})
        steering.look()

    with box.start() as viewer:
        assert viewer.ask("info")[2] == LIMIT
        say(memory="512MiB")
        assert viewer.ask("info")[2] == LIMIT // 2
        say(memory="8GiB")  # the agent gave it less
        assert viewer.ask("info")[2] == LIMIT
        say()
        assert viewer.ask("info")[2] == LIMIT
