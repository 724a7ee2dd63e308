"""What containers had of a GPU's time, tenth by tenth of a second, and the picture of it.

From kernels' records, and from what the library charged. Must not know how anything was run, nor
how it is judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from colocation.figures import Records, percentile

STEP_S = 0.1
BURST_GAP_NS = 20_000_000  # without a kernel: the next one belongs to another request
LOOKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
LEFT, WIDE, TOP, HIGH, BOTTOM, RIGHT = 46, 720, 56, 240, 60, 130
TEXT = 'font-family="sans-serif" font-size="13"'


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run, in seconds from its begin."""

    name: str
    begin_s: float
    end_s: float


def of_records(records: Records, zero_ns: int, seconds: float) -> list[float]:
    """Percent of each step that was work of these kernels; `zero_ns`: of the GPU's clock."""
    step_ns = int(STEP_S * 1e9)
    begins = (zero_ns + number * step_ns for number in range(round(seconds / STEP_S)))
    return [round(records.work_percent((begin, begin + step_ns)), 2) for begin in begins]


def charged_at(samples: Sequence[tuple[float, int]], moment: float) -> float:
    """Nanoseconds charged until a moment, between two looks evenly."""
    before: tuple[float, int] | None = None
    for at, charged in samples:
        if at >= moment:
            if before is None:
                return float(charged)
            part = (moment - before[0]) / (at - before[0])
            return before[1] + part * (charged - before[1])
        before = (at, charged)
    return float(before[1]) if before else 0.0


def of_charges(samples: Sequence[tuple[float, int]], seconds: float) -> list[float]:
    """The same of what was charged; samples: seconds from the begin, nanoseconds in all."""
    marks = [charged_at(samples, number * STEP_S) for number in range(round(seconds / STEP_S) + 1)]
    steps = itertools.pairwise(marks)
    return [round(max(0.0, last - first) / (STEP_S * 1e7), 2) for first, last in steps]


def mean(series: Sequence[float], phase: Phase) -> float:
    """Percent over whole steps of a phase."""
    chosen = series[round(phase.begin_s / STEP_S) : round(phase.end_s / STEP_S)]
    return sum(chosen) / max(1, len(chosen))


def requests_ms(records: Records) -> dict[str, float]:
    """How long a burst of kernels took, from its first one's begin to its last one's end."""
    bursts: list[list[int]] = []
    for begin, end, _ in records.kernels:
        if bursts and begin - bursts[-1][1] < BURST_GAP_NS:
            bursts[-1][1] = max(bursts[-1][1], end)
        else:
            bursts.append([begin, end])
    lengths = [(end - begin) / 1e6 for begin, end in bursts]
    named = {f"p{part}_ms": round(percentile(lengths, part), 2) for part in (50, 99)}
    return {"count": len(lengths), **named}


def drawn(title: str, series: Mapping[str, Sequence[float]], phases: Sequence[Phase]) -> str:
    """The SVG's text: a line for each container, bands for the phases. The same every time."""
    steps = max((len(line) for line in series.values()), default=0)
    scale = WIDE / max(1, steps)
    width, high = LEFT + WIDE + RIGHT, TOP + HIGH + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high}" width="{width}" '
        f'height="{high}" {TEXT}>',
        f'<rect width="{width}" height="{high}" fill="white"/>',
        _text(10, 20, title, 'font-weight="bold" font-size="15"'),
    ]
    for number, phase in enumerate(phases):
        begin, end = (LEFT + each / STEP_S * scale for each in (phase.begin_s, phase.end_s))
        shade = "#f4f4f4" if number % 2 else "#e9eef4"
        lines.append(
            f'<rect x="{begin:.1f}" y="{TOP}" width="{end - begin:.1f}" height="{HIGH}" '
            f'fill="{shade}"/>'
        )
        lines.append(_text((begin + end) / 2, TOP - 8, phase.name, 'text-anchor="middle"'))
    for percent in range(0, 101, 25):
        y = _y(percent)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{LEFT + WIDE}" stroke="#ccc"/>')
        lines.append(_text(LEFT - 6, y + 4, str(percent), 'text-anchor="end"'))
    for second in range(0, int(steps * STEP_S) + 1, 2):
        x = LEFT + second / STEP_S * scale
        lines.append(_text(x, TOP + HIGH + 18, str(second), 'text-anchor="middle"'))
    told = "seconds; percent of the GPU's time in each tenth of a second"
    lines.append(_text(LEFT + WIDE / 2, TOP + HIGH + 42, told, 'text-anchor="middle" fill="#555"'))
    for number, (name, line) in enumerate(series.items()):
        lines += _line(number, name, line, scale)
    return "\n".join([*lines, "</svg>", ""])


# Implementation.


def _y(percent: float) -> float:
    return TOP + HIGH - HIGH * min(max(percent, 0.0), 105.0) / 100


def _line(number: int, name: str, line: Sequence[float], scale: float) -> list[str]:
    colour, dash = LOOKS[number % len(LOOKS)], ("", "6 3", "2 2", "8 3 2 3")[number % 4]
    points = " ".join(
        f"{LEFT + (place + 0.5) * scale:.1f},{_y(percent):.1f}"
        for place, percent in enumerate(line)
    )
    look = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    y = TOP + 20 + 22 * number
    x = LEFT + WIDE + 10
    return [
        f'<polyline points="{points}" {look}/>',
        f'<path d="M{x} {y}h22" {look}/>',
        _text(x + 28, y + 4, name),
    ]


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'
