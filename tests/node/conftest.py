"""A node: a kubelet, an agent as a process of its own, and the files between them."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .kubelet import Container, Kubelet

REPO = Path(__file__).resolve().parents[2]
MIB = 1 << 20
MACHINES = {"x86_64": 62, "aarch64": 183}
GPUS = [
    {"uuid": f"GPU-00000000-0000-0000-0000-00000000000{number}", "memory": memory}
    for number, memory in enumerate(("4000MiB", "4000MiB", "8000MiB"))
]
# Until something that hangs fails its test: an agent takes as long as a busy machine makes it.
SECONDS = 300.0
HAMI = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"]

MISSING = [name for name in ("grpc", "google") if not importlib.util.find_spec(name)]
# These speak gRPC as they are loaded; test_extra.py says that they are left out, and why.
collect_ignore = (
    [
        "test_alnair.py",
        "test_device_plugin.py",
        "test_dra.py",
        "test_enforcer.py",
        "test_hypervisor_agent.py",
        "test_kills.py",
        "test_messages.py",
    ]
    if MISSING
    else []
)


@dataclass(slots=True)
class Node:
    """An agent that runs for a kubelet."""

    kubelet: Kubelet
    folder: Path
    library: Path
    config: dict[str, Any]
    process: subprocess.Popen[str] | None = None
    said: Path = field(init=False)

    def __post_init__(self) -> None:
        self.said = self.folder / "said.txt"

    @property
    def resources(self) -> list[str]:
        """That are expected to be registered."""
        from gpufence.node import config

        made = config.of_table(self.config)
        names = (made.gpu_resource, made.memory_resource, made.core_resource)
        return [name for name in names if name]

    def start(self) -> None:
        """Start the agent; returns when its plugins are registered."""
        self.kubelet.forget()
        self.launch()
        self.kubelet.await_plugins(self.resources)

    def launch(self) -> None:
        """Start the agent and wait for nothing."""
        path = self.folder / "node.json"
        path.write_text(json.dumps(self.config))
        words = [sys.executable, "-m", "gpufence", "node", "serve", f"--config={path}"]
        with self.said.open("a") as said:
            self.process = subprocess.Popen(
                [*words, f"--lib={self.library}"],
                stderr=said,
                stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
                text=True,
            )

    def kill(self) -> None:
        """As by kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """As by SIGTERM; the agent's exit status."""
        assert self.process
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """The exit status of an agent that ends by itself."""
        assert self.process
        return self.process.wait(SECONDS)

    def held(self, owner: str) -> tuple[tuple[str, ...], int, int]:
        """What a started container has."""
        from .kubelet import held

        return held(self.agent, Path(self.config["cdi_dir"]), self.kubelet.containers[owner])

    @property
    def agent(self) -> Path:
        """The agent's folder."""
        return Path(self.config["folder"])

    def box(self, container: Container) -> Path:
        """The container's folder on the host."""
        (device,) = {
            each.name for answer in container.answers.values() for each in answer.cdi_devices
        }
        return self.agent / "containers" / device.rpartition("=")[2]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A kubelet that runs, and an agent that does not yet."""
    from .kubelet import Kubelet

    plugins = tmp_path / "plugins"
    plugins.mkdir()
    kubelet = Kubelet(plugins, random.Random(21))
    kubelet.start()
    config = {
        "preset": "hami",
        "gpus": GPUS,
        "folder": str(tmp_path / "agent"),
        "plugin_dir": str(plugins),
        "pod_resources": str(kubelet.pods_socket),
        "cdi_dir": str(tmp_path / "cdi"),
        "settle_seconds": 0,
    }
    made = Node(kubelet, tmp_path, library_like(tmp_path), config)
    yield made
    if made.process and made.process.poll() is None:
        made.kill()
    kubelet.stop()
    assert "Traceback" not in (made.said.read_text() if made.said.exists() else "")


def library_like(folder: Path) -> Path:
    """A file that looks like our library to the tools."""
    head = struct.pack("<4sBBBB8xHH", b"\x7fELF", 2, 1, 1, 0, 3, MACHINES[os.uname().machine])
    path = folder / "libgpufence.so"
    path.write_bytes(head + bytes(64) + b"\0libgpufence.so\0")
    return path
