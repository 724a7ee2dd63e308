"""What vgpu.rs's limiter is answered by the agent, over sockets, and what hostile clients get.

The API server's word on tokens is the test's. Our own library asks as it does in vgpu.rs's pods.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gpufence.errors import ToolError
from gpufence.node import hypervisor_server, shared_file
from gpufence.node.book import Grant
from gpufence.node.boxes import Boxes
from gpufence.node.hypervisor import Hypervisor

from tests.support.machine import Finished, Sim

GIB = 1 << 30
FIRST, SECOND = (f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))
POD = "/api/v1/pod?container_pid=7&container_name="


def token_of(pod: str, signature: str = "s") -> str:
    """A service account's token as it is bound to a pod."""
    namespace, _, name = pod.partition("/")
    said = {"kubernetes.io": {"namespace": namespace, "pod": {"name": name, "uid": "u"}}}
    payload = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    return f"e30.{payload}.{signature}"


def status_of(pod: str) -> dict[str, Any]:
    """What a TokenReview says of it."""
    namespace, _, name = pod.partition("/")
    extra = {"authentication.kubernetes.io/pod-name": [name]}
    user = {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}
    return {"authenticated": True, "user": user}


class World:
    """An agent with a few containers, at a port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.boxes = Boxes(
            folder, folder / "cdi", "/turns", "/lib", "/pre", "environment", shares=True
        )
        self.held = [
            Grant("g0", "ml/train/main", {}, (FIRST,), 2 * GIB, 30),
            Grant("g1", "ml/train/side", {}, (SECOND,), GIB, 0),
            Grant("g2", "other/train/main", {}, (SECOND,), 4 * GIB, 0),
        ]
        self.tokens: dict[str, Mapping[str, Any]] = {}
        self.reviewed: list[str] = []
        self.now = 100.0
        self.stopped = threading.Event()
        made = Hypervisor(self.boxes, lambda: self.held, self.review, lambda: self.now)
        self.port = hypervisor_server.start("127.0.0.1:0", made.answer, self.stopped)

    def review(self, token: str) -> Mapping[str, Any]:
        self.reviewed.append(token)
        return self.tokens.get(token, {})

    def admit(self, pod: str) -> str:
        """A token that the API server knows."""
        token = token_of(pod)
        self.tokens[token] = status_of(pod)
        return token

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def says(self, text: bytes) -> bytes:
        """All that comes back for these bytes."""
        with self.connect() as made:
            made.sendall(text)
            return heard(made)

    def ask(self, line: str, token: str = "", *more: str) -> tuple[int, Any]:
        """A request's status and the object that comes with it."""
        headers = [f"Authorization: Bearer {token}"] if token else []
        text = "\r\n".join([f"{line} HTTP/1.1", "Host: h", *headers, *more, "", ""])
        head, _, body = self.says(text.encode()).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body else None


def heard(made: socket.socket) -> bytes:
    """Until the other side hangs up."""
    found = b""
    try:
        while came := made.recv(4096):
            found += came
    except ConnectionError:
        pass
    return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "agent")
    yield made
    made.stopped.set()


def test_a_pod_is_told_its_gpus(world: World) -> None:
    status, told = world.ask(f"GET {POD}", world.admit("ml/train"))

    assert status == 200
    assert told["success"] is True
    assert told["data"] == {
        "pod_name": "train",
        "namespace": "ml",
        "gpu_uuids": [FIRST, SECOND],
        "tflops_limit": None,
        "vram_limit": GIB,
        "qos_level": None,
        "compute_shard": False,
        "isolation": "soft",
    }


@pytest.mark.parametrize(("name", "gpus"), [("main", [FIRST]), ("side", [SECOND])])
def test_a_container_that_is_named_is_told_its_own(
    world: World, name: str, gpus: list[str]
) -> None:
    _, told = world.ask(f"GET {POD}{name}", world.admit("ml/train"))

    assert told["data"]["gpu_uuids"] == gpus


