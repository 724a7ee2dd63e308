"""A session as a picture: what the GPU does in sum, and latency. Must not measure or judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .judge import Judge, Results, number
from .table import scene_of

# Told apart by shape as well as by colour, which some readers do not see.
LOOKS = (("o", "#777777"), ("s", "#0072b2"), ("^", "#d55e00"), ("D", "#009e73"), ("v", "#cc79a7"))
ROW_INCHES, HEAD_INCHES, WIDE_INCHES = 0.3, 1.4, 10.0


@dataclass(frozen=True, slots=True)
class Point:
    """A scene in a way: percent of one process alone in sum, and the worst tenant's p99 in ms."""

    scene: str
    way: str
    work_percent: float
    p99_ms: float


def points(body: Mapping[str, Any]) -> list[Point]:
    """Of every measured scene with neighbours, in the order of the file."""
    judge = Judge(Results(body["lines"]))
    found = []
    for line in body["lines"]:
        scene = scene_of(line)
        figures = None if scene is None else judge.figures(scene, str(line["way"]))
        if scene is None or figures is None or len(scene.tenants) < 2:
            continue
        late = [number(one, "p99_ms") for one in figures]
        worst = max((one for one in late if not math.isnan(one)), default=math.nan)
        work = sum(number(one, "of_alone") for one in figures)
        found.append(Point(scene.name, str(line["way"]), work, worst))
    return found


def ordered(names: Sequence[str]) -> list[str]:
    """Each name once, as they come."""
    return list(dict.fromkeys(names))


def draw(bodies: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Writes the SVG of some sessions, each with references of its own.

    The same figures make the same file.

    Raises:
        ValueError: nothing is there to be drawn, or matplotlib is missing.
    """
    chosen = [one for body in bodies for one in points(body)]
    if not chosen:
        raise ValueError("no scene with neighbours was measured")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("the plot needs matplotlib: pip install matplotlib") from None
    mpl.rcParams["svg.hashsalt"] = "colocation"
    scenes, names = ordered([one.scene for one in chosen]), ordered([one.way for one in chosen])
    picture = Figure(figsize=(WIDE_INCHES, HEAD_INCHES + ROW_INCHES * len(scenes)))
    work, late = picture.subplots(1, 2, sharey=True)
    for place, name in enumerate(names):
        marker, colour = LOOKS[place % len(LOOKS)]
        mine = [one for one in chosen if one.way == name]
        rows = [scenes.index(one.scene) + 0.12 * (place - (len(names) - 1) / 2) for one in mine]
        look = {"label": name, "marker": marker, "color": colour, "s": 26}
        work.scatter([one.work_percent for one in mine], rows, **look)
        late.scatter([one.p99_ms for one in mine], rows, **look)
    work.set_yticks(range(len(scenes)), scenes)
    work.invert_yaxis()
    work.axvline(100, color="#bbbbbb", zorder=0)
    work.set_xlabel("work of all tenants, % of one alone (more is better)")
    late.set_xlabel("p99 of the slowest tenant, ms (less is better)")
    if any(one.p99_ms > 0 for one in chosen):
        late.set_xscale("log")
    for axes in (work, late):
        axes.grid(axis="y", color="#eeeeee", zorder=0)
    picture.legend(*work.get_legend_handles_labels(), loc="upper center", ncols=len(names))
    picture.tight_layout(rect=(0, 0, 1, 1 - 0.5 / picture.get_figheight()))
    picture.savefig(path, format="svg", metadata={"Date": None})
