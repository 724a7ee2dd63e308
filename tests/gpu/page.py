"""A page of docs/results from a GPU run: `python3 tests/gpu/page.py DIR/report.json --date DAY`.

Writes docs/results/DAY-GPU-run.md and a plot beside it, docs/results/DAY-GPU-run.svg. Owns what the
page shows of a report; must not know how anything was measured. Nothing is computed here but
the places of bars on the plot: every figure is the report's own.
"""

from __future__ import annotations

import argparse
import json
import re
from html import escape
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
WORDS = {"same": "as expected", "different": "**different**", "failed": "**failed**"}
# Parts whose checks are listed line by line, with what the page calls them.
LISTED = {
    "lookup": "Looking functions up",
    "memory": "The memory limit",
    "oversold": "Oversold memory",
    "live": "Limits changed while programs run",
    "memory_frameworks": "Frameworks at the memory limit",
    "frameworks": "Frameworks without a limit",
}
COSTS = ("live", "processes", "threads")
HEAD = "| where | call | bare ns | a limit adds ns | least, greatest | our own code ns |"


def short_name(report: dict[str, Any]) -> str:
    """The GPU's name as part of a file's name: h200."""
    named = str(report["machine"]["gpu"]).split(",")[0]
    return re.sub(r"[^a-z0-9]+", "-", named.lower().replace("nvidia", "")).strip("-")


def cell(text: str) -> str:
    """A report's text as one cell of a table."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) <= 160 else line[:159] + "…"


def cost_rows(report: dict[str, Any]) -> list[tuple[str, str, dict[str, float]]]:
    """Where, call and figures of every pair that was measured on the GPU, in the report's order."""
    rows: list[tuple[str, str, dict[str, float]]] = []
    for check in report["parts"].get("memory_cost", {}).values():
        for place in COSTS if not check.get("simulated", True) else ():
            for each in check.get(place, []):
                where = f"{each[place]:,} {place}"
                rows += [(where, call, figures) for call, figures in each["calls"].items()]
    return rows


def cost_table(rows: list[tuple[str, str, dict[str, float]]]) -> list[str]:
    """What a limit adds, as lines of Markdown."""
    lines = [HEAD, "|---|---|---|---|---|---|"]
    for where, call, it in rows:
        spread = f"{it['extra_low_ns']:.0f}, {it['extra_high_ns']:.0f}"
        figures = f"{it['direct_median_ns']:,.0f} | {it['extra_median_ns']:,.0f} | {spread}"
        own = f"{it['hooks_median_ns']:.0f}" if "hooks_median_ns" in it else ""
        lines.append(f"| {where} | {call} | {figures} | {own} |")
    return lines


def held_table(report: dict[str, Any]) -> list[str]:
    """How late held launches went, as lines of Markdown; none where it was not measured."""
    holds = report["parts"].get("cores_cost", {}).get("all", {}).get("holds", {})
    if not holds:
        return []
    lines = ["| limit and kernel | launches | held | late, median us | latest us |"]
    lines.append("|---|---|---|---|---|")
    for name, it in sorted(holds.items()):
        late = f"{it['late_p50_ns'] / 1000:.0f} | {it['latest_ns'] / 1000:.0f}"
        lines.append(f"| {name} | {it['launches']} | {it['held']} | {late} |")
    return ["## How late held launches go", "", *lines, ""]


def plot(rows: list[tuple[str, str, dict[str, float]]], title: str) -> str:
    """Bars of what a limit adds, with the least and the greatest; SVG text without a library."""
    shown = [row for row in rows if row[0] == rows[0][0] and row[2]["extra_median_ns"] > 0]
    wide, left, step = 760, 220, 26
    most = max([row[2]["extra_high_ns"] for row in shown], default=1.0)
    scale = (wide - left - 70) / most
    high = 50 + step * len(shown)
    body = [f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>']
    for number, (_, call, it) in enumerate(shown):
        y = 36 + step * number
        median, low, top = (
            it[key] * scale for key in ("extra_median_ns", "extra_low_ns", "extra_high_ns")
        )
        body += [
            f'<text x="10" y="{y + 13}">{escape(call)}</text>',
            f'<rect x="{left}" y="{y}" width="{median:.1f}" height="16" fill="#76a5d8"/>',
            f'<line x1="{left + max(low, 0):.1f}" y1="{y + 8}" x2="{left + top:.1f}" y2="{y + 8}" '
            'stroke="#333"/>',
            f'<text x="{left + top + 6:.1f}" y="{y + 13}">{it["extra_median_ns"]:.0f} ns</text>',
        ]
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}"'
    style = 'font-family="sans-serif" font-size="13">'
    ground = f'<rect width="{wide}" height="{high}" fill="white"/>'
    return "\n".join([f"{frame} {style}", ground, *body, "</svg>", ""])


def unexpected(report: dict[str, Any]) -> list[str]:
    """The checks that were not as expected, by name: their texts may name a machine's paths."""
    named = [
        f"* {part}, {name}: {WORDS[it['verdict']]}"
        for part, checks in report["parts"].items()
        for name, it in checks.items()
        if it["verdict"] in ("different", "failed")
    ]
    return [*named, ""] if named else []


def page(report: dict[str, Any], day: str, picture: str) -> str:
    """The whole page."""
    counts = report["counts"]
    told = ", ".join(f"{counts[name]} {WORDS.get(name, name)}" for name in sorted(counts))
    lines = [
        f"# Results of one GPU run, {day}",
        "",
        f"{report['machine']['gpu']}. `tests/gpu/page.py` wrote this page from the report of",
        f"`ci/gpu-test`; do not edit. Checks: {told}.",
        "",
        *unexpected(report),
    ]
    for part, title in LISTED.items():
        checks = report["parts"].get(part, {})
        if checks:
            lines += [f"## {title}", "", "| check | verdict | seen |", "|---|---|---|"]
            lines += [
                f"| {name} | {WORDS.get(it['verdict'], it['verdict'])} | {cell(it['text'])} |"
                for name, it in checks.items()
            ]
            lines.append("")
    rows = cost_rows(report)
    if rows:
        lines += ["## What a memory limit adds", "", f"![by family, {rows[0][0]}]({picture})", ""]
        lines += [*cost_table(rows), ""]
    return "\n".join([*lines, *held_table(report)]).rstrip() + "\n"


def main() -> int:
    """Writes both files and says where."""
    parser = argparse.ArgumentParser(prog="tests/gpu/page.py", description=__doc__.split("\n")[0])
    parser.add_argument("report", type=Path, help="report.json of a run")
    parser.add_argument("--date", required=True, help="the day of the run, as 2026-11-23")
    parser.add_argument("--out", type=Path, default=REPO / "docs" / "results", help="folder")
    options = parser.parse_args()
    report = json.loads(options.report.read_text(encoding="utf-8"))
    name = f"{options.date}-{short_name(report)}-run"
    rows = cost_rows(report)
    text = page(report, options.date, f"{name}.svg")
    (options.out / f"{name}.md").write_text(text, encoding="utf-8")
    if rows:
        title = f"What a memory limit adds to a pair of calls, {rows[0][0]}"
        (options.out / f"{name}.svg").write_text(plot(rows, title), encoding="utf-8")
    print(options.out / f"{name}.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
