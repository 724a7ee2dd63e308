"""Alnair's socket and workspaces, as its library and its node tools use them, and hostile clients.

Clients connect from a mount namespace with the mounts that the kubelet was told, as a container has
them: the kernel tells the agent whose they are.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import MIB, Node
from .kubelet import wait_for

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("unshare"),
    reason="only root can have mounts of its own, by unshare of util-linux",
)
SOCKET = "/run/alnair/alnair.sock"
WORKSPACE = "/var/lib/alnair/workspace"
ASKED = {"alnair/vgpu-memory": 2, "alnair/vgpu-compute": 30}

MOUNTS = ["unshare", "--mount", "--propagation=private"]
MOUNTED = """
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done
shift
exec "$@"
"""
# Connects inside, and hands the connection out: the kernel goes on saying whose it is.
CONNECTS = """
import socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
while channel.recv(1):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(sys.argv[2])
        socket.send_fds(channel, [b"c"], [made.fileno()])
"""


class Inside:
    """A process in a container that has those mounts."""

    def __init__(self, mounts: dict[str, str]) -> None:
        self._channel, theirs = socket.socketpair()
        words = [word for inside, outside in mounts.items() for word in (outside, inside)]
        program = [sys.executable, "-c", CONNECTS, str(theirs.fileno()), SOCKET]
        self.process = subprocess.Popen(
            [*MOUNTS, "sh", "-ec", MOUNTED, "sh", *words, "--", *program],
            pass_fds=[theirs.fileno()],
            text=True,
        )
        theirs.close()

    def connect(self) -> socket.socket:
        """A connection of its own."""
        self._channel.send(b"c")
        _, found, _, _ = socket.recv_fds(self._channel, 1, 1)
        return socket.socket(fileno=found[0])

    def says(self, line: bytes) -> str:
        """What is answered to a line, until the other side hangs up."""
        with self.connect() as client:
            client.sendall(line)
            return heard(client)

    def end(self) -> None:
        """It is over."""
        self._channel.close()
        self.process.wait()


def heard(client: socket.socket) -> str:
    """All that comes until the other side hangs up."""
    found = b""
    try:
        while came := client.recv(1000):
            found += came
    except ConnectionResetError:
        pass  # it hung up with something unread
    return found.decode()


class Cluster:
    """An agent with Alnair's socket, and containers that run."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.run = node.folder / "run" / "alnair"
        self.root = node.folder / "workspaces"
        node.config |= {
            "preset": "alnair",
            "alnair_dir": str(self.run),
            "alnair_workspaces": str(self.root),
        }
        self.inside: dict[str, Inside] = {}
        self.mounts: dict[str, dict[str, str]] = {}
        self.ids: dict[str, str] = {}

    def begin(self, owner: str) -> Inside:
        """A container begins."""
        container = self.node.kubelet.admit(owner, ASKED)
        told = [mount for answer in container.answers.values() for mount in answer.mounts]
        self.node.kubelet.begin(owner)
        self.ids[owner] = self.node.box(container).name
        folders = {each.container_path: each.host_path for each in told}
        self.mounts[owner] = {k: v for k, v in folders.items() if Path(v).is_dir()}
        self.inside[owner] = Inside(self.mounts[owner])
        return self.inside[owner]

    def line(self, owner: str, path: str = "/kubepods/pod1/abc") -> bytes:
        """What Alnair's library says of the container."""
        return f"{path} {self.ids[owner]}\n".encode()

    def text(self, owner: str, name: str) -> str:
        """A file of its workspace."""
        return (self.root / self.ids[owner] / name).read_text()


@pytest.fixture
def cluster(node: Node) -> Iterator[Cluster]:
    made = Cluster(node)
    node.start()
    yield made
    for each in made.inside.values():
        each.end()


