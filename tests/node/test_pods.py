"""The node's pods from an API server: listed, watched, and listed anew where a watch ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import pytest
from gpufence.node import api, pods
from gpufence.node.pods import Pod

from .conftest import SECONDS


def pod(name: str, **annotations: str) -> dict[str, Any]:
    metadata = {"namespace": "ml", "name": name, "annotations": dict(annotations)}
    return {"metadata": metadata, "status": {"qosClass": "Burstable"}}


class Server:
    """An API server with the pods of one node; a watch ends when None is put into `events`."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.events: Queue[dict[str, Any] | None] = Queue()
        self.asked: list[str] = []
        self.status = 200
        server = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                self.send_response(server.status)
                self.end_headers()
                if server.status != 200:
                    return
                if "watch=1" not in self.path:
                    listed = {"metadata": {"resourceVersion": "41"}, "items": server.items}
                    self.wfile.write(json.dumps(listed).encode())
                    return
                while (event := server.events.get()) is not None:
                    self.wfile.write(json.dumps(event).encode() + b"\n")

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


class Follower:
    """Who follows the pods, and what was told, oldest first."""

    def __init__(self, server: Server) -> None:
        self.told: Queue[Mapping[str, Pod]] = Queue()
        self.stopped = threading.Event()
        address = f"http://127.0.0.1:{server.http.server_address[1]}"
        words = (api.Api(address), "node-a", self.stopped, self.told.put)
        threading.Thread(target=pods.follow, args=words, daemon=True).start()

    def next(self) -> Mapping[str, Pod]:
        return self.told.get(timeout=SECONDS)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.events.put(None)
    made.http.shutdown()


@pytest.fixture
def follower(server: Server) -> Iterator[Follower]:
    made = Follower(server)
    yield made
    made.stopped.set()


def test_pods_are_listed_and_then_watched(server: Server) -> None:
    server.items = [pod("a", **{"gpufence.io/cores": "30"})]
    follower = Follower(server)
    said = {"gpufence.io/cores": "30"}
    assert follower.next() == {"ml/a": Pod("ml/a", "Burstable", said, ())}

    server.events.put({"type": "ADDED", "object": pod("b")})
    assert set(follower.next()) == {"ml/a", "ml/b"}
    server.events.put({"type": "MODIFIED", "object": pod("a", x="y")})
    assert follower.next()["ml/a"].annotations == {"x": "y"}
    server.events.put({"type": "DELETED", "object": pod("a")})
    assert set(follower.next()) == {"ml/b"}
    follower.stopped.set()
    assert "fieldSelector=spec.nodeName%3Dnode-a" in server.asked[0]
    assert "resourceVersion=41" in server.asked[1]


@pytest.mark.parametrize("end", [None, {"type": "ERROR", "object": {"code": 410}}])
def test_when_a_watch_ends_they_are_listed_anew(
    server: Server, follower: Follower, end: dict[str, Any] | None
) -> None:
    assert follower.next() == {}
    server.items = [pod("c")]
    server.events.put(end)

    assert set(follower.next()) == {"ml/c"}


def test_a_server_that_refuses_is_told_once_and_asked_again(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.status = 403
    follower = Follower(server)
    while len(server.asked) < 3:
        threading.Event().wait(0.05)
    server.status = 200
    assert follower.next() == {}
    follower.stopped.set()

    said = capsys.readouterr().err
    assert said.count("it answered 403") == 1


@pytest.mark.parametrize("strange", [{}, {"metadata": []}, {"metadata": {"name": 3}}, {"spec": 1}])
def test_what_is_no_pod_is_passed_by(
    server: Server, follower: Follower, strange: dict[str, Any]
) -> None:
    assert follower.next() == {}
    server.events.put({"type": "ADDED", "object": strange})
    server.events.put({"type": "ADDED", "object": pod("d")})

    assert set(follower.next()) == {"ml/d"}


def test_a_pods_claims_are_those_it_names_and_those_made_for_it() -> None:
    found = pods.of(
        {
            **pod("a"),
            "spec": {"resourceClaims": [{"name": "x", "resourceClaimName": "shared"}, {"name": 1}]},
            "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "a-y-1"}]},
        }
    )

    assert found is not None
    assert found.claims == ("ml/a-y-1", "ml/shared")
