"""Claims whose GPUs NVIDIA's driver gave out: every one has its limit, or is not prepared.

Objects are what NVIDIA's driver publishes and a scheduler writes (dra-driver-nvidia-gpu: devices
`gpu-0`, the attribute `uuid`, the capacity `memory`, the modes of its --consumable-shares).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gpufence.cdi import cdi_spec
from gpufence.errors import ToolError
from gpufence.node import checkpoint, config
from gpufence.node.boxes import Boxes
from gpufence.node.claims import Answer, Claims
from gpufence.node.enforcer import CHECKPOINT, DRIVER, Enforcer, slice_of

from .cluster import BASE, Cluster, Driver, driving, serving
from .conftest import GPUS, Node
from .kubelet import wait_for
from .test_kills import STEPS, KilledError, Killer

FIRST, SECOND, THIRD = (gpu["uuid"] for gpu in GPUS)
NVIDIA = "gpu.nvidia.com"
GIB = 1 << 30
OURS = {"driver": DRIVER, "request": "limits", "pool": "node-a", "device": "limits"}


def a_device(name: str, uuid: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A GPU in NVIDIA's slice."""
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": uuid}, **more}
    capacity = {"memory": {"value": "80Gi"}, "compute": {"value": "1000"}}
    return {"name": name, "attributes": attributes, "capacity": capacity}


def a_slice(*devices: dict[str, Any], pool: str = "node-a", generation: int = 1) -> dict[str, Any]:
    """A slice of NVIDIA's driver."""
    named = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": NVIDIA, "nodeName": "node-a", "pool": named, "devices": list(devices)}
    return {"metadata": {"name": f"{pool}-{generation}"}, "spec": spec}


def result(device: str, **consumed: str) -> dict[str, Any]:
    """What the scheduler gave of one of NVIDIA's devices."""
    found: dict[str, Any] = {
        "driver": NVIDIA,
        "request": "gpu",
        "pool": "node-a",
        "device": device,
        "shareID": "5a",
    }
    return {**found, **({"consumedCapacity": consumed} if consumed else {})}


class World:
    """An enforcing agent's claims, without a kubelet or a server."""

    def __init__(self, folder: Path, **keys: str) -> None:
        self.folder = folder
        self.config = config.of_table({"interface": "enforcer", "node_name": "node-a", **keys})
        self.slices = [a_slice(a_device("gpu-0", FIRST), a_device("gpu-1", SECOND))]
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.claims = self.restarted()

    def restarted(self) -> Claims:
        """An agent that knows nothing but its files."""
        boxes = Boxes(
            folder=self.folder,
            cdi_dir=self.folder / "cdi",
            node_dir="/run/gpufence-node",
            library="/lib",
            preload="/pre",
            expose="",
            mounts_by_cdi=True,
        )
        rules = Enforcer(self.config, boxes, self.published)
        made = Claims(rules, boxes, lambda namespace, name: self.objects.get(name))
        self.folder.mkdir(exist_ok=True)
        made.open()
        return made

    def published(self, driver: str, node: str) -> list[dict[str, Any]]:
        self.asked.append((driver, node))
        return self.slices

    def allocate(self, name: str, *results: dict[str, Any]) -> None:
        """A claim as the scheduler leaves it."""
        allocation = {"devices": {"results": list(results)}}
        metadata = {"namespace": "ml", "name": name, "uid": f"uid-{name}"}
        self.objects[name] = {"metadata": metadata, "status": {"allocation": allocation}}

    def prepare(self, name: str) -> tuple[Answer, ...]:
        return self.claims.prepare("ml", name, f"uid-{name}")

    def refusal(self, name: str) -> str:
        """Why a claim is not prepared; nothing is left of it then."""
        with pytest.raises(ToolError) as caught:
            self.prepare(name)
        assert not (self.folder / "containers" / f"claim-uid-{name}").exists()
        assert caught.value.what == f"claim ml/{name} not prepared"
        return caught.value.why

    def limits(self, name: str) -> dict[str, str]:
        """What the claim's containers read, without what is the same for all; variables agree."""
        key = f"claim-uid-{name}"
        text = (self.folder / "containers" / key / "gpufence.conf").read_text()
        told = dict(re.findall(r"^(\S+) = (.*)$", text, re.M))
        document = json.loads((self.folder / "cdi" / f"gpufence-container-{key}.json").read_text())
        assert cdi_spec.check(document) == []
        (edits,) = [each["containerEdits"] for each in document["devices"]]
        env = dict(each.split("=", 1) for each in edits["env"])
        spelled = {name.removeprefix("GPUFENCE_").upper(): value for name, value in env.items()}
        assert spelled == {name.upper(): value for name, value in told.items()}
        assert (told.pop("container"), told.pop("node_dir")) == (key, "/run/gpufence-node")
        return told


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "agent")


