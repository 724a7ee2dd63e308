"""vgpu.rs's hypervisor, asked at cuInit: what it answers holds, and whatever else it does refuses.

A server of the test stands for the hypervisor: it writes the shared file when it is asked, as the
real one does. Nothing is said of how long anything takes; each case ends by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gpufence.config.terms import Priority, Terms
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from tests.support.machine import Finished, Sim

GIB = 1 << 30
INVALID_VALUE = 1
TOKEN = "header.payload.signature"

# The library reads the token where Kubernetes mounts it, so the program has a /run of its own.
SCRIPT = """
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
[ -z "$TOKEN" ] || printf '%s\\n' "$TOKEN" > /run/secrets/kubernetes.io/serviceaccount/token
unset TOKEN
exec "$0" "$@"
"""

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or Path("/var/run").resolve() != Path("/run"),
    reason="only root can mount a token where Kubernetes does",
)


def shared_file(memory_bytes: int, gpus: tuple[str, ...]) -> bytes:
    """What the hypervisor shares with a pod, layout 2."""
    content = bytearray(35504)
    struct.pack_into("<I", content, 0, 1)
    for index, name in enumerate(gpus):
        at = 8 + 136 * index
        content[at : at + len(name)] = name.encode()
        struct.pack_into("<I4xQ", content, at + 64, 100, memory_bytes)
        struct.pack_into("<I", content, at + 128, 1)
    return bytes(content)


def ok(body: bytes, *headers: str) -> bytes:
    """An answer with a length."""
    lines = ("HTTP/1.1 200 OK", *headers, f"Content-Length: {len(body)}", "", "")
    return "\r\n".join(lines).encode() + body


def chunked(body: bytes) -> bytes:
    """The same in pieces of seven bytes."""
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(each), each) for each in pieces)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n" + chunks + b"0\r\nX: y\r\n\r\n"


@dataclass
class Hypervisor:
    """The server: what it was asked, and what it does with a connection."""

    folder: Path
    gpus: tuple[str, ...] = ()
    memory_bytes: int = GIB
    service: str | None = None
    requests: list[str] = field(default_factory=list)
    answer: Callable[[Hypervisor, socket.socket], None] | None = None
    open: list[socket.socket] = field(default_factory=list)
    port: int = 0

    def body(self, **changes: object) -> bytes:
        """The answer to a pod that it knows."""
        data = {
            "pod_name": "p\u00e9", "namespace": "n", "gpu_uuids": list(self.gpus),
            "tflops_limit": 1.5e1, "vram_limit": self.memory_bytes, "qos_level": self.service,
            "compute_shard": False, "isolation": "soft", "auto_freeze": {"x": [1, -2, {"y": "]"}]},
        }  # fmt: skip
        told = {"success": True, "data": data, "message": 'a "quoted"\nline', **changes}
        return json.dumps(told).encode()

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.open.append(connection)
            with connection.makefile("rb") as file:
                lines = [line.decode() for line in iter(file.readline, b"\r\n") if line]
            self.requests.append("".join(lines))
            if self.answer is None:
                self.register()
                connection.sendall(ok(self.body()))
            else:
                self.answer(self, connection)

    def pids(self) -> list[int]:
        """The processes that were asked about, in the order of the requests."""
        starts = (request.partition("container_pid=")[2] for request in self.requests)
        return [int(start.split("&")[0].split(" ")[0]) for start in starts]

    def register(self) -> None:
        """Write the file that holds the pod's limits."""
        (self.folder / "shm").write_bytes(shared_file(self.memory_bytes, self.gpus))


