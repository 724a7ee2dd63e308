"""A node of Kubernetes with one GPU: the agent runs, the kubelet and the API server are played.

Containers are made as the agent says: mount and pid namespaces of their own, with the mounts that
it answered the kubelet and the variables of its CDI file. The machine's own /etc and /run stay as
they are. Must not know what runs in the containers, nor what is judged.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setup import REPO, Setup, import_our_tests, run

if TYPE_CHECKING:
    from tests.node.kubelet import Kubelet
    from tests.node.test_pods import Server

RESOURCES = ("gpufence.io/gpu", "gpufence.io/memory-mib", "gpufence.io/cores")
ANNOTATIONS = ("cores", "soft-cores", "priority", "weight", "frozen")
PATIENCE_S = 20.0
# By the driver itself, which counts only the GPUs that CUDA_VISIBLE_DEVICES leaves.
ASK_UUID = """
import ctypes, uuid
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(16)
device, size = ctypes.c_int(), ctypes.c_size_t()
for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
             cuda.cuDeviceGetUuid_v2(found, device),
             cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)):
    assert code == 0, code
print("GPU-" + str(uuid.UUID(bytes=found.raw)), size.value)
"""


class StageError(Exception):
    """The node is not there, or not in time; the text says why."""


@dataclass(slots=True)
class Box:
    """A container that the agent gave its limits: its folder on the host, mounts and variables."""

    owner: str
    folder: Path
    own: Path  # an empty folder, for what the container sees instead of the machine's
    mounts: tuple[tuple[str, str, bool], ...]  # on the host, inside, whether it is read-only
    env: Mapping[str, str]
    first: subprocess.Popen[str] | None = None  # keeps its namespaces, as a pod's first process

    @property
    def state(self) -> Path:
        """Its ledger, as an operator finds it."""
        return self.folder / "state"

    @property
    def name(self) -> str:
        """As the library calls it; StageError before its first program used the GPU."""
        found = {path.name.partition(".")[0] for path in self.state.glob("gpufence-*.v*")}
        if len(found) != 1:
            raise StageError(f"{self.owner} has {len(found)} ledgers")
        return found.pop().removeprefix("gpufence-")

    def start(self) -> None:
        """Make its namespaces, with everything mounted."""
        kinds = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self.first = subprocess.Popen(
            ["unshare", *kinds, "sh", "-euc", self._script()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.first.stdout
        assert self.first.stderr
        if self.first.stdout.readline() != "ready\n":
            raise StageError(f"{self.owner} does not start: {self.first.stderr.read()[-200:]}")

    def end(self) -> None:
        """Everybody in it ends."""
        if self.first is not None:
            self.first.kill()
            self.first.communicate()

    @property
    def pid(self) -> int:
        """Its first process, as the host counts."""
        assert self.first
        path = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children")
        return int(path.read_text(encoding="ascii").split()[0])

    def command(self, words: Sequence[object]) -> list[str]:
        """The command line that runs a program in it."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--", *map(str, words)]

    def _script(self) -> str:
        own = shlex.quote(str(self.own))
        lines = [f"cd {own}", "mkdir etc run lib"]
        # Copied or bound, so that what is mounted below has its place in the container alone.
        lines += ["cp -a /etc/. etc/ 2>/dev/null || true", "for each in /run/*; do"]
        lines += ['  [ -d "$each" ] && [ ! -L "$each" ] || continue']
        lines += ['  mkdir -p ".$each"; mount --rbind "$each" ".$each"', "done"]
        lines += ["mount --rbind etc /etc", "mount --rbind run /run"]
        lines += [f"mount --bind lib {shlex.quote(str(LIBRARY_FOLDER))}", "cd /"]
        for outside, inside, read_only in sorted(self.mounts, key=_preload_last):
            place, source = shlex.quote(inside), shlex.quote(outside)
            if Path(outside).is_dir():
                lines.append(f"mkdir -p {place}")
            else:
                lines.append(f"mkdir -p $(dirname {place}); touch {place}")
            lines.append(f"mount --bind {source} {place}")
            if read_only:
                lines.append(f"mount -o remount,bind,ro {place}")
        return "\n".join([*lines, "echo ready", "exec sleep infinity"])


LIBRARY_FOLDER = Path("/usr/lib/gpufence")


def _preload_last(mount: tuple[str, str, bool]) -> bool:
    """From then on every program loads the library, mount(8), too."""
    return mount[1] == "/etc/ld.so.preload"


