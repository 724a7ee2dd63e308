"""`gpufence node serve` as a kubelet sees it: units, limits, restarts, and what is refused.

The kubelet is played over real unix sockets (kubelet.py).
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest
from gpufence.container import setting
from gpufence.container.containers import Container
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from .conftest import GPUS, HAMI, MIB, Node
from .kubelet import wait_for
from .test_pods import Server, pod

FIRST, SECOND, LARGE = (gpu["uuid"] for gpu in GPUS)


def hami(memory: int, cores: int = 0, gpus: int = 1) -> dict[str, int]:
    """What a pod of HAMi's asks for; what is 0 it does not name."""
    asked = dict(zip(HAMI, (gpus, memory, cores), strict=True))
    return {name: count for name, count in asked.items() if count}


@pytest.mark.parametrize(
    ("preset", "asked", "memory"),
    [
        ("hami", hami(3000, 30), 3000),
        (
            "vgpu-manager",
            {
                "nvidia.com/vgpu-number": 1,
                "nvidia.com/vgpu-memory": 1024,
                "nvidia.com/vgpu-cores": 30,
            },
            1024,
        ),
        (
            "volcano",
            {
                "volcano.sh/vgpu-number": 1,
                "volcano.sh/vgpu-memory": 2000,
                "volcano.sh/vgpu-cores": 30,
            },
            2000,
        ),
        ("alnair", {"alnair/vgpu-memory": 2, "alnair/vgpu-compute": 30}, 2048),
        (
            "gpufence",
            {"gpufence.io/gpu": 1, "gpufence.io/memory-mib": 500, "gpufence.io/cores": 30},
            500,
        ),
    ],
)
def test_pods_of_other_systems_get_what_they_ask_for(
    node: Node, preset: str, asked: dict[str, int], memory: int
) -> None:
    node.config["preset"] = preset
    node.start()

    node.kubelet.admit("ml/train/main", asked)
    node.kubelet.begin("ml/train/main")

    assert node.held("ml/train/main") == ((LARGE,), memory * MIB, 30)


def test_a_container_gets_the_library_its_limit_and_a_ledger_of_its_own(node: Node) -> None:
    node.start()

    container = node.kubelet.admit("ml/train/main", hami(3000))

    mounts = {
        mount.container_path: (mount.host_path, mount.read_only)
        for answer in container.answers.values()
        for mount in answer.mounts
    }
    box = node.box(container)
    assert mounts == {
        "/usr/lib/gpufence/libgpufence.so": (str(node.library), True),
        "/etc/ld.so.preload": (mounts["/etc/ld.so.preload"][0], True),
        "/etc/gpufence/gpufence.conf": (str(box / "gpufence.conf"), True),
        "/run/gpufence": (str(box / "state"), False),
        "/run/gpufence-node": ("/run/gpufence-node", False),
    }
    preload = Path(mounts["/etc/ld.so.preload"][0]).read_text()
    assert preload == "/usr/lib/gpufence/libgpufence.so\n"

    node.kubelet.begin("ml/train/main")

    assert (box / "state").stat().st_mode & 0o7777 == 0o1777
    assert (box / "gpufence.conf").stat().st_mode & 0o7777 == 0o644
    assert "by `gpufence node`" in (box / "gpufence.conf").read_text()


def test_a_container_that_never_started_has_no_gpu(node: Node) -> None:
    # An old kubelet that knows no CDI devices, or starts a container unasked, gives it none.
    node.start()

    container = node.kubelet.admit("ml/train/main", hami(3000))

    told = [dict(answer.envs) for answer in container.answers.values() if answer.envs]
    assert told == [{"NVIDIA_VISIBLE_DEVICES": "void"}]
    assert list(Path(node.config["cdi_dir"]).glob("*")) == []


def test_the_cdi_file_is_what_the_specification_allows(node: Node) -> None:
    from gpufence.cdi import cdi_spec

    node.start()
    node.kubelet.admit("ml/train/main", hami(3000))
    node.kubelet.begin("ml/train/main")

    (path,) = Path(node.config["cdi_dir"]).glob("*.json")

    assert cdi_spec.check(json.loads(path.read_text())) == []