def of(uuid: str, memory: int, cores: int = 0) -> dict[str, str]:
    """The lines of one GPU."""
    named = uuid.replace("-", "_")
    lines = {f"memory_limit_{named}": str(memory)}
    return {**lines, **({f"core_limit_{named}": str(cores)} if cores else {})}


NOTHING = {"memory_limit": "1"}  # of GPUs that the claim does not have


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([result("gpu-0", memory="3Gi")], of(FIRST, 3 * GIB)),
        ([result("gpu-1", memory=str(GIB), compute="250")], of(SECOND, GIB, 25)),
        # The names of capacities may have their driver's domain.
        ([result("gpu-0", **{f"{NVIDIA}/memory": "1Gi"})], of(FIRST, GIB)),
        # Two GPUs, each with its own amount.
        (
            [result("gpu-0", memory="1Gi"), result("gpu-1", memory="2Gi")],
            of(FIRST, GIB) | of(SECOND, 2 * GIB),
        ),
        # Two shares of one GPU add up; a whole one beside a part is whole.
        ([result("gpu-0", memory="1Gi"), result("gpu-0", memory="2Gi")], of(FIRST, 3 * GIB)),
        ([result("gpu-0", memory="1Gi"), result("gpu-0")], of(FIRST, 0)),
        (
            [result("gpu-0", compute="600"), result("gpu-0", compute="600")],
            of(FIRST, 0, 100),
        ),
        # A GPU without an amount: whole. NVIDIA's mode `unlimited` writes 0.
        ([result("gpu-0")], of(FIRST, 0)),
        ([result("gpu-0", memory="0", shares="1")], of(FIRST, 0)),
        # Less than one percent is not no limit.
        ([result("gpu-0", memory="1Gi", compute="1")], of(FIRST, GIB, 1)),
    ],
)
def test_a_claims_amounts_are_its_containers_limits_by_uuid(
    world: World, results: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    world.allocate("train", *results, OURS)

    world.prepare("train")

    assert world.limits("train") == NOTHING | expected
    assert world.asked == [(NVIDIA, "node-a")]


def test_every_container_of_the_claim_gets_the_edits_and_no_gpu(world: World) -> None:
    # A kubelet hands the CDI devices of an answer without requests to each container that has the
    # claim, also to one that names the GPU's request alone.
    world.allocate("train", result("gpu-0", memory="3Gi"), OURS, {**OURS, "device": "more"})

    answers = world.prepare("train")

    device = "gpufence.io/container=claim-uid-train"
    assert answers == (
        Answer((), "node-a", "limits", (device,)),
        Answer((), "node-a", "more", ()),
    )
    path = world.folder / "cdi" / "gpufence-container-claim-uid-train.json"
    text = path.read_text()
    assert "NVIDIA_VISIBLE_DEVICES" not in text
    mounts = json.loads(text)["devices"][0]["containerEdits"]["mounts"]
    assert {each["containerPath"]: each["options"][0] for each in mounts} == {
        "/usr/lib/gpufence/libgpufence.so": "ro",
        "/etc/ld.so.preload": "ro",
        "/etc/gpufence/gpufence.conf": "ro",
        "/run/gpufence": "rw",
        "/run/gpufence-node": "rw",
    }


def test_what_a_claim_has_is_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.allocate("part", result("gpu-0", memory="3Gi", compute="300"), OURS)
    world.allocate("whole", result("gpu-1"), OURS)

    world.prepare("part")
    world.prepare("whole")

    assert capsys.readouterr().err.splitlines() == [
        f"gpufence: ml/part has 3072 MiB, 30 % of {FIRST}",
        f"gpufence: ml/whole has no memory limit, 100 % of {SECOND}",
    ]


VFIO = {"type": {"string": "vfio"}}


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([result("gpu-0", memory="much"), OURS], "'much' is no amount"),
        ([result("gpu-0", memory="-1Gi"), OURS], "'-1Gi' is no amount"),
        ([result("gpu-0", memory="500m"), OURS], "'500m' is less than one"),
        ([result("gpu-0", memory="0.5"), OURS], "'0.5' is less than one"),
        ([result("gpu-0", memory="10E"), OURS], "which no GPU has"),
        ([result("gpu-0", compute="1001"), OURS], "it has 1001 compute of 'gpu-0', which has 1000"),
        ([result("gpu-0", compute="x"), OURS], "'x' is no amount"),
        ([result("gpu-9", memory="1Gi"), OURS], "'gpu-9' is in no slice of gpu.nvidia.com"),
        ([{**result("gpu-0"), "pool": "node-b"}, OURS], "is in no slice of gpu.nvidia.com"),
        ([result("gpu-2", memory="1Gi"), OURS], "'gpu-2' has no UUID in gpu.nvidia.com's slices"),
        ([result("gpu-3", memory="1Gi"), OURS], "'gpu-3' has no UUID in gpu.nvidia.com's slices"),
        ([result("gpu-4"), OURS], "'gpu-4' is for a virtual machine"),
        ([result("gpu-0"), result("gpu-2"), OURS], "'gpu-2' has no UUID"),
        ([OURS], "it has no device of gpu.nvidia.com"),
        ([result("gpu-0")], "it has no device of enforcer.gpufence.io"),
        ([], "it has no device of enforcer.gpufence.io"),
        ([{"driver": NVIDIA}, OURS], "its allocation cannot be read"),
        ([{**result("gpu-0"), "consumedCapacity": ["memory"]}, OURS], "cannot be read"),
        ([{}], "it is not allocated"),
    ],
)
def test_a_claim_whose_limit_cannot_be_told_is_not_prepared(
    world: World, results: list[dict[str, Any]], why: str
) -> None:
    none = {**a_device("gpu-2", FIRST), "attributes": {}}
    world.slices = [
        a_slice(
            a_device("gpu-0", FIRST),
            none,
            a_device("gpu-3", "GPU-\nmemory_limit = 0"),
            a_device("gpu-4", SECOND, **VFIO),
        )
    ]
    world.allocate("train", *results)

    assert why in world.refusal("train")
    assert world.claims.grants.held == {}


