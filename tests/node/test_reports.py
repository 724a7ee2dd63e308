"""Who begins to go around a limit is told once, as a line, an Event and an annotation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from gpufence.machine.engines import NOTHING, Called
from gpufence.node.api import Api
from gpufence.node.bypass import Bypass, Reason, Seen
from gpufence.node.reports import Reports

from .conftest import REPO

FOUND = Bypass(Reason.UNFENCED, Seen(4711, "GPU-1", "python3", 3 << 30, False), "", None)


class Cluster:
    """An API server that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str, Any]] = []
        self.status = 201
        self.refused: set[str] = set()
        cluster = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kind = str(self.headers["Content-Type"])
                cluster.sent.append((self.command, self.path, kind, body))
                self.send_response(403 if self.command in cluster.refused else cluster.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_PATCH = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def api(self) -> Api:
        return Api(f"http://127.0.0.1:{self.http.server_address[1]}")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.http.shutdown()


def reports(server: Api | None = None, *, evict: bool = False, pod: str = "train") -> Reports:
    called = Called("main", pod, "ml") if pod else NOTHING
    return Reports(lambda _: "it\ndoes", lambda _: called, server, "node-a", evict)


def test_each_is_told_once_and_again_after_it_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    told = reports()
    other = replace(FOUND, seen=replace(FOUND.seen, pid=4712))
    for found in ([FOUND], [FOUND, other], [other], [FOUND]):
        told.tell(found)

    assert capsys.readouterr().err == "gpufence: it?does of ml/train\n" * 3


def test_a_pod_has_an_event_of_it(cluster: Cluster) -> None:
    reports(cluster.api).tell([FOUND])

    ((method, path, kind, event),) = cluster.sent
    assert (method, path, kind) == ("POST", "/api/v1/namespaces/ml/events", "application/json")
    assert event["involvedObject"] | {"namespace": "ml", "name": "train"} == event["involvedObject"]
    assert (event["type"], event["reason"]) == ("Warning", "GpuLimitUnfenced")
    assert (event["message"], event["source"]["host"]) == ("it?does", "node-a")


def test_a_pod_is_asked_away_where_that_is_wanted(cluster: Cluster) -> None:
    reports(cluster.api, evict=True).tell([FOUND])

    assert cluster.sent[1:] == [
        (
            "PATCH",
            "/api/v1/namespaces/ml/pods/train",
            "application/merge-patch+json",
            {"metadata": {"annotations": {"gpufence.io/evict": "unfenced"}}},
        )
    ]


def test_what_is_no_pods_is_a_line_only(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    reports(cluster.api, evict=True, pod="").tell([FOUND])

    assert cluster.sent == []
    assert capsys.readouterr().err == "gpufence: it?does\n"


def test_an_event_names_the_pods_uid_where_it_is_known(cluster: Cluster) -> None:
    for uid in ("1234-5", ""):
        called = Called("main", "train", "ml", uid)
        Reports(lambda _: "it", lambda _, known=called: known, cluster.api).tell([FOUND])

    uids = [event["involvedObject"].get("uid") for _, _, _, event in cluster.sent]
    assert uids == ["1234-5", None]


def test_a_server_that_refuses_is_told_again_and_that_is_said_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    told = reports(cluster.api)
    cluster.status = 403
    for _ in range(3):
        told.tell([FOUND])
    cluster.status = 201
    told.tell([FOUND])
    told.tell([FOUND])

    assert len(cluster.sent) == 4
    said = capsys.readouterr().err
    assert said.count("it answered 403") == 1
    assert said.count("gpufence: it?does of ml/train") == 1


def test_where_pods_may_not_be_annotated_there_is_one_event(cluster: Cluster) -> None:
    told = reports(cluster.api, evict=True)
    cluster.refused = {"PATCH"}
    for _ in range(3):
        told.tell([FOUND])
    cluster.refused = set()
    told.tell([FOUND])
    told.tell([FOUND])

    assert [method for method, *_ in cluster.sent] == ["POST"] + ["PATCH"] * 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--events"], "--events without --watch refused"),
        (["--watch", "--ask-eviction"], "--ask-eviction without --events refused"),
        (["--watch", "--json"], "--json beside --watch refused"),
        (["--watch", "--events"], "no API server"),
    ],
)
def test_flags_that_mean_nothing_are_refused(words: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpufence", "node", "check", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert said.removesuffix(" refused") in done.stdout + done.stderr