def test_a_gpu_comes_by_nvidias_cdi_device_where_that_is_wanted(node: Node) -> None:
    edits = {"deviceNodes": [{"path": "/dev/nvidia2"}], "env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    cdi = Path(node.config["cdi_dir"])
    cdi.mkdir()
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": LARGE, "containerEdits": edits}],
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
    }
    old = {**document, "containerEdits": {"deviceNodes": [{"path": "/dev/old"}]}}
    # A file that comes later wins, as with container engines.
    (cdi / "a.json").write_text(json.dumps(old))
    (cdi / "nvidia.json").write_text(json.dumps(document))
    node.config["expose"] = "cdi"
    node.start()

    node.kubelet.admit("ml/train/main", hami(3000))
    node.kubelet.begin("ml/train/main")

    (path,) = cdi.glob("gpufence-*.json")
    (device,) = json.loads(path.read_text())["devices"]
    assert device["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidiactl"},
        {"path": "/dev/nvidia2"},
    ]
    assert "GPUFENCE_MEMORY_LIMIT=3145728000" in device["containerEdits"]["env"]


def test_spread_takes_the_gpu_with_most_free_memory_and_pack_the_one_with_least(
    node: Node,
) -> None:
    found = {}
    for policy in ("spread", "pack"):
        node.config |= {"policy": policy, "folder": str(node.folder / policy)}
        node.start()
        for number in range(3):
            node.kubelet.admit(f"ml/{policy}/{number}", hami(1500))
            node.kubelet.begin(f"ml/{policy}/{number}")
        found[policy] = [node.held(f"ml/{policy}/{number}")[0][0] for number in range(3)]
        for number in range(3):
            node.kubelet.end(f"ml/{policy}/{number}")
        assert node.end() == 0

    assert found == {"spread": [LARGE, LARGE, LARGE], "pack": [FIRST, FIRST, SECOND]}


def test_several_gpus_are_different_ones_with_the_amount_on_each(node: Node) -> None:
    node.start()

    node.kubelet.admit("ml/train/main", hami(3000, 50, gpus=2))
    node.kubelet.begin("ml/train/main")

    assert node.held("ml/train/main") == ((LARGE, FIRST), 3000 * MIB, 50)


def test_a_container_that_names_no_memory_has_a_whole_gpu(node: Node) -> None:
    node.start()
    node.kubelet.admit("ml/other/main", hami(1, gpus=1))
    node.kubelet.begin("ml/other/main")

    node.kubelet.admit("ml/train/main", hami(0))
    node.kubelet.begin("ml/train/main")

    assert node.held("ml/other/main") == ((LARGE,), 1 * MIB, 0)
    assert node.held("ml/train/main") == ((FIRST,), 4000 * MIB, 0)


def test_what_does_not_fit_waits_until_there_is_room(node: Node) -> None:
    # 16,000 MiB are free all together, and no single GPU has so much after the first two.
    node.start()
    node.kubelet.admit("ml/first/main", hami(6000))
    node.kubelet.begin("ml/first/main")
    node.kubelet.admit("ml/second/main", hami(5000))

    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.begin("ml/second/main")
    node.kubelet.end("ml/first/main")
    node.kubelet.begin("ml/second/main")

    assert "no room for 5000 MiB" in refused.value.details()
    assert node.held("ml/second/main") == ((LARGE,), 5000 * MIB, 0)


def test_shares_of_a_gpu_never_add_up_to_more_than_all_of_it(node: Node) -> None:
    node.config["gpus"] = GPUS[:2]
    node.start()
    for number in range(3):
        node.kubelet.admit(f"ml/train/{number}", hami(100, 60))
    for number in range(2):
        node.kubelet.begin(f"ml/train/{number}")

    with pytest.raises(grpc.RpcError):
        node.kubelet.begin("ml/train/2")

    assert {node.held(f"ml/train/{number}")[0] for number in range(2)} == {(FIRST,), (SECOND,)}


def test_a_kubelet_that_has_just_started_ends_nobody(node: Node) -> None:
    # It may not list all of its pods yet; the real one reads them from the API server first.
    node.config["settle_seconds"] = 3600
    node.start()
    node.kubelet.admit("ml/first/main", hami(6000))
    node.kubelet.begin("ml/first/main")
    node.kubelet.admit("ml/second/main", hami(5000))
    node.kubelet.end("ml/first/main")

    with pytest.raises(grpc.RpcError):
        node.kubelet.begin("ml/second/main")