def test_without_a_whole_to_compare_with_compute_is_no_percentage(world: World) -> None:
    world.slices[0]["spec"]["devices"][0]["capacity"] = {"memory": {"value": "80Gi"}}
    world.allocate("train", result("gpu-0", compute="10"), OURS)

    assert "it has 10 compute of 'gpu-0', which has 0" in world.refusal("train")


def test_a_uuid_comes_from_the_newest_generation_of_the_devices_pool(world: World) -> None:
    world.slices = [
        a_slice(a_device("gpu-0", THIRD), pool="other", generation=9),
        a_slice(a_device("gpu-0", SECOND), generation=2),
        a_slice(a_device("gpu-0", FIRST), generation=1),
    ]
    world.allocate("train", result("gpu-0", memory="1Gi"), OURS)

    world.prepare("train")

    assert world.limits("train") == NOTHING | of(SECOND, GIB)


def test_another_driver_and_its_capacities_can_be_named(tmp_path: Path) -> None:
    world = World(
        tmp_path / "agent",
        enforced_driver="gpu.example.com",
        memory_capacity="vram",
        core_capacity="example.org/sm",
    )
    published = a_slice(a_device("gpu-0", FIRST))
    published["spec"]["driver"] = "gpu.example.com"
    published["spec"]["devices"][0]["capacity"]["example.org/sm"] = {"value": "100"}
    world.slices = [published]
    given = {**result("gpu-0", **{"vram": "1Gi", "example.org/sm": "7", "memory": "9Gi"})}
    world.allocate("train", {**given, "driver": "gpu.example.com"}, OURS)

    world.prepare("train")

    assert world.limits("train") == NOTHING | of(FIRST, GIB, 7)


def test_a_claim_that_is_prepared_again_keeps_its_ledger_and_another_one_has_none(
    world: World,
) -> None:
    world.allocate("train", result("gpu-0", memory="1Gi"), OURS)
    first = world.prepare("train")
    left = world.folder / "containers" / "claim-uid-train" / "state" / "left"
    left.write_text("a ledger")

    world.claims = world.restarted()
    assert world.prepare("train") == first
    assert left.exists()
    # The same claim, allocated anew: nothing of before counts.
    world.allocate("train", result("gpu-1", memory="2Gi"), OURS)
    world.prepare("train")

    assert not left.exists()
    assert world.limits("train") == NOTHING | of(SECOND, 2 * GIB)


