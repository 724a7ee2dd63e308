"""The agent as a DRA driver, between a kubelet (unix sockets) and an API server (HTTP)."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from gpufence.errors import ToolError
from gpufence.node import api, messages, slices, wire
from gpufence.node.gpus import Gpu

from .cluster import BASE, Cluster, Driver, driving, serving
from .conftest import GPUS, MIB, Node
from .kubelet import wait_for

FIRST, SECOND, LARGE = (gpu["uuid"] for gpu in GPUS)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with serving() as made:
        yield made


@pytest.fixture
def driver(node: Node, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """The agent, not started yet."""
    with driving(node, cluster, monkeypatch) as made:
        yield made


def test_a_claim_becomes_a_device_with_its_limit_its_gpu_and_its_mounts(driver: Driver) -> None:
    claim = driver.cluster.allocate("train", (LARGE, "3Gi", "30"))
    driver.start()

    told = driver.prepare(claim)[claim["uid"]]

    (device,) = told.devices
    assert told.error == ""
    assert (list(device.request_names), device.pool_name) == (["gpu0"], "node-a")
    assert device.device_name == LARGE.lower()
    assert list(device.cdi_device_ids) == [f"gpufence.io/container=claim-{claim['uid']}"]
    edits = driver.edits(claim)
    assert edits["env"] == [
        f"GPUFENCE_MEMORY_LIMIT={3 << 30}",
        "GPUFENCE_CORE_LIMIT=30",
        f"GPUFENCE_CONTAINER=claim-{claim['uid']}",
        f"NVIDIA_VISIBLE_DEVICES={LARGE}",
        "GPUFENCE_NODE_DIR=/run/gpufence-node",
    ]
    mounts = {mount["containerPath"]: mount for mount in edits["mounts"]}
    told_limit = Path(mounts["/etc/gpufence/gpufence.conf"]["hostPath"]).read_text()
    assert f"memory_limit = {3 << 30}\n" in told_limit
    assert mounts["/usr/lib/gpufence/libgpufence.so"]["hostPath"] == str(driver.node.library)
    assert "ro" in mounts["/etc/ld.so.preload"]["options"]
    assert "rw" in mounts["/run/gpufence"]["options"]
    assert "/run/gpufence-node" in mounts


def test_preparing_and_taking_back_may_be_asked_any_number_of_times(driver: Driver) -> None:
    claim = driver.cluster.allocate("train", (LARGE, "3Gi", "30"))
    driver.start()

    first = driver.prepare(claim)
    left = driver.node.agent / "containers" / f"claim-{claim['uid']}" / "state" / "left"
    left.write_text("a ledger")
    second = driver.prepare(claim)

    assert first == second
    assert left.exists()
    for _ in range(2):
        assert driver.unprepare(claim)[claim["uid"]].error == ""
    assert not left.parent.parent.exists()
    assert list(Path(driver.node.config["cdi_dir"]).glob("*.json")) == []


def test_several_gpus_of_a_claim_have_the_same_limit(driver: Driver) -> None:
    even = driver.cluster.allocate("even", (FIRST, "3Gi", "30"), (LARGE, "3Gi", "30"))
    odd = driver.cluster.allocate("odd", (FIRST, "100Mi", "30"), (LARGE, "200Mi", "30"))
    driver.start()

    told = driver.prepare(even, odd)

    assert len(told[even["uid"]].devices) == 2
    assert f"NVIDIA_VISIBLE_DEVICES={FIRST},{LARGE}" in driver.edits(even)["env"]
    assert "it has different amounts of its GPUs" in told[odd["uid"]].error


def test_nothing_is_prepared_beyond_what_a_gpu_has(driver: Driver) -> None:
    first = driver.cluster.allocate("first", (FIRST, "3000Mi", "30"))
    second = driver.cluster.allocate("second", (FIRST, "1001Mi", "10"))
    third = driver.cluster.allocate("third", (FIRST, "100Mi", "71"))
    fits = driver.cluster.allocate("fits", (FIRST, "1000Mi", "70"))
    driver.start()

    told = driver.prepare(first, second, third, fits)

    errors = {claim["name"]: told[claim["uid"]].error for claim in (first, second, third, fits)}
    assert "too much would be given out" in errors["second"]
    assert "too much would be given out" in errors["third"]
    assert (errors["first"], errors["fits"]) == ("", "")
    driver.unprepare(first, fits)
    assert driver.prepare(second)[second["uid"]].error == ""


def test_claims_that_are_not_ours_are_refused_one_by_one(driver: Driver) -> None:
    good = driver.cluster.allocate("good", (FIRST, "100Mi", "1"))
    recreated = {**driver.cluster.allocate("again", (FIRST, "1Mi", "1")), "uid": "0000-old"}
    strange = driver.cluster.allocate("strange", ("GPU-elsewhere", "1Mi", "1"))
    nothing = driver.cluster.allocate("nothing", (FIRST, "0", "1"))
    unread = driver.cluster.allocate("unread", (FIRST, "much", "1"))
    none = driver.cluster.allocate("none")
    twice = driver.cluster.allocate("twice", (FIRST, "1Mi", "1"), (FIRST, "1Mi", "1"))
    gone = {"namespace": "ml", "name": "gone", "uid": "0000-gone"}
    path = {**good, "uid": "../../x"}
    driver.start()

    told = driver.prepare(good, recreated, strange, nothing, unread, none, twice, gone, path)

    said = {
        recreated["uid"]: "not the claim 0000-old any more",
        strange["uid"]: "this node has no GPU 'gpu-elsewhere'",
        nothing["uid"]: "it has nothing of a GPU",
        unread["uid"]: "'much' is no amount",
        none["uid"]: "no device of gpufence.io",
        twice["uid"]: "it has a GPU twice",
        gone["uid"]: "the API server has none of this name",
        path["uid"]: "that is no UID",
    }
    assert told[good["uid"]].error == ""
    assert [uid for uid, text in said.items() if text not in told[uid].error] == []
    assert driver.unprepare(path)["../../x"].error != ""


def test_an_api_server_that_fails_is_told_and_asked_again(driver: Driver) -> None:
    claim = driver.cluster.allocate("train", (FIRST, "100Mi", "1"))
    driver.start()
    driver.cluster.broken = True

    failed = driver.prepare(claim)[claim["uid"]].error
    driver.cluster.broken = False
    again = driver.prepare(claim)[claim["uid"]].error

    assert "it answered 500" in failed
    assert again == ""


def test_the_nodes_gpus_are_published_and_kept_so(driver: Driver) -> None:
    path = f"{BASE}/resourceslices/node-a-gpufence.io"
    stale = slices.slice_of("node-a", [Gpu(FIRST, 4000 * MIB)])
    stale["spec"]["pool"]["generation"] = 6
    driver.cluster.objects[path] = stale

    driver.start()
    wait_for(lambda: driver.cluster.writes, "nothing is published")

    spec = driver.cluster.objects[path]["spec"]
    assert driver.cluster.writes == [("PUT", path)]
    assert spec["pool"] == {"name": "node-a", "generation": 7, "resourceSliceCount": 1}
    assert [device["name"] for device in spec["devices"]] == [
        uuid.lower() for uuid in (FIRST, SECOND, LARGE)
    ]
    assert spec["devices"][2]["capacity"]["memory"]["value"] == "8000Mi"
    assert spec["devices"][2]["capacity"]["cores"]["value"] == "100"
    assert spec["devices"][2]["allowMultipleAllocations"] is True

    driver.node.kill()
    driver.start()
    claim = driver.cluster.allocate("train", (FIRST, "100Mi", "1"))
    assert driver.prepare(claim)[claim["uid"]].error == ""
    assert len(driver.cluster.writes) == 1


@pytest.mark.parametrize(
    ("mib", "expected"),
    [(81559, "81559Mi"), (81920, "80Gi"), (1 << 20, "1Ti"), (1025, "1025Mi"), (1 << 50, "1024Ei")],
)
def test_what_a_server_has_is_not_published_again(mib: int, expected: str) -> None:
    cluster = Cluster()
    made = slices.slice_of("node-a", [Gpu(FIRST, mib * MIB)])

    for _ in range(2):
        api.connect(cluster.address).publish(made)

    (device,) = made["spec"]["devices"]
    assert device["capacity"]["memory"]["value"] == expected
    cluster.server.shutdown()
    cluster.server.server_close()
    assert [method for method, _ in cluster.writes] == ["POST"]


def test_drivers_that_are_killed_at_random_moments_lose_no_claim(driver: Driver) -> None:
    dice = random.Random(8)
    driver.start()
    prepared: dict[str, dict[str, str]] = {}
    leaving: dict[str, dict[str, str]] = {}
    for turn in range(20):
        timer = threading.Timer(dice.uniform(0, 0.02), driver.node.kill)
        if killing := turn % 5 == 4:
            timer.start()
        memory = dice.choice((100, 900))
        claim = driver.cluster.allocate(f"c{turn}", (LARGE, f"{memory}Mi", "1"))
        for uid in dice.sample(sorted(prepared), k=len(prepared) // 3):
            leaving[uid] = prepared.pop(uid)
        with suppress(wire.CallError):  # the kubelet asks again
            driver.unprepare(*leaving.values())
            leaving.clear()
        with suppress(wire.CallError):
            if not driver.prepare(claim)[claim["uid"]].error:
                prepared[claim["uid"]] = claim
                limit = f"GPUFENCE_MEMORY_LIMIT={memory * MIB}"
                assert limit in driver.edits(claim)["env"]
        if killing:
            timer.join()
            driver.start()
        for each in prepared.values():
            assert LARGE in " ".join(driver.edits(each)["env"])
    document = json.loads((driver.node.agent / "claims.json").read_text())
    kept = {each["key"] for each in document["grants"]}
    assert {f"claim-{uid}" for uid in prepared} <= kept
    assert sum(each["memory_bytes"] for each in document["grants"]) <= 8000 * MIB


def test_a_socket_that_somebody_removed_comes_back(driver: Driver) -> None:
    driver.start()

    driver.endpoint.unlink()
    wait_for(lambda: not driver.found_by.exists() or driver.endpoint.exists(), "it stays away")
    wait_for(lambda: driver.endpoint.exists() and driver.found_by.exists(), "it stays away")

    driver.register()


def test_a_path_that_no_socket_can_have_is_told(driver: Driver) -> None:
    folder = driver.node.folder / ("long" * 30)
    folder.mkdir()
    driver.node.config["registry_dir"] = str(folder)
    driver.node.launch()

    assert driver.node.ended() == 1
    assert "is not longer than 107 bytes" in driver.node.said.read_text()


def test_a_folder_of_the_other_interface_is_refused(driver: Driver) -> None:
    claim = driver.cluster.allocate("train", (FIRST, "100Mi", "1"))
    driver.start()
    driver.prepare(claim)
    driver.node.kill()

    driver.node.config["interface"] = "device-plugin"
    driver.node.launch()

    assert driver.node.ended() == 1
    assert "containers there have GPUs by another interface" in driver.node.said.read_text()


@pytest.mark.parametrize("address", ["http://10.0.0.1:8080", "ftp://localhost", "", "localhost"])
def test_an_api_server_in_the_clear_or_nowhere_is_refused(driver: Driver, address: str) -> None:
    driver.node.config["api_server"] = address
    driver.node.launch()

    assert driver.node.ended() == 2
    assert driver.node.said.read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("100", 100),
        ("3Gi", 3 << 30),
        ("1.5Gi", 3 << 29),
        ("1500M", 1_500_000_000),
        ("2e3", 2000),
        ("2500m", 2),
        (".5Ki", 512),
        ("-1", None),
        ("1GiB", None),
        ("1 Gi", None),
        ("", None),
        ("1e999", None),
        ("9" * 50, None),
        ("٣", None),
    ],
)
def test_quantities(text: str, amount: int | None) -> None:
    try:
        found: int | None = slices.quantity(text)
    except ValueError:
        found = None

    assert found == amount


def test_a_claim_without_an_allocation_is_refused() -> None:
    claim = {"metadata": {"namespace": "ml", "name": "train", "uid": "u"}, "status": {}}

    with pytest.raises(ToolError, match="it is not allocated"):
        slices.shares_of(claim, "u")


def test_claims_are_what_the_kubelet_reads_and_sends() -> None:
    # The service is called by its full name; a kubelet calls no other.
    assert messages.DRA_PLUGIN == "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    known = messages.load(messages.package_of(messages.DRA_PLUGIN))
    device = known["Device"](
        request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["c"]
    )
    answer = known["NodePrepareResourcesResponse"]()
    answer.claims["u"].devices.append(device)

    assert device.SerializeToString() == b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x01c"
    inner = b"\x0a\x0c" + device.SerializeToString()
    assert answer.SerializeToString() == b"\x0a\x13\x0a\x01u\x12\x0e" + inner
    claim = known["NodePrepareResourcesRequest"].FromString(b"\x0a\x09\x0a\x01n\x12\x01u\x1a\x01m")
    (asked,) = claim.claims
    assert (asked.namespace, asked.uid, asked.name) == ("n", "u", "m")