def test_whose_units_the_kubelet_offers_is_over(node: Node) -> None:
    # The whole GPU is free, and the kubelet says so at once, by what it offers.
    node.config |= {"settle_seconds": 3600, "gpus": GPUS[:1]}
    node.start()
    for number in range(2):
        node.kubelet.admit(f"ml/train/{number}", hami(1000))
        node.kubelet.begin(f"ml/train/{number}")
    for number in range(2):
        node.kubelet.end(f"ml/train/{number}")

    node.kubelet.admit("ml/whole/main", hami(0))
    node.kubelet.begin("ml/whole/main")

    assert node.held("ml/whole/main") == ((FIRST,), 4000 * MIB, 0)


@pytest.mark.parametrize("always_asks", [False, True])
def test_whose_units_the_kubelet_gives_out_is_over(node: Node, always_asks: bool) -> None:
    # Most offer nothing where as many are asked for as are left.
    node.kubelet.always_asks = always_asks
    node.config |= {"settle_seconds": 3600, "gpus": GPUS[:2], "slots": 2}
    node.start()
    for number in range(2):
        node.kubelet.admit(f"ml/train/{number}", hami(2500))
        node.kubelet.begin(f"ml/train/{number}")
    node.kubelet.admit("ml/waits/main", hami(3000))
    with pytest.raises(grpc.RpcError):
        node.kubelet.begin("ml/waits/main")

    node.kubelet.end("ml/train/0")
    node.kubelet.admit("ml/late/main", hami(2500, gpus=2))
    node.kubelet.begin("ml/waits/main")

    assert node.held("ml/waits/main") == ((FIRST,), 3000 * MIB, 0)


def test_a_new_container_ends_the_one_whose_units_it_has(node: Node) -> None:
    node.config |= {"settle_seconds": 3600, "gpus": GPUS[:1]}
    node.start()
    node.kubelet.admit("ml/train/main", hami(4000))
    node.kubelet.begin("ml/train/main")
    left = node.box(node.kubelet.containers["ml/train/main"]) / "state" / "left"
    left.write_text("a ledger")

    # A pod of the same name, with the same units, and yet another one.
    node.kubelet.end("ml/train/main")
    node.kubelet.admit("ml/train/main", hami(4000))
    gone = not left.exists()
    node.kubelet.begin("ml/train/main")

    assert gone
    assert node.held("ml/train/main") == ((FIRST,), 4000 * MIB, 0)


def test_a_container_that_starts_again_keeps_its_gpu_and_its_ledger(node: Node) -> None:
    node.start()
    node.kubelet.admit("ml/train/main", hami(3000, 30))
    node.kubelet.begin("ml/train/main")
    before = node.held("ml/train/main")
    left = node.box(node.kubelet.containers["ml/train/main"]) / "state" / "left"
    left.write_text("a ledger")
    node.kubelet.admit("ml/other/main", hami(100))
    node.kubelet.begin("ml/other/main")

    node.kubelet.begin("ml/train/main")

    assert node.held("ml/train/main") == before
    assert left.read_text() == "a ledger"


def test_a_container_starts_again_where_the_kubelet_lists_no_pods(node: Node) -> None:
    node.start()
    node.kubelet.admit("ml/train/main", hami(3000, 30))
    node.kubelet.begin("ml/train/main")
    before = node.held("ml/train/main")
    node.kubelet.pods_socket.unlink()

    node.kubelet.begin("ml/train/main")
    node.kubelet.admit("ml/other/main", hami(100))
    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.begin("ml/other/main")

    assert node.held("ml/train/main") == before
    assert "list of pods" in refused.value.details()


def test_a_new_kubelet_is_registered_with_and_knows_the_same_containers(node: Node) -> None:
    node.start()
    node.kubelet.admit("ml/train/main", hami(3000))
    node.kubelet.begin("ml/train/main")
    before = node.held("ml/train/main")

    node.kubelet.restart()
    node.kubelet.await_plugins(HAMI)
    node.kubelet.begin("ml/train/main")

    assert node.held("ml/train/main") == before


def test_a_kubelet_that_lost_the_plugins_is_registered_with_again(node: Node) -> None:
    # It answers a registration before it tries to reach the plugin, and never says that it cannot.
    from .kubelet import wait_for

    node.start()
    before = dict(node.kubelet.watches)
    node.kubelet.drop_watches()

    wait_for(
        lambda: all(node.kubelet.watches[name] > count for name, count in before.items()),
        "it does not watch",
    )

    assert "the kubelet no longer knows this agent" in node.said.read_text()