def test_the_shared_file_has_each_gpu_by_uuid(world: World) -> None:
    grant = Grant("g0", "ml/train/main", {}, (FIRST, SECOND), 2 * GIB, 30)
    world.boxes.fill(grant)
    mounts = {
        inside: (outside, read_only) for inside, outside, read_only in world.boxes.mounts("g0")
    }
    folder, read_only = mounts["/run/tensor-fusion/shm"]

    content = (Path(folder) / "shm").read_bytes()

    assert read_only
    assert (len(content), struct.unpack_from("<I", content)[0]) == (35504, 1)
    for at, gpu in ((8, FIRST), (144, SECOND)):
        assert content[at : at + 64].rstrip(b"\0").decode() == gpu
        assert struct.unpack_from("<I4xQ", content, at + 64) == (30, 2 * GIB)
        assert struct.unpack_from("<I", content, at + 128) == (1,)
    assert struct.unpack_from("<I", content, 8 + 2 * 136 + 128) == (0,)
    assert struct.unpack_from("<I", content, 8 + 16 * 136) == (2,)


def test_a_share_of_all_the_time_is_written_where_there_is_no_core_limit() -> None:
    content = shared_file.content(Grant("g0", "ml/train/main", {}, (FIRST,), GIB, 0))

    assert struct.unpack_from("<I", content, 8 + 64) == (100,)


def test_more_gpus_than_the_file_has_room_for_are_refused() -> None:
    gpus = tuple(f"GPU-{number}" for number in range(17))

    with pytest.raises(ToolError, match="17 GPUs are more than"):
        shared_file.content(Grant("g0", "ml/train/main", {}, gpus, GIB, 0))


def unsigned(world: World) -> str:
    return token_of("ml/train", "forged")


def of_no_pod(world: World) -> str:
    token = world.admit("ml/train")
    world.tokens[token] = {"authenticated": True, "user": {"username": "admin", "extra": {}}}
    return token


def of_another_namespace(world: World) -> str:
    """It claims to be of a pod of this agent; the server says otherwise."""
    token = token_of("ml/train")
    world.tokens[token] = status_of("evil/train")
    return token


def of_a_pod_without_gpus(world: World) -> str:
    return world.admit("ml/idle")


def expired(world: World) -> str:
    token = world.admit("ml/train")
    world.tokens[token] = {**world.tokens[token], "authenticated": False}
    return token


@pytest.mark.parametrize(
    "make", [unsigned, of_no_pod, of_another_namespace, of_a_pod_without_gpus, expired]
)
def test_nobody_is_told_of_a_pod_but_itself(world: World, make: Any) -> None:  # noqa: ANN401
    token = make(world)

    answers = [world.ask(f"{line}", token) for line in (f"GET {POD}", f"POST {POD}")]
    answers[1] = world.ask("POST /api/v1/process?container_pid=1", token)

    # The same words for all: nobody learns which pods there are.
    message = "no container of that token's pod has a GPU of this agent"
    assert answers == [(200, {"success": False, "data": None, "message": message})] * 2


def test_a_container_of_the_pod_without_a_gpu_is_told_of_none(world: World) -> None:
    _, told = world.ask(f"GET {POD}sidecar", world.admit("ml/train"))

    assert told["success"] is False


@pytest.mark.parametrize(
    ("token", "status"),
    [
        ("", 401),
        ("nothing", 401),
        ("a.b", 401),
        ("a.!!.c", 401),
        ("a.e30.c", 401),
        (f"a.{base64.urlsafe_b64encode(b'[' * 3000).decode()}.c", 401),
        (token_of("a/b/c").replace("=", ""), 401),
    ],
)
def test_what_is_no_token_of_a_pod_is_not_even_reviewed(
    world: World, token: str, status: int
) -> None:
    assert world.ask(f"GET {POD}", token)[0] == status
    assert world.reviewed == []


def test_a_pod_without_gpus_costs_the_api_server_nothing(world: World) -> None:
    world.ask(f"GET {POD}", of_a_pod_without_gpus(world))

    assert world.reviewed == []