def test_a_container_has_alnairs_variables_mounts_and_workspace(cluster: Cluster) -> None:
    cluster.begin("ml/train/main")

    identity = cluster.ids["ml/train/main"]
    edits = next(Path(cluster.node.config["cdi_dir"]).glob("*.json")).read_text()
    for told in (
        f"ALNAIR_ID={identity}",
        f"ALNAIR_SOCKET={SOCKET}",
        f"ALNAIR_WORKSPACE_PATH={WORKSPACE}",
        "ALNAIR_VGPU_COMPUTE_PERCENTILE=30",
    ):
        assert f'"{told}"' in edits
    assert cluster.mounts["ml/train/main"]["/run/alnair"] == str(cluster.run)
    assert cluster.mounts["ml/train/main"][WORKSPACE] == str(cluster.root / identity)
    assert cluster.text("ml/train/main", "limits") == f"vmem:{2048 * MIB}"
    assert cluster.text("ml/train/main", "podInfo") == "podName:train\nnamespace:ml\n"


@pytest.mark.parametrize("path", ["/kubepods/pod1/abc", "", "/a b/../../etc"])
def test_a_process_registers_as_alnairs_library_does(cluster: Cluster, path: str) -> None:
    # An empty path is what it finds where there is cgroup v2.
    container = cluster.begin("ml/train/main")

    assert container.says(cluster.line("ml/train/main", path)) == "ok"

    pids = cluster.text("ml/train/main", "cgroup.procs").splitlines()
    assert pids == [str(container.process.pid)]
    where = Path(f"/proc/{container.process.pid}/cgroup").read_text()
    assert f"{cluster.text('ml/train/main', 'containerID')}" in where


def test_what_a_container_had_is_gone_when_it_is_over(cluster: Cluster) -> None:
    container = cluster.begin("ml/train/main")
    container.says(cluster.line("ml/train/main"))
    cluster.node.kubelet.end("ml/train/main")

    cluster.begin("ml/other/main")

    assert cluster.text("ml/other/main", "podInfo") == "podName:other\nnamespace:ml\n"
    left = {path.name for path in cluster.root.iterdir()}
    assert left == {cluster.ids["ml/other/main"]}
    if cluster.ids["ml/other/main"] == cluster.ids["ml/train/main"]:
        names = {path.name for path in (cluster.root / cluster.ids["ml/other/main"]).iterdir()}
        assert names == {"limits", "podInfo"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "no line came"),
        (b"/path ID", "no line came"),
        (b"\n", "no line of a path"),
        (b"ID\n", "no line of a path"),
        (b"/path \n", "no line of a path"),
        (b"/path ../ID\n", "no line of a path"),
        (b"/path ID/..\n", "no line of a path"),
        (b"/path ..\n", "no line of a path"),
        (b"/path ID\0\n", "no line of a path"),
        (b"/path \xff\xfe\n", "no line of a path"),
        (b"/path OTHER\n", "another container's"),
        (b"/path unknown\n", "another container's"),
        (b"/" * 100_000, "too long"),
        (b"/" * 100_000 + b" ID\n", "too long"),
    ],
)
def test_a_line_that_is_none_is_refused_and_harms_nobody(
    cluster: Cluster, line: bytes, told: str
) -> None:
    container = cluster.begin("ml/bad/main")
    other = cluster.begin("ml/good/main")
    names = {b"ID": "ml/bad/main", b"OTHER": "ml/good/main"}
    for word, owner in names.items():
        line = line.replace(word, cluster.ids[owner].encode())
    before = sorted(cluster.node.folder.rglob("*"))

    with container.connect() as client:
        try:
            client.sendall(line)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was hung up on meanwhile
        answer = heard(client)

    assert told in answer
    assert "\n" not in answer
    assert sorted(cluster.node.folder.rglob("*")) == before
    assert other.says(cluster.line("ml/good/main")) == "ok"


