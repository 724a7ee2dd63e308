"""deploy/monitoring: rules and dashboard name what gpufence writes, and rules fire when due."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from gpufence.cdi import yaml_text
from gpufence.export import metrics
from gpufence.node import check_metrics
from gpufence.top.history import History
from gpufence.top.watch import Look

from .conftest import MONITORING, ran, tool

RULES = "rules.yaml"
# Prometheus' own, of each target.
ITS_OWN = {"up"}
NAME = re.compile(r"\b(gpufence_\w+|up)\b")
# What the targets have beside our labels: the operator's, and `node` of service-monitor.yaml.
OF_TARGETS = {"node", "job"}
OURS = {
    *("gpu", "UUID", "modelName", "namespace", "pod", "container", "region"),
    *("reason", "pid", "command"),
}


def written() -> set[str]:
    """Every name that the commands write, whether there is something to tell or not."""
    of_export = metrics.own(Look(0, (), ()), History())
    return {family.name for family in (*of_export, *check_metrics.families((), (), True))}


def rules() -> list[dict[str, Any]]:
    document: Any = yaml_text.load((MONITORING / RULES).read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    made: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return made


def queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for each in dashboard()["templating"]["list"]:
        if each["type"] == "query":
            yield each["query"]["query"]


def test_the_list_of_names_is_what_the_export_writes() -> None:
    assert {"gpufence_memory_used_bytes", "gpufence_node_agent_running"} <= written()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_names_metrics_that_are_written(rule: dict[str, Any]) -> None:
    named = set(NAME.findall(rule["expr"]))

    assert named
    assert named <= written() | ITS_OWN


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_says_what_it_means_by_labels_that_there_are(rule: dict[str, Any]) -> None:
    said = " ".join(rule["annotations"].values())

    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= OURS | OF_TARGETS


def test_every_query_of_the_dashboard_names_metrics_that_are_written() -> None:
    for query in queries():
        named = set(NAME.findall(query))
        assert named, query
        assert named <= written(), query
        assert set(re.findall(r"\{\{(\w+)\}\}", query)) == set()


def test_every_metric_of_ours_is_drawn_or_alerted_on_or_left_out_for_a_reason() -> None:
    left_out = {
        "gpufence_memory_unified_bytes",  # part of what is drawn
        "gpufence_memory_orphan_bytes",  # the same
        "gpufence_core_limit_known",  # says why the next one is absent
        "gpufence_memory_limit_known",  # the same
        "gpufence_core_soft_limit_ratio",  # what is held is the limit
    }
    used = {name for query in queries() for name in NAME.findall(query)}
    used |= {name for rule in rules() for name in NAME.findall(rule["expr"])}

    assert written() - used == left_out


def test_the_dashboards_panels_do_not_overlap_and_have_their_own_numbers() -> None:
    panels = dashboard()["panels"]
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_a_legend_names_labels_that_there_are() -> None:
    legends = [
        target["legendFormat"]
        for panel in dashboard()["panels"]
        for target in panel.get("targets", [])
    ]

    assert set(re.findall(r"\{\{(\w+)\}\}", " ".join(legends))) <= OURS | OF_TARGETS


def test_prometheus_accepts_the_rules() -> None:
    said = ran(tool("promtool"), "check", "rules", RULES, folder=MONITORING)

    assert f"{len(rules())} rules found" in said


def test_every_rule_fires_when_it_should_and_is_silent_on_healthy_series() -> None:
    ran(tool("promtool"), "test", "rules", "rules.test.yaml", folder=MONITORING)


def test_every_rule_has_a_series_on_which_it_fires_and_one_on_which_it_does_not() -> None:
    text = (MONITORING / "rules.test.yaml").read_text(encoding="utf-8")
    asked = re.findall(r"alertname: (\w+)(\n +exp_alerts:)?", text)

    for rule in rules():
        fires = {bool(expected) for name, expected in asked if name == rule["alert"]}
        assert fires == {True, False}, rule["alert"]