def test_a_container_that_started_without_being_asked_for_is_set_right_by_its_next_start(
    node: Node,
) -> None:
    # It waits for room, the kubelet is replaced, and starts it before the agent has registered.
    node.config["gpus"] = GPUS[:2]
    node.start()
    for name in ("ml/first/main", "ml/second/main"):
        node.kubelet.admit(name, hami(3000))
        node.kubelet.begin(name)
    waits = node.kubelet.admit("ml/waits/main", hami(2000))
    with pytest.raises(grpc.RpcError):
        node.kubelet.begin("ml/waits/main")
    node.kill()
    node.kubelet.end("ml/first/main")
    node.kubelet.restart()

    node.kubelet.begin("ml/waits/main")
    # A library finds a folder in the limit's place, and refuses the GPU.
    was_folder = (node.box(waits) / "gpufence.conf").is_dir()
    node.start()
    node.kubelet.begin("ml/waits/main")

    assert was_folder
    assert node.held("ml/waits/main") == ((FIRST,), 2000 * MIB, 0)
    assert (node.box(waits) / "state").stat().st_mode & 0o7777 == 0o1777


def test_a_container_whose_limit_is_a_folder_is_set_right_while_the_agent_runs(node: Node) -> None:
    node.start()
    container = node.kubelet.admit("ml/train/main", hami(2000))
    (node.box(container) / "gpufence.conf").mkdir(parents=True)

    node.kubelet.begin("ml/train/main")

    assert node.held("ml/train/main") == ((LARGE,), 2000 * MIB, 0)


def test_an_old_kubelet_hands_the_cdi_device_on_as_an_annotation(node: Node) -> None:
    # Before 1.28 it passes by the field of CDI devices, and hands annotations on to the runtime.
    node.start()

    container = node.kubelet.admit("ml/train/main", hami(3000))

    told = {key: text for a in container.answers.values() for key, text in a.annotations.items()}
    (device,) = {each.name for a in container.answers.values() for each in a.cdi_devices}
    assert told == {"cdi.k8s.io/gpufence_container": device}


def test_an_agent_that_starts_first_waits_for_the_kubelet(node: Node) -> None:
    from .kubelet import wait_for

    node.kubelet.stop()
    for path in node.kubelet.folder.glob("*.sock"):
        path.unlink()
    node.launch()
    wait_for(lambda: "waiting for" in node.said.read_text(), "the agent says nothing")

    node.kubelet.start()
    node.kubelet.await_plugins(HAMI)

    assert len(node.kubelet.units("nvidia.com/gpu")) == 10 * len(GPUS)
    assert len(node.kubelet.units("nvidia.com/gpumem")) == 16000
    assert len(node.kubelet.units("nvidia.com/gpucores")) == 100 * len(GPUS)


def test_a_kubelet_that_registers_nothing_is_asked_again_and_told_of_once(node: Node) -> None:
    from .kubelet import wait_for

    node.kubelet.refused = 3
    node.start()
    wait_for(lambda: "gpufence: registered" in node.said.read_text(), "it is not registered")

    lines = node.said.read_text().splitlines()

    assert node.kubelet.refused == 0
    assert [line for line in lines if "is not registered" in line] == [
        "gpufence: nvidia.com/gpu is not registered: failed_precondition: not now"
    ]


def test_a_container_that_asks_for_memory_alone_is_refused(node: Node) -> None:
    node.start()
    node.kubelet.admit("ml/train/main", {"nvidia.com/gpumem": 3000})

    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.begin("ml/train/main")

    assert "asks for nvidia.com/gpumem and no nvidia.com/gpu" in refused.value.details()


def test_units_that_there_are_not_are_refused(node: Node) -> None:
    node.start()

    for name in ("g1e", "m0", "g01", "nosuch", ""):
        with pytest.raises(grpc.RpcError) as refused:
            node.kubelet.allocate("nvidia.com/gpu", [name])
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION

    node.kubelet.allocate("nvidia.com/gpu", ["g1d"])


