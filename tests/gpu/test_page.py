"""A GPU run's page shows the report's figures and hides no check that failed. Needs no GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import page

PAIR = {
    "direct_median_ns": 1901.9,
    "extra_median_ns": 104.76,
    "extra_low_ns": 92.38,
    "extra_high_ns": 208.57,
    "hooks_median_ns": 77.14,
}


def report(**parts: Any) -> dict[str, Any]:  # noqa: ANN401
    """A report of these parts, on some GPU."""
    return {"machine": {"gpu": "NVIDIA H200, 580.1, 1 MiB"}, "counts": {"same": 1}, "parts": parts}


def cost(simulated: bool) -> dict[str, Any]:
    """A part about the cost of pairs."""
    live = [{"live": 1000, "processes": 1, "calls": {"a pair": PAIR}}]
    return {"cost live": {"verdict": "same", "text": "", "simulated": simulated, "live": live}}


def test_a_page_is_named_after_its_gpu() -> None:
    assert page.short_name(report()) == "h200"


def test_the_cost_of_a_pair_is_shown_as_it_was_reported() -> None:
    text = page.page(report(memory_cost=cost(simulated=False)), "2026-11-23", "x.svg")

    assert "| 1,000 live | a pair | 1,902 | 105 | 92, 209 | 77 |" in text
    assert "](x.svg)" in text


def test_figures_of_the_simulator_are_not_shown_as_a_gpus() -> None:
    text = page.page(report(memory_cost=cost(simulated=True)), "2026-11-23", "x.svg")

    assert "a pair" not in text


def test_a_check_that_differed_is_named_without_its_text() -> None:
    wrong = {"build": {"verdict": "failed", "text": "a path of a machine"}}

    text = page.page(report(build=wrong), "2026-11-23", "")

    assert "* build, build: **failed**" in text
    assert "path of a machine" not in text


def test_a_text_with_bars_and_lines_stays_one_cell() -> None:
    told = {"smi": {"verdict": "same", "text": "| 1 |\n| 2 |" + "x" * 200}}

    row = next(
        line
        for line in page.page(report(memory=told), "2026-11-23", "").splitlines()
        if line.startswith("| smi ")
    )

    assert row.count("|") == 4
    assert row.endswith("… |")


def test_bars_are_as_long_as_what_a_limit_adds() -> None:
    second = PAIR | {"extra_median_ns": 52.38}
    drawn = page.plot([("1 live", "a", PAIR), ("1 live", "b", second)], "title & more")

    bars = re.findall(r'<rect x="220" y="\d+" width="([\d.]+)"', drawn)

    assert len(bars) == 2
    assert abs(float(bars[0]) - 2 * float(bars[1])) <= 0.2  # each is rounded to a tenth
    assert 'x2="690.0"' in drawn  # the greatest ends where the figures begin
    assert "title &amp; more" in drawn