def test_clients_that_go_at_once_do_no_harm(cluster: Cluster) -> None:
    container = cluster.begin("ml/train/main")

    for _ in range(200):
        container.connect().close()
        with container.connect() as client:
            client.send(cluster.line("ml/train/main"))

    assert container.says(cluster.line("ml/train/main")) == "ok"


def test_a_thousand_silent_connections_of_one_container_leave_room_for_another(
    cluster: Cluster,
) -> None:
    flood = cluster.begin("ml/flood/main")
    other = cluster.begin("ml/other/main")

    waiting = other.connect()
    held = [flood.connect() for _ in range(1000)]

    waiting.sendall(cluster.line("ml/other/main"))
    assert heard(waiting) == "ok"
    waiting.close()
    assert other.says(cluster.line("ml/other/main")) == "ok"
    refused = [client for client in held if heard(client).startswith("too many")]
    assert len(refused) > 0
    for client in held:
        client.close()
    assert flood.says(cluster.line("ml/flood/main")) == "ok"


def test_a_slow_writer_delays_nobody_and_is_hung_up_on(cluster: Cluster) -> None:
    slow = cluster.begin("ml/slow/main")
    other = cluster.begin("ml/other/main")

    with slow.connect() as client:
        for byte in b"/path":
            client.send(bytes([byte]))
            assert other.says(cluster.line("ml/other/main")) == "ok"
        assert heard(client) == "no line came"


def test_a_line_may_come_in_parts(cluster: Cluster) -> None:
    container = cluster.begin("ml/train/main")

    with container.connect() as client:
        for byte in cluster.line("ml/train/main"):
            client.send(bytes([byte]))

        assert heard(client) == "ok"


def test_links_in_a_workspace_lead_the_agent_nowhere(cluster: Cluster) -> None:
    container = cluster.begin("ml/train/main")
    victim = cluster.node.folder / "victim"
    victim.write_text("mine")
    workspace = cluster.root / cluster.ids["ml/train/main"]
    for name in ("cgroup.procs", "containerID"):
        (workspace / name).symlink_to(victim)

    assert container.says(cluster.line("ml/train/main")) == "ok"
    assert victim.read_text() == "mine"

    (workspace / "cgroup.procs").unlink()
    (workspace / "cgroup.procs").mkdir()
    assert "the workspace cannot be written" in container.says(cluster.line("ml/train/main"))
    assert sorted(path.name for path in workspace.iterdir()) == [
        "cgroup.procs",
        "containerID",
        "limits",
        "podInfo",
    ]


def test_who_is_in_no_container_is_refused(cluster: Cluster) -> None:
    cluster.begin("ml/train/main")
    mounts = cluster.mounts["ml/train/main"]

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(cluster.run / "alnair.sock"))
        client.sendall(cluster.line("ml/train/main"))
        assert "has no GPU of this agent" in heard(client)

    # A link to another container's folder, which would lead there on the host.
    home = cluster.node.folder / "home"
    home.mkdir()
    (home / "gpufence").symlink_to(mounts["/run/gpufence"])
    (home / "alnair").mkdir()
    stranger = Inside({"/run": str(home), "/run/alnair": str(cluster.run)})
    assert "has no GPU of this agent" in stranger.says(cluster.line("ml/train/main"))
    stranger.end()


def test_a_container_registers_with_an_agent_that_came_later(cluster: Cluster) -> None:
    container = cluster.begin("ml/train/main")
    cluster.node.kill()
    cluster.node.start()

    wait_for((cluster.run / "alnair.sock").exists, "the socket")

    assert container.says(cluster.line("ml/train/main")) == "ok"


def test_the_socket_is_there_only_where_it_is_asked_for(node: Node) -> None:
    node.start()
    node.kubelet.admit("ml/train/main", {"nvidia.com/gpu": 1})
    node.kubelet.begin("ml/train/main")

    assert list(node.folder.rglob("alnair.sock")) == []
    assert "ALNAIR" not in next(Path(node.config["cdi_dir"]).glob("*.json")).read_text()