def test_a_token_is_reviewed_once_a_minute_and_forged_ones_ten_times_a_second(
    world: World,
) -> None:
    good = world.admit("ml/train")
    for _ in range(5):
        assert world.ask(f"GET {POD}", good)[1]["success"] is True
    assert world.reviewed == [good]

    statuses = [world.ask(f"GET {POD}", token_of("ml/train", f"x{n}"))[0] for n in range(12)]

    assert statuses == [200] * 9 + [503] * 3
    assert len(world.reviewed) == 10
    assert world.ask(f"GET {POD}", good)[1]["success"] is True  # it is remembered
    world.now += 61
    assert world.ask(f"GET {POD}", good)[1]["success"] is True
    assert world.reviewed[-1] == good
    assert len(world.reviewed) == 11


def test_an_api_server_that_cannot_be_asked_is_no_word_on_a_token(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = world.admit("ml/train")

    def fails(_: str) -> Mapping[str, Any]:
        raise ToolError(what="a", why="b", fix="c")

    world.stopped.set()
    made = Hypervisor(world.boxes, lambda: world.held, fails, lambda: 0.0)
    stopped = threading.Event()
    world.port = hypervisor_server.start("127.0.0.1:0", made.answer, stopped)
    status, _ = world.ask(f"GET {POD}", token)
    stopped.set()

    assert status == 503


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /api/v1/pod\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"PUT /api/v1/pod HTTP/1.1\r\n\r\n", 404),
        (b"GET /api/v1/pod/../x HTTP/1.1\r\n\r\n", 404),
        (b"POST /api/v1/process HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nx", 413),
        (b"POST /api/v1/process HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"x" * 16385, 431),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET /readyz HTTP/1.0\r\nX: 1\r\nX: 2\r\n\r\n", 200),
    ],
)
def test_odd_requests_have_their_answer(world: World, text: bytes, status: int) -> None:
    found = world.says(text)

    assert found.startswith(f"HTTP/1.1 {status} ".encode())


def test_clients_that_say_nothing_cost_no_more_than_their_patience(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypervisor_server, "_PATIENCE_S", 0.5)
    before = threading.active_count()
    silent = [world.connect() for _ in range(1000)]
    silent[0].sendall(b"GET / HT")

    # At most so many of one address are served at a time; all of them are hung up on.
    assert threading.active_count() - before <= hypervisor_server._Server.most_of_an_address + 1
    assert [heard(each) for each in silent] == [b""] * 1000
    for each in silent:
        each.close()
    assert world.ask("GET /healthz")[0] == 200


def test_a_crowd_of_one_address_keeps_no_other_one_away(world: World) -> None:
    crowd = [world.connect() for _ in range(100)]

    answered = b""
    with socket.create_connection(
        ("127.0.0.1", world.port), timeout=60, source_address=("127.0.0.2", 0)
    ) as other:
        other.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        answered = heard(other)

    assert answered.startswith(b"HTTP/1.1 200 ")
    for each in crowd:
        each.close()


def test_a_client_that_drips_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor_server, "_PATIENCE_S", 0.5)
    with world.connect() as made:
        assert _drips_until(made, time.monotonic() + 60), "it went on for a minute"


def _drips_until(made: socket.socket, end: float) -> bool:
    """Whether the other side hangs up on who says a byte at a time."""
    with suppress(OSError):
        while time.monotonic() < end:
            made.sendall(b"x")
            time.sleep(0.05)
        return False
    return True


# As a pod of vgpu.rs: its token where Kubernetes mounts it, its state folder where ours is.
SCRIPT = """
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount /run/gpufence
mount --bind "$STATE" /run/gpufence
printf '%s\\n' "$TOKEN" > /run/secrets/kubernetes.io/serviceaccount/token
unset TOKEN STATE
exec "$0" "$@"
"""
needs_mounts = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("unshare") or Path("/var/run").resolve() != Path("/run"),
    reason="only root can mount a token where Kubernetes does, by unshare of util-linux",
)


@pytest.fixture
def two(sim: Sim) -> Sim:
    """Two GPUs whose contexts cost nothing."""
    return sim.with_env(GPUS=2, MEMORY="8GiB", CONTEXT_BYTES=0)


def uuids(sim: Sim) -> list[str]:
    """The GPUs, as NVML names them."""
    return [f"GPU-{uuid.UUID(each['uuid'])}" for each in sim.run("sim_devices").facts["devices"]]


