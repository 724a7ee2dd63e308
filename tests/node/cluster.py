"""An API server with claims and slices, and a kubelet's side of a DRA driver, for an agent."""

from __future__ import annotations

import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from gpufence.cdi import cdi_spec
from gpufence.node import messages, wire

from .conftest import SECONDS, Node
from .kubelet import wait_for

BASE = "/apis/resource.k8s.io/v1"


def shortest(amount: re.Match[str]) -> str:
    """MiB as a server writes them, whoever wrote them otherwise."""
    mib = int(amount[1])
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else amount[0]


class Cluster:
    """An API server with claims and slices, and whoever schedules."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str]] = []
        self.broken = False
        # What the server says of a token, and which it was asked about.
        self.tokens: dict[str, dict[str, Any]] = {}
        self.reviewed: list[str] = []
        cluster = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = cluster.objects.get(self.path)
                self.answer(500 if cluster.broken else 200 if found else 404, found or {})

            def do_POST(self) -> None:
                made = self.body()
                if self.path.endswith("/tokenreviews"):
                    cluster.reviewed.append(made["spec"]["token"])
                    self.answer(201, {"status": cluster.tokens.get(made["spec"]["token"], {})})
                    return
                cluster.keep("POST", f"{self.path}/{made['metadata']['name']}", made)
                self.answer(201, made)

            def do_PUT(self) -> None:
                cluster.keep("PUT", self.path, self.body())
                self.answer(200, {})

            def body(self) -> Any:  # noqa: ANN401 - JSON
                return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, status: int, found: object) -> None:
                content = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def keep(self, method: str, path: str, made: dict[str, Any]) -> None:
        made["metadata"]["resourceVersion"] = str(len(self.writes) + 1)
        made["spec"]["perDeviceNodeSelection"] = False  # a default of the server's
        self.objects[path] = json.loads(re.sub(r"(\d+)Mi", shortest, json.dumps(made)))
        self.writes.append((method, path))  # last: a test that sees it looks at the object at once

    def allocate(self, name: str, *shares: tuple[str, str, str], uid: str = "") -> dict[str, str]:
        """A claim as the scheduler leaves it: device, memory and cores for each request."""
        results = [
            {
                "request": f"gpu{number}",
                "driver": "gpufence.io",
                "pool": "node-a",
                "device": device.lower(),
                "shareID": f"share-{number}",
                "consumedCapacity": {"memory": memory, "cores": cores},
            }
            for number, (device, memory, cores) in enumerate(shares)
        ]
        other = {"driver": "other.io", "request": "nic", "pool": "p", "device": "d"}
        return self.claim(name, [*results, other], uid)

    def claim(self, name: str, results: list[dict[str, Any]], uid: str = "") -> dict[str, str]:
        """A claim with these results of the scheduler's."""
        claim = {"namespace": "ml", "name": name, "uid": uid or f"0000-{name}"}
        self.objects[f"{BASE}/namespaces/ml/resourceclaims/{name}"] = {
            "metadata": dict(claim),
            "status": {"allocation": {"devices": {"results": results}}},
        }
        return claim


class Driver:
    """The agent's driver as a kubelet uses it."""

    def __init__(self, node: Node, cluster: Cluster, name: str) -> None:
        self.node = node
        self.cluster = cluster
        self.name = name
        self.found_by = Path(node.config["registry_dir"]) / f"{name}-reg.sock"
        self.endpoint = Path()

    def start(self) -> None:
        """Start the agent and register it; an agent that was killed leaves its socket."""
        self.found_by.unlink(missing_ok=True)
        self.node.launch()
        self.register()

    def register(self) -> None:
        """As the kubelet's watcher does when a socket turns up."""
        assert self.node.process
        ended = self.node.process.poll
        service = messages.PLUGIN_REGISTRATION
        answers: list[Any] = []

        def ask(known: Mapping[str, Any]) -> Any:  # noqa: ANN401 - messages are untyped
            return known["InfoRequest"]()

        def answered() -> bool:
            """A kubelet asks again where a socket is there and nobody listens yet."""
            with suppress(wire.CallError):
                answers.append(wire.call(self.found_by, service, "GetInfo", ask))
            return bool(answers) or ended() is not None

        wait_for(answered, "no registration")
        assert answers, self.node.said.read_text()
        info = answers[0]
        assert (info.type, info.name) == ("DRAPlugin", self.name)
        assert list(info.supported_versions) == ["v1.DRAPlugin"]
        self.endpoint = Path(info.endpoint)
        wire.call(
            self.found_by,
            service,
            "NotifyRegistrationStatus",
            lambda known: known["RegistrationStatus"](plugin_registered=True),
        )

    def prepare(self, *claims: dict[str, str]) -> Any:  # noqa: ANN401 - messages are untyped
        """What the driver answers, by UID."""
        return self._call("NodePrepareResources", claims).claims

    def unprepare(self, *claims: dict[str, str]) -> Any:  # noqa: ANN401
        """What the driver answers, by UID."""
        return self._call("NodeUnprepareResources", claims).claims

    def _call(self, name: str, claims: tuple[dict[str, str], ...]) -> Any:  # noqa: ANN401
        return wire.call(
            self.endpoint,
            messages.DRA_PLUGIN,
            name,
            lambda known: known[f"{name}Request"](claims=list(claims)),
        )

    def edits(self, claim: dict[str, str]) -> dict[str, Any]:
        """What the claim's CDI device does."""
        cdi = Path(self.node.config["cdi_dir"])
        path = cdi / f"gpufence-container-claim-{claim['uid']}.json"
        document = json.loads(path.read_text())
        assert cdi_spec.check(document) == []
        (device,) = document["devices"]
        found: dict[str, Any] = device["containerEdits"]
        return found


@contextmanager
def serving() -> Iterator[Cluster]:
    """A cluster's API server."""
    made = Cluster()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


@contextmanager
def driving(
    node: Node, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str = "gpufence.io"
) -> Iterator[Driver]:
    """An agent that is a DRA driver of that name, not started yet."""
    monkeypatch.setattr(wire, "_CALL_SECONDS", SECONDS)  # of the kubelet that this test plays
    # A socket's path has at most 107 bytes, and that of a test's own folder is long.
    with tempfile.TemporaryDirectory(prefix="dra") as short:
        for folder in ("plugins", "registry"):
            (Path(short) / folder).mkdir()
        del node.config["preset"]
        node.config |= {
            "interface": "dra",
            "api_server": cluster.address,
            "node_name": "node-a",
            "plugins_dir": f"{short}/plugins",
            "registry_dir": f"{short}/registry",
        }
        yield Driver(node, cluster, name)
        if node.process and node.process.poll() is None:
            node.kill()
