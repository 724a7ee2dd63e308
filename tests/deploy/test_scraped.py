"""A real Prometheus reads deploy/monitoring and scrapes what the two commands serve.

The metrics arrive with the labels that rules and dashboard go by; a healthy node raises no alert,
and what has to be told raises its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import Sim

from .conftest import module, tool
from .scraped import Node, Prometheus, until
from .test_monitoring import OURS, dashboard, queries

MIB = 1 << 20
REFUSED = 2  # CUDA_ERROR_OUT_OF_MEMORY
PORTS = 2
POD = {
    "VGPU_POD_NAMESPACE": "a-namespace",
    "VGPU_POD_NAME": "a-pod",
    "VGPU_CONTAINER_NAME": "a-container",
}
# What Grafana puts in for its variables where nothing is chosen.
CHOSEN = {"$__rate_interval": "4s", "$namespace": ".*", "$pod": ".*"}


@pytest.fixture
def node(sim: Sim, tmp_path: Path) -> Iterator[Node]:
    made = Node(sim, tmp_path)
    yield made
    made.close()


@pytest.fixture
def prometheus(node: Node, tmp_path: Path) -> Iterator[Prometheus]:
    program = tool("prometheus")
    module("yaml")
    targets = [node.served("export"), node.served("node", "check")]
    made = Prometheus(program, tmp_path / "prometheus", targets)
    yield made
    made.close()


def as_grafana_asks(query: str) -> str:
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    return query


def healthy(prometheus: Prometheus) -> None:
    """Wait for some looks, and find no alert after them."""
    until(lambda: prometheus.looks() >= 6 or None, "six scrapes of both targets")
    ups = prometheus.series('up{job="gpufence-metrics"}')
    assert [value for _, value in ups] == [1.0] * PORTS
    assert prometheus.alerts() == prometheus.alerts("pending") == []


def fired(prometheus: Prometheus, name: str, **labels: str) -> dict[str, str]:
    """The labels of the alert of a name, and with these labels, once it fires."""

    def found() -> dict[str, str] | None:
        wanted = {"alertname": name, **labels}.items()
        return next((dict(each) for each in prometheus.alerts() if wanted <= each.items()), None)

    return until(found, f"the alert {name} {labels}")


def test_alerts_fire_for_what_is_refused_and_what_goes_around_and_for_nothing_else(
    node: Node, prometheus: Prometheus
) -> None:
    program, codes = node.container("train", "cuda 0", f"alloc {100 * MIB}")
    assert codes == [0, 0]
    healthy(prometheus)

    assert node.tell(program, f"alloc {2048 * MIB}") == REFUSED
    # Never seen before its refusal.
    assert node.container("new", "cuda 0", f"alloc {2048 * MIB}")[1] == [0, REFUSED]
    free, codes = node.program("cuda 0", f"alloc {300 * MIB}", fenced=False)
    assert codes == [0, 0]
    refused = fired(prometheus, "GpufenceMemoryRefused", region="train")
    fired(prometheus, "GpufenceMemoryRefused", region="new")
    bypass = fired(prometheus, "GpufenceBypass")

    names = sorted(each["alertname"] for each in prometheus.alerts())
    assert names == ["GpufenceBypass", "GpufenceMemoryRefused", "GpufenceMemoryRefused"]
    assert set(refused) - OURS == {"alertname", "severity", "job", "instance", "node"}
    assert (refused["gpu"], refused["severity"]) == ("0", "info")
    assert (bypass["reason"], bypass["severity"]) == ("unfenced", "critical")
    ((named, size),) = prometheus.series("gpufence_node_bypass_bytes")
    assert (named["pid"], named["command"]) == (str(free.pid), "view_commands")
    assert size > 300 * MIB


def test_every_query_of_the_dashboard_is_answered_and_its_legends_have_their_labels(
    node: Node, prometheus: Prometheus
) -> None:
    _, codes = node.container("train", "cuda 0", f"alloc {100 * MIB}", **POD)
    assert codes == [0, 0]
    node.program("cuda 0", fenced=False)
    until(lambda: prometheus.series("gpufence_node_bypass_bytes") or None, "who goes around")
    until(lambda: prometheus.looks() >= 4 or None, "four scrapes")

    answered = set()
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            found = prometheus.series(as_grafana_asks(target["expr"]))
            answered |= {target["expr"] for _ in found}
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(legend <= set(labels) for labels, _ in found), target
    for query in queries():
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        if asked:
            values = prometheus.ask(f"label/{asked[2]}/values", **{"match[]": asked[1]})
            assert values == [f"a-{asked[2]}"]
        else:
            # Nothing was launched, and nothing limits GPU time.
            assert query in answered or "core" in query or "launches" in query or "time" in query