def test_a_slice_that_is_gone_for_a_while_takes_nothing_from_a_prepared_claim(
    world: World,
) -> None:
    world.allocate("train", result("gpu-0", memory="1Gi"), OURS)
    world.prepare("train")
    world.slices = []

    with pytest.raises(ToolError, match="in no slice"):
        world.prepare("train")

    assert world.limits("train") == NOTHING | of(FIRST, GIB)
    assert list(checkpoint.read(world.folder / CHECKPOINT)) == ["claim-uid-train"]


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    made = Killer()
    for name in STEPS:
        monkeypatch.setattr(os, name, made.guard(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", made.guard(shutil.rmtree))
    yield made
    made.at = 0


def story(world: World) -> int:
    """A claim comes, is asked for again, is allocated anew, ends; how often the agent died."""
    kills = 0

    def does(work: Callable[[], object]) -> None:
        nonlocal kills
        with suppress(KilledError):
            world.claims = world.restarted()
            work()
            return
        kills += 1
        does(work)

    def prepare_both() -> None:
        world.prepare("a")
        world.prepare("b")

    world.allocate("a", result("gpu-0", memory="1Gi"), OURS)
    world.allocate("b", result("gpu-0", memory="2Gi"), OURS)
    does(prepare_both)
    ledger = world.folder / "containers" / "claim-uid-b" / "state" / "left"
    ledger.write_text("a ledger")
    world.allocate("a", result("gpu-1", memory="3Gi"), OURS)
    does(prepare_both)
    assert ledger.read_text() == "a ledger"
    assert world.limits("a") == NOTHING | of(SECOND, 3 * GIB)
    assert world.limits("b") == NOTHING | of(FIRST, 2 * GIB)
    does(lambda: world.claims.unprepare("uid-a"))
    assert world.claims.boxes.keys() == set(world.claims.grants.held) == {"claim-uid-b"}
    return kills


def test_an_agent_that_is_killed_at_any_step_goes_on_as_if_it_had_not_been(
    tmp_path: Path, killer: Killer
) -> None:
    whole = World(tmp_path / "whole")
    killer.steps = 0
    assert story(whole) == 0
    steps = killer.steps
    assert steps > 20

    for step in range(1, steps + 1):
        world = World(tmp_path / str(step))
        killer.at, killer.steps = step, 0
        assert story(world) == 1, f"step {step} was not reached"
        killer.at = 0


@pytest.fixture
def driver(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with serving() as cluster, driving(node, cluster, monkeypatch, DRIVER) as made:
        node.config |= {"interface": "enforcer"}
        del node.config["gpus"]  # it asks for none: the machine of this test has no GPU
        yield made


CHOSEN = "spec.driver%3Dgpu.nvidia.com%2Cspec.nodeName%3Dnode-a"
SLICES = f"{BASE}/resourceslices?fieldSelector={CHOSEN}"


def publish(cluster: Cluster, *devices: dict[str, Any]) -> None:
    """NVIDIA's driver does."""
    cluster.objects[SLICES] = {"items": [a_slice(*devices)]}


def test_a_kubelet_that_asks_for_a_claim_of_nvidias_gets_its_limit(driver: Driver) -> None:
    publish(driver.cluster, a_device("gpu-0", THIRD))
    claim = driver.cluster.claim("train", [result("gpu-0", memory="3Gi"), OURS])
    broken = driver.cluster.claim("broken", [result("gpu-1", memory="3Gi"), OURS])
    driver.start()
    wait_for(lambda: driver.cluster.writes, "nothing is published")

    told = driver.prepare(claim, broken)

    assert "'gpu-1' is in no slice" in told[broken["uid"]].error
    assert told[claim["uid"]].error == ""
    (device,) = told[claim["uid"]].devices
    assert (list(device.request_names), device.pool_name) == ([], "node-a")
    assert list(device.cdi_device_ids) == [f"gpufence.io/container=claim-{claim['uid']}"]
    limit = f"GPUFENCE_MEMORY_LIMIT_{THIRD.replace('-', '_')}={3 * GIB}"
    assert limit in driver.edits(claim)["env"]
    assert driver.cluster.writes == [("POST", f"{BASE}/resourceslices/node-a-{DRIVER}")]

    driver.node.kill()
    driver.start()
    assert limit in driver.edits(claim)["env"]
    assert driver.unprepare(claim)[claim["uid"]].error == ""
    assert list(Path(driver.node.config["cdi_dir"]).glob("*.json")) == []


def test_any_number_of_claims_may_have_the_enforcers_device() -> None:
    spec = slice_of("node-a")["spec"]

    (device,) = spec["devices"]
    assert device == {"name": OURS["device"], "allowMultipleAllocations": True}
    assert (spec["driver"], spec["nodeName"], spec["pool"]["name"]) == (DRIVER, "node-a", "node-a")