def probe(sim: Sim, world: World, key: str, token: str, name: str) -> Finished:
    """A program in a pod whose only limits are the hypervisor's."""
    shared = dict((inside, outside) for inside, outside, _ in world.boxes.mounts(key))
    own = {
        "HYPERVISOR_IP": "127.0.0.1",
        "HYPERVISOR_PORT": str(world.port),
        "SHM_PATH": shared["/run/tensor-fusion/shm"],
        "CONTAINER_NAME": name,
        "TOKEN": token,
        "STATE": str(world.boxes.home(key)),
    }
    program = sim.build / "tests" / "limit_probe"
    tool = shutil.which("unshare") or ""
    return sim.run(tool, "--mount", "sh", "-ec", SCRIPT, program, preload=True, env=own)


@needs_mounts
def test_our_library_in_a_pod_of_vgpu_rs_has_its_limits_from_the_agent(
    two: Sim, world: World
) -> None:
    gpus = tuple(uuids(two))
    world.held = [Grant("g0", "ml/train/main", {}, gpus, 2 * GIB, 0)]
    world.boxes.fill(world.held[0])
    token = world.admit("ml/train")

    done = probe(two, world, "g0", token, "main")

    assert (done.facts["init"], done.stderr) == (0, "")
    assert [done.facts["granted 0"], done.facts["granted 1"]] == [2 * GIB, 2 * GIB]
    assert world.reviewed == [token]


@needs_mounts
@pytest.mark.parametrize(
    ("pod", "name", "why"),
    [
        ("ml/idle", "main", "does not know this pod"),
        ("ml/train", "sidecar", "does not know this pod"),
    ],
)
def test_our_library_refuses_where_the_agent_knows_no_such_container(
    two: Sim, world: World, pod: str, name: str, why: str
) -> None:
    world.held = [Grant("g0", "ml/train/main", {}, tuple(uuids(two)), 2 * GIB, 0)]
    world.boxes.fill(world.held[0])

    done = probe(two, world, "g0", world.admit(pod), name)

    assert done.facts["init"] != 0
    assert f"vgpu.rs's hypervisor at 127.0.0.1 port {world.port} {why}" in done.stderr


@needs_mounts
def test_a_process_of_another_container_is_not_found(two: Sim, world: World) -> None:
    world.held = [
        Grant("g0", "ml/train/main", {}, tuple(uuids(two)), 2 * GIB, 0),
        Grant("g1", "ml/other/main", {}, tuple(uuids(two)), 2 * GIB, 0),
    ]
    for grant in world.held:
        world.boxes.fill(grant)
    token = world.admit("ml/train")

    inside = world.ask(f"POST /api/v1/process?container_pid={os.getpid()}", token)
    done = probe(two, world, "g1", token, "main")  # in the other one's folder

    assert inside[1]["success"] is False
    assert "does not find this process" in done.stderr


def test_an_address_that_cannot_be_had_is_told(world: World) -> None:
    with pytest.raises(ToolError, match=r"cannot listen on 127\.0\.0\.1:"):
        hypervisor_server.start(f"127.0.0.1:{world.port}", lambda _: (200, {}), world.stopped)
    with pytest.raises(ToolError, match=r"cannot listen on 127\.0\.0\.1:99999"):
        hypervisor_server.start("127.0.0.1:99999", lambda _: (200, {}), world.stopped)


def test_a_program_that_is_found_is_named_by_its_number_on_the_machine(
    world: World, tmp_path: Path
) -> None:
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can have mounts of its own, by unshare of util-linux")
    world.boxes.fill(world.held[0])
    script = 'mount -t tmpfs none /run; mkdir /run/gpufence; mount --bind "$0" /run/gpufence; '
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec"]
    command = [*words, script + "echo ready; read line", str(world.boxes.home("g0"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
        assert inside.stdout
        assert inside.stdout.readline() == b"ready\n"
        _, told = world.ask("POST /api/v1/process?container_pid=1", world.admit("ml/train"))
        inside.communicate(b"\n")

    assert told["data"] == {
        "host_pid": told["data"]["host_pid"],
        "container_pid": 1,
        "container_name": "main",
        "pod_name": "train",
        "namespace": "ml",
    }
    assert told["data"]["host_pid"] > inside.pid
