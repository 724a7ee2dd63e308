"""A container of a claim of NVIDIA's driver, with the real library: held to what the claim has.

The claim is prepared as the enforcing agent does; NVIDIA's part, which brings the GPUs, is the
simulated driver.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from gpufence import locate
from gpufence.node.book import Grant, Part
from gpufence.node.boxes import Boxes

from tests.host.test_container import OUT_OF_MEMORY, Box, box_of, cleared
from tests.memory.test_views import GIB
from tests.support.machine import Sim

KEY = "claim-5e6a1c9a-0000-4000-8000-0123456789ab"


@pytest.fixture
def two(bare: Sim) -> Sim:
    """Two GPUs of 16 GiB, whose contexts cost nothing."""
    return bare.with_env(GPUS=2, MEMORY="16GiB", CONTEXT_BYTES=0)


def uuids(sim: Sim) -> list[str]:
    """The GPUs, as NVML names them."""
    return [f"GPU-{uuid.UUID(each['uuid'])}" for each in sim.run("sim_devices").facts["devices"]]


def boxes_of(sim: Sim, folder: Path) -> Boxes:
    library = sim.build / "lib" / "libgpufence.so"
    turns = folder / "turns"
    turns.mkdir()
    turns.chmod(0o1777)
    return Boxes(
        folder=folder / "agent",
        cdi_dir=folder / "cdi",
        node_dir=str(turns),
        library=str(library),
        preload=str(locate.preload_file(library, with_addpath=False)),
        expose="",
        mounts_by_cdi=True,
    )


def container(sim: Sim, folder: Path, *parts: Part) -> Box:
    """A container of a claim that has these parts."""
    boxes = boxes_of(sim, folder)
    boxes.fill(Grant(KEY, "ml/claim", {}, tuple(part.gpu for part in parts), 0, 0, parts))
    (path,) = boxes.cdi_dir.glob("*.json")
    document: Any = json.loads(path.read_text())
    document["containerEdits"] = {"mounts": []}
    return box_of(sim, folder, document)


@pytest.mark.parametrize("with_variables", [True, False])
def test_each_gpu_has_its_own_limit_by_uuid(two: Sim, tmp_path: Path, with_variables: bool) -> None:
    first, second = uuids(two)
    box = container(two, tmp_path, Part(second, 3 * GIB, 0), Part(first, GIB, 0))
    before = () if with_variables else cleared(box, 0)

    done = box.run(*before, box.program("limit_probe"))

    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert [facts["granted 0"], facts["granted 1"]] == [GIB, 3 * GIB]


def test_a_whole_gpu_has_no_limit_and_one_of_another_claim_has_nothing(
    two: Sim, tmp_path: Path
) -> None:
    first, _ = uuids(two)
    box = container(two, tmp_path, Part(first, 0, 0))

    done = box.run(box.program("limit_probe"))

    facts = json.loads(done.stdout)
    assert facts["init"] == 0
    assert facts["refused 0"] == 0  # the program asks for no more than 4 GiB
    assert (facts["granted 1"], facts["refused 1"]) == (0, OUT_OF_MEMORY)


def test_containers_that_share_a_claim_share_its_limit(two: Sim, tmp_path: Path) -> None:
    first, _ = uuids(two)
    box = container(two, tmp_path, Part(first, 2 * GIB, 0))

    with box.start() as viewer:
        viewer.does("alloc", 3 * GIB // 2)
        other = json.loads(box.run(box.program("limit_probe")).stdout)

    alone = json.loads(box.run(box.program("limit_probe")).stdout)
    assert (other["granted 0"], other["refused 0"]) == (GIB // 2, OUT_OF_MEMORY)
    assert alone["granted 0"] == 2 * GIB


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GPUFENCE_MEMORY_LIMIT_{uuid}", "3GiB"),
        ("GPUFENCE_MEMORY_LIMIT_0", "3GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "3GiB"),
        ("GPUFENCE_DISABLE", "1"),
    ],
)
def test_a_pods_other_words_for_a_limit_give_it_no_more_of_its_gpu(
    two: Sim, tmp_path: Path, name: str, text: str
) -> None:
    first, _ = uuids(two)
    box = container(two, tmp_path, Part(first, GIB, 0))

    # With the dashes of the UUID: the agent's variable has none.
    done = box.run(box.program("limit_probe"), **{name.format(uuid=first): text})

    assert json.loads(done.stdout)["granted 0"] == GIB