@dataclass(frozen=True, slots=True)
class Stage:
    """The node while it runs."""

    setup: Setup
    folder: Path
    uuid: str
    kubelet: Kubelet
    server: Server
    said: Path  # what the agent says
    boxes: list[Box]

    @property
    def agent(self) -> Path:
        """The agent's folder."""
        return self.folder / "agent"

    def container(self, pod: str, memory_mib: int, cores: int) -> Box:
        """A pod with one container comes to the node and is started."""
        owner = f"ml/{pod}/main"
        self.kubelet.admit(owner, dict(zip(RESOURCES, (1, memory_mib, cores), strict=True)))
        self.kubelet.begin(owner)
        answers = self.kubelet.containers[owner].answers.values()
        (device,) = {each.name for answer in answers for each in answer.cdi_devices}
        key = device.rpartition("=")[2]
        mounts = {(m.host_path, m.container_path, m.read_only) for a in answers for m in a.mounts}
        document = json.loads((self.folder / f"cdi/gpufence-container-{key}.json").read_text())
        edits = next(one["containerEdits"] for one in document["devices"] if one["name"] == key)
        env = dict(text.split("=", 1) for text in edits["env"])
        if env["NVIDIA_VISIBLE_DEVICES"] != self.uuid:
            raise StageError(f"{owner} got {env['NVIDIA_VISIBLE_DEVICES']}, not {self.uuid}")
        env["CUDA_VISIBLE_DEVICES"] = self.uuid  # what NVIDIA's runtime does with it
        (self.folder / f"own-{pod}").mkdir()
        folder, own = self.agent / "containers" / key, self.folder / f"own-{pod}"
        self.boxes.append(Box(owner, folder, own, tuple(sorted(mounts)), env))
        self.boxes[-1].start()
        return self.boxes[-1]

    def environment(self, box: Box | None = None) -> dict[str, str]:
        """Of a program in a container; of one beside all containers."""
        bare = self.setup.environment(preload=False, extra={"CUDA_VISIBLE_DEVICES": self.uuid})
        return {**bare, **(box.env if box else {})}

    def annotate(self, pod: str, **said: str) -> None:
        """What `kubectl annotate` does; all of the pod's words, each time."""
        from tests.node import test_pods

        named = {f"gpufence.io/{name.replace('_', '-')}": text for name, text in said.items()}
        event = {"type": "MODIFIED", "object": test_pods.pod(pod, **named)}
        self.server.events.put(event)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of an operator."""
        return subprocess.run(
            [sys.executable, "-m", "gpufence", *words],
            env={**self.environment(), "PYTHONPATH": str(self.folder / "tools")},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


def wait_until(condition: Any, what: str, patience_s: float = PATIENCE_S) -> None:  # noqa: ANN401
    """Until it, any callable, is true; StageError if it is not in time."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise StageError(f"{what}: not within {patience_s:g} s")
        time.sleep(0.01)


def gpu_here(setup: Setup) -> tuple[str, int]:
    """UUID and bytes of the first GPU that this run may use."""
    done = run([sys.executable, "-c", ASK_UUID], setup.environment(preload=False), 60)
    if done.status != 0:
        raise StageError(f"no GPU can be asked: {done.stderr[-200:]}")
    uuid, size = done.stdout.split()
    return uuid, int(size)


@contextmanager
def stage(setup: Setup, folder: Path) -> Iterator[Stage]:
    """Starts the node, and ends all of it."""
    # gRPC is not part of every machine with a GPU: only here.
    import_our_tests()
    from tests.node.kubelet import Kubelet
    from tests.node.test_pods import Server

    uuid, size = gpu_here(setup)
    for name in ("plugins", "cdi", "turns"):
        (folder / name).mkdir()
    (folder / "turns").chmod(0o1777)
    made = not LIBRARY_FOLDER.exists()
    LIBRARY_FOLDER.mkdir(parents=True, exist_ok=True)
    kubelet, server = Kubelet(folder / "plugins", random.Random(21)), Server()
    kubelet.start()
    agent: subprocess.Popen[bytes] | None = None
    boxes: list[Box] = []
    try:
        _install(setup, folder)
        _configure(folder, kubelet, server, uuid, size)
        agent = _agent(setup, folder)
        there = lambda: set(RESOURCES) <= set(kubelet.registered) or agent.poll() is not None  # noqa: E731
        wait_until(there, "the agent's plugins")
        if agent.poll() is not None:
            raise StageError(f"the agent ended: {(folder / 'said.txt').read_text()[-300:]}")
        yield Stage(setup, folder, uuid, kubelet, server, folder / "said.txt", boxes)
    finally:
        for box in boxes:
            box.end()
        if agent is not None:
            agent.terminate()
            with suppress(subprocess.TimeoutExpired):
                agent.wait(10)
            agent.kill()
        server.events.put(None)
        server.http.shutdown()
        kubelet.stop()
        if made:
            with suppress(OSError):
                LIBRARY_FOLDER.rmdir()


def _install(setup: Setup, folder: Path) -> None:
    """The tools with their libraries beside them, as a package has them, whatever the build is."""
    package = folder / "tools" / "gpufence"
    shutil.copytree(
        REPO / "tools" / "gpufence", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("layouts", "limits"):
        shutil.copytree(REPO / "lib" / name, package / name)
    (package / "lib").mkdir(exist_ok=True)
    for path in [*setup.library.parent.glob("*.so"), *(REPO / "deploy").glob("ld.so.preload*")]:
        shutil.copy(path, package / "lib" / path.name)


def _configure(folder: Path, kubelet: Kubelet, server: Server, uuid: str, size: int) -> None:
    config = {
        "preset": "gpufence",
        "gpus": [{"uuid": uuid, "memory": f"{size >> 20}MiB"}],
        "folder": str(folder / "agent"),
        "plugin_dir": str(folder / "plugins"),
        "pod_resources": str(kubelet.pods_socket),
        "cdi_dir": str(folder / "cdi"),
        "node_dir": str(folder / "turns"),
        "settle_seconds": 0,
        "annotations": list(ANNOTATIONS),
        "api_server": f"http://127.0.0.1:{server.http.server_address[1]}",
    }
    (folder / "node.json").write_text(json.dumps(config), encoding="utf-8")


def _agent(setup: Setup, folder: Path) -> subprocess.Popen[bytes]:
    words = ["node", "serve", f"--config={folder / 'node.json'}", f"--lib={setup.library}"]
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "gpufence", *words],
            env={**os.environ, "PYTHONPATH": str(folder / "tools")},
            stdin=subprocess.DEVNULL,
            stderr=said,
        )
