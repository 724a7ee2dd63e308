"""An agent that runs answers vgpu.rs's limiter: its containers, by the API server's word."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster, serving
from .conftest import HAMI, MIB, Node
from .kubelet import wait_for
from .test_hypervisor import status_of, token_of


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with serving() as made:
        yield made


def test_an_agent_tells_a_pod_what_it_gave_to_it(node: Node, cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = f"127.0.0.1:{port}"
    node.config |= {"hypervisor_listen": listen, "api_server": cluster.address}
    token = token_of("ml/train")
    cluster.tokens[token] = status_of("ml/train")

    def ask(token: str) -> Any:  # noqa: ANN401 - JSON
        asked = urllib.request.Request(
            f"http://{listen}/api/v1/pod?container_pid=1&container_name=main",
            headers={"Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read())

    node.start()
    wait_for(lambda: node.said.exists() and listen in node.said.read_text(), "it does not listen")
    before = ask(token)
    container = node.kubelet.admit("ml/train/main", {HAMI[0]: 1, HAMI[1]: 700})
    node.kubelet.begin("ml/train/main")
    told = ask(token)
    forged = ask(token_of("ml/train", "forged"))

    gpus, memory, _ = node.held("ml/train/main")
    assert (before["success"], forged["success"], told["success"]) == (False, False, True)
    assert (told["data"]["gpu_uuids"], told["data"]["vram_limit"]) == (list(gpus), memory)
    assert memory == 700 * MIB
    shared = [
        mount
        for answer in container.answers.values()
        for mount in answer.mounts
        if mount.container_path == "/run/tensor-fusion/shm"
    ]
    assert [each.read_only for each in shared] == [True]
    content = (Path(shared[0].host_path) / "shm").read_bytes()
    assert content[8 : 8 + len(gpus[0])].decode() == gpus[0]
    assert cluster.reviewed == [token, token_of("ml/train", "forged")]