@pytest.fixture
def hypervisor(two: Sim, tmp_path: Path) -> Iterator[Hypervisor]:
    """One that knows both GPUs of the machine as the pod's."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = Hypervisor(tmp_path, tuple(uuids(two)), port=listener.getsockname()[1])
    thread = threading.Thread(target=made.serve, args=(listener,), daemon=True)
    thread.start()
    yield made
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(timeout=10)
    for connection in made.open:
        connection.close()


@pytest.fixture
def two(sim: Sim) -> Sim:
    """Two GPUs whose contexts cost nothing."""
    return sim.with_env(GPUS=2, MEMORY="8GiB", CONTEXT_BYTES=0)


def uuids(sim: Sim) -> list[str]:
    """The GPUs, as NVML names them."""
    return [f"GPU-{uuid.UUID(each['uuid'])}" for each in sim.run("sim_devices").facts["devices"]]


def probe(
    sim: Sim, made: Hypervisor, words: tuple[str, ...] = ("limit_probe",), **env: str
) -> Finished:
    """A program of the tests with its words in a pod of that hypervisor."""
    tool = shutil.which("unshare")
    if tool is None or subprocess.run([tool, "--mount", "true"], check=False).returncode != 0:
        pytest.skip("this machine does not allow `unshare --mount`")
    own = {
        "GPUFENCE_CONTAINER": uuid.uuid4().hex,
        "GPUFENCE_STATE_DIR": str(made.folder),
        "HYPERVISOR_IP": "127.0.0.1",
        "HYPERVISOR_PORT": str(made.port),
        "SHM_PATH": str(made.folder),
        "TOKEN": TOKEN,
        "CONTAINER_NAME": "",
        **env,
    }
    program = [sim.build / "tests" / words[0], *words[1:]]
    return sim.run(tool, "--mount", "sh", "-ec", SCRIPT, *program, preload=True, env=own)


def refusal(done: Finished) -> str:
    """The one line of a program whose cuInit was refused."""
    assert done.facts == {"init": INVALID_VALUE}
    start = "gpufence: cuInit fails on purpose: "
    assert done.stderr.startswith(start)
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix(start).rstrip("\n")


def test_the_hypervisor_is_asked_once_and_what_it_then_shares_holds(
    two: Sim, hypervisor: Hypervisor
) -> None:
    done = probe(two, hypervisor, CONTAINER_NAME="a b/\u00e9")

    assert (done.facts["init"], done.stderr) == (0, "")
    assert [done.facts[f"granted {device}"] for device in range(2)] == [GIB, GIB]
    assert len(hypervisor.requests) == 2
    pid = hypervisor.pids()[0]
    lines = [request.splitlines()[0] for request in hypervisor.requests]
    query = f"?container_pid={pid}&container_name=a%20b%2F%C3%A9 HTTP/1.1"
    assert lines == ["GET /api/v1/pod" + query, "POST /api/v1/process" + query]
    assert pid > 1
    for request in hypervisor.requests:
        assert f"Authorization: Bearer {TOKEN}" in request.splitlines()
        assert f"Host: 127.0.0.1:{hypervisor.port}" in request.splitlines()
    assert "Content-Length: 0" in hypervisor.requests[1].splitlines()


def test_without_a_containers_name_no_process_is_told_of(two: Sim, hypervisor: Hypervisor) -> None:
    done = probe(two, hypervisor)

    assert (done.facts["init"], done.stderr) == (0, "")
    assert [request.split("?")[0] for request in hypervisor.requests] == ["GET /api/v1/pod"]


@pytest.mark.parametrize(
    "answer",
    [
        chunked,
        lambda body: ok(body, "Connection: keep-alive", "x-y:"),
        lambda body: b"HTTP/1.0 200 OK\n\n" + body,
    ],
    ids=["in chunks", "and keeps the connection", "to the end"],
)
def test_an_answer_may_come_in_any_of_https_ways(
    two: Sim, hypervisor: Hypervisor, answer: Callable[[bytes], bytes]
) -> None:
    def tell(made: Hypervisor, connection: socket.socket) -> None:
        made.register()
        whole = answer(made.body())
        for at in range(0, len(whole), 50):
            connection.sendall(whole[at : at + 50])
        if whole.startswith(b"HTTP/1.0"):
            connection.shutdown(socket.SHUT_WR)

    hypervisor.answer = tell

    done = probe(two, hypervisor)

    assert (done.facts["init"], done.facts["granted 0"], done.stderr) == (0, GIB, "")


def says(text: bytes) -> Callable[[Hypervisor, socket.socket], None]:
    """Answer with that and close."""

    def answer(_: Hypervisor, connection: socket.socket) -> None:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_RDWR)

    return answer


def never(_: Hypervisor, connection: socket.socket) -> None:
    """Say nothing, until the other side gives up."""
    assert connection.recv(1) == b""


def without_end(_: Hypervisor, connection: socket.socket) -> None:
    """Go on for as long as somebody listens."""
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n")
        while True:
            connection.sendall(b" " * 4096)
    except OSError:
        pass


NOT_WHOLE = "closed the connection before its answer was whole"
NO_HTTP = "sends an answer that is not HTTP"
ELSE = "sends an answer without the fields that gpufence reads"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (never, "does not answer in time"),
        (without_end, "sends an answer that is too long"),
        (says(b""), NOT_WHOLE),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"), NOT_WHOLE),
        (says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}"), NOT_WHOLE),
        (says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n"), NO_HTTP),
        (says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), NO_HTTP),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), NO_HTTP),
        (says(b"\x00\xff garbage\r\n\r\n"), NO_HTTP),
        (says(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "refuses to answer"),
        (says(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"), "refuses to answer"),
        (says(ok(b"")), ELSE),
        (says(ok(b"[]")), ELSE),
        (says(ok(b'{"success": true, "data": {"gpu_uuids": []}} x')), ELSE),
        (says(ok(b'{"success": true, "data": {"gpu_uuids": [1]}}')), ELSE),
        (says(ok(b'{"success": true, "data": {"gpu_uuids": ["GPU-1"]}}')), ELSE),
        (says(ok(b'{"success": "true", "data": {"gpu_uuids": []}}')), ELSE),
        (says(ok(b'{"success": true, "success": true}')), ELSE),
        (says(ok(b'{"success": true, "data": {"qos_level": "Low", "qos_level": "Low"}}')), ELSE),
        (says(ok(b'{"data": {"gpu_uuids": []}}')), ELSE),
        (says(ok(b'{"x": ' + b"[" * 40 + b"]" * 40 + b', "success": true}')), ELSE),
        (says(ok(b'{"success": false, "data": null, "message": "no"}')), "does not know this pod"),
        (says(ok(b'{"success": true, "data": null}')), "names no GPUs for this pod"),
    ],
)
def test_any_other_answer_refuses_with_one_line(
    two: Sim,
    hypervisor: Hypervisor,
    answer: Callable[[Hypervisor, socket.socket], None],
    why: str,
) -> None:
    hypervisor.answer = answer

    done = probe(two, hypervisor)

    assert refusal(done) == (
        f"vgpu.rs's hypervisor at 127.0.0.1 port {hypervisor.port} {why}. "
        "Start its node agent, or unset HYPERVISOR_IP and set limits in this container"
    )
    assert len(hypervisor.requests) == 1


def test_a_forked_child_is_told_of_and_goes_by_its_parents_answer(
    two: Sim, hypervisor: Hypervisor
) -> None:
    done = probe(two, hypervisor, ("sim_fork", "after"), CONTAINER_NAME="c")

    assert done.stderr == ""
    parent, *others = hypervisor.pids()
    ways = [request.partition(" ")[0] for request in hypervisor.requests]
    assert ways[:3] == ["GET", "POST", "POST"]
    assert ways.count("GET") == 1
    assert others[0] == parent
    assert len(set(others)) == len(others)


def knows_the_pod_and(
    then: Callable[[Hypervisor, socket.socket], None],
) -> Callable[[Hypervisor, socket.socket], None]:
    """Answer what is asked of the pod, and the other requests so."""

    def answer(made: Hypervisor, connection: socket.socket) -> None:
        if not made.requests[-1].startswith("GET "):
            return then(made, connection)
        made.register()
        return connection.sendall(ok(made.body()))

    return answer


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (never, "does not answer in time"),
        (says(b""), NOT_WHOLE),
        (says(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "refuses to answer"),
        (says(ok(b"[]")), ELSE),
        (says(ok(b'{"success": false, "data": null, "message": "no"}')),
         "does not find this process"),
    ],
)  # fmt: skip
def test_a_process_that_the_hypervisor_does_not_take_in_is_refused(
    two: Sim,
    hypervisor: Hypervisor,
    answer: Callable[[Hypervisor, socket.socket], None],
    why: str,
) -> None:
    hypervisor.answer = knows_the_pod_and(answer)

    done = probe(two, hypervisor, CONTAINER_NAME="c")

    assert refusal(done) == (
        f"vgpu.rs's hypervisor at 127.0.0.1 port {hypervisor.port} {why}. "
        "Start its node agent, or unset HYPERVISOR_IP and set limits in this container"
    )
    assert len(hypervisor.requests) == 2


def test_a_hypervisor_that_is_not_there_refuses(two: Sim, hypervisor: Hypervisor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    done = probe(two, hypervisor, HYPERVISOR_PORT=str(port))

    assert f"port {port} cannot be reached. " in refusal(done)


def test_an_answer_without_its_file_refuses(two: Sim, hypervisor: Hypervisor) -> None:
    hypervisor.answer = lambda made, connection: connection.sendall(ok(made.body()))

    done = probe(two, hypervisor)

    assert "where it writes limits, is not there. Mount its folder" in refusal(done)


def test_without_a_token_nobody_is_asked(two: Sim, hypervisor: Hypervisor) -> None:
    for token in ("", "two words", "x\r\nHost: y"):
        done = probe(two, hypervisor, TOKEN=token)

        assert "holds no token for a request to it. Mount the pod's service account" in refusal(
            done
        )
    assert hypervisor.requests == []


@pytest.mark.parametrize("memory_bytes", [0, GIB])
def test_a_gpu_that_the_hypervisor_does_not_give_is_refused_until_it_is_hidden(
    two: Sim, hypervisor: Hypervisor, memory_bytes: int
) -> None:
    hypervisor.gpus = hypervisor.gpus[1:]
    hypervisor.memory_bytes = memory_bytes

    seen = probe(two, hypervisor)
    hidden = probe(two, hypervisor, CUDA_VISIBLE_DEVICES=hypervisor.gpus[0])

    assert refusal(seen).endswith(
        "gives this container 1 of the GPUs, and GPU 0 is none of them. Set CUDA_VISIBLE_DEVICES "
        f"to those it gives, the first of which is {hypervisor.gpus[0]}"
    )
    assert (hidden.facts["init"], hidden.stderr) == (0, "")
    assert hidden.facts["granted 0"] == (memory_bytes or 4 * GIB)


@pytest.mark.parametrize(
    "env",
    [
        {"ENABLE_CUDA_HOOKS": "false"},
        {"HYPERVISOR_PORT": ""},
        {"HYPERVISOR_IP": ""},
    ],
)
def test_nobody_is_asked_where_the_dialect_is_off_or_half_set(
    two: Sim, hypervisor: Hypervisor, env: dict[str, str]
) -> None:
    done = probe(two, hypervisor, **env)

    assert (done.facts["init"], done.facts["granted 0"], done.stderr) == (0, 4 * GIB, "")
    assert hypervisor.requests == []


def test_a_program_without_the_gpu_asks_nobody(two: Sim, hypervisor: Hypervisor) -> None:
    env = {"HYPERVISOR_IP": "127.0.0.1", "HYPERVISOR_PORT": str(hypervisor.port)}

    done = two.run("/bin/echo", "x", preload=True, env=env)

    assert (done.stdout, done.stderr, hypervisor.requests) == ("x\n", "", [])


@pytest.mark.parametrize(
    ("service", "env", "said"),
    [
        ("Low", {}, "priority low"),
        ("Medium", {}, ""),
        ("High", {}, "priority high"),
        ("Critical", {}, "priority high"),
        ("low", {"CUDA_TASK_PRIORITY": "0"}, "priority low"),
        ("Urgent", {}, "qos_level 'Urgent' of vgpu.rs's hypervisor has no effect: it is unknown"),
        ("Medium", {"GPUFENCE_PRIORITY": "high"},
         "qos_level 'Medium' of vgpu.rs's hypervisor applies, because it is lower than"
         " GPUFENCE_PRIORITY=high"),
        (None, {"GPUFENCE_PRIORITY": "high"}, "priority high"),
    ],
)  # fmt: skip
def test_the_pods_class_of_service_is_a_priority(
    two: Sim, hypervisor: Hypervisor, service: str | None, env: dict[str, str], said: str
) -> None:
    hypervisor.service = service
    env = {"GPUFENCE_LOG_LEVEL": "info", "GPUFENCE_CORE_LIMIT": "50", **env}

    done = probe(two, hypervisor, **env)

    assert done.facts["init"] == 0, done.stderr
    assert said in done.stderr
    assert said or "priority" not in done.stderr


def test_nothing_that_is_set_is_above_the_class_of_service(
    two: Sim, hypervisor: Hypervisor
) -> None:
    hypervisor.service = "Low"
    path = limits_file.prepare((hypervisor.folder,), "pod")
    high = {EVERY_GPU: Amounts(terms=Terms(Priority.HIGH))}
    limits_file.change(path, os.getuid(), 0, lambda _: high, lambda *_: None, replace_damaged=False)

    env = {"GPUFENCE_LOG_LEVEL": "info", "GPUFENCE_CORE_LIMIT": "50", "GPUFENCE_CONTAINER": "pod"}
    done = probe(two, hypervisor, **env)

    assert "priority low" in done.stderr
    assert "priority high" not in done.stderr