def test_a_list_that_a_kubelet_could_not_read_is_refused(node: Node) -> None:
    # Just below the limit the kubelet, which takes 4 MiB, reads it (kubelet.py does as it does).
    node.config["gpus"] = [{"uuid": FIRST, "memory": "215GiB"}]
    node.start()
    assert len(node.kubelet.units("nvidia.com/gpumem")) == 215 << 10
    assert node.end() == 0

    node.config["gpus"] = [{"uuid": FIRST, "memory": "225GiB"}]
    node.launch()

    assert node.ended() == 2
    assert "230400 units of it are more than a kubelet reads" in node.said.read_text()


def test_who_speaks_no_grpc_keeps_nobody_from_being_served(node: Node) -> None:
    node.start()
    path = str(node.kubelet.folder / node.kubelet.registered["nvidia.com/gpu"].endpoint)
    with ExitStack() as stack:
        for number in range(100):
            other = stack.enter_context(socket.socket(socket.AF_UNIX))
            other.connect(path)
            if number % 3:
                with suppress(OSError):
                    other.sendall(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else bytes(5000))

        node.kubelet.admit("ml/train/main", hami(3000))
        node.kubelet.begin("ml/train/main")

    assert node.held("ml/train/main") == ((LARGE,), 3000 * MIB, 0)


def test_nobody_but_the_agents_user_may_speak_with_it(node: Node) -> None:
    node.start()

    modes = [
        (node.kubelet.folder / request.endpoint).stat().st_mode & 0o777
        for request in node.kubelet.registered.values()
    ]

    assert modes == [0o600] * 3


def test_what_a_killed_agent_left_behind_is_removed(node: Node) -> None:
    orphan = node.agent / "containers" / "g7" / "state"
    orphan.mkdir(parents=True)
    cdi = Path(node.config["cdi_dir"])
    cdi.mkdir()
    ours, others = cdi / "gpufence-container-g7.json", cdi / "gpufence.json"
    ours.write_text("{}")
    others.write_text("{}")

    node.start()

    assert not orphan.parent.exists()
    assert (ours.exists(), others.exists()) == (False, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": GPUS[:2]}, f"it has {LARGE}, which"),
        ({"gpus": [*GPUS[:2], {**GPUS[2], "memory": "2GiB"}]}, "3145728000 bytes"),
        ({"preset": "volcano"}, "it has nvidia.com/gpu, which"),
    ],
)
def test_an_agent_does_not_start_where_its_containers_would_not_fit(
    node: Node, change: dict[str, object], said: str
) -> None:
    node.start()
    node.kubelet.admit("ml/train/main", hami(3000))
    node.kubelet.begin("ml/train/main")
    node.kill()

    node.config |= change
    node.launch()

    assert node.ended() == 1
    assert said in node.said.read_text()


def test_a_second_agent_in_the_same_folder_is_refused(node: Node) -> None:
    node.start()
    first = node.process
    node.launch()

    status = node.ended()
    node.process = first

    assert status == 1
    assert "another agent runs with it" in node.said.read_text()


def test_an_agent_ends_by_sigterm_and_takes_its_sockets_away(node: Node) -> None:
    node.start()

    status = node.end()

    assert status == 0
    assert sorted(path.name for path in node.kubelet.folder.iterdir()) == [
        "kubelet.sock",
        "pods.sock",
    ]


def test_what_an_annotation_says_reaches_a_container_that_runs(node: Node) -> None:
    server = Server()
    node.config["annotations"] = ["cores"]
    node.config["api_server"] = f"http://127.0.0.1:{server.http.server_address[1]}"
    node.start()
    container = node.kubelet.admit("ml/train/main", hami(3000, 50))
    node.kubelet.begin("ml/train/main")
    path = limits_file.path_of(node.box(container) / "state", "c1")
    setting.apply(Container("c1", None, path, os.geteuid()), lambda entries: entries)

    def cores() -> int | None:
        found = limits_file.read(path, os.geteuid())
        return found.entries.get(EVERY_GPU, Amounts()).cores if found else None

    said = pod("train", **{"main.gpufence.io/cores": "30"})
    server.events.put({"type": "ADDED", "object": said})
    wait_for(lambda: cores() == 30_000, "the annotation")
    node.kill()
    node.start()
    server.items = [pod("train")]
    server.events.put(None)
    server.events.put(None)
    wait_for(lambda: cores() is None, "that it is taken back")
    server.http.shutdown()
