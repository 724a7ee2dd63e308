"""Core limits of several processes and containers on one GPU: shares, sum, deaths, idleness.

All programs write down when their kernels ran; the GPU's clock is one for all of them.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from driven import Driven, DrivenError, driven
from part_cores import SECOND_POINTS, SHARE_POINTS, Spin, compile_spin, fenced
from report import Report
from setup import Setup

SUM_RATIO = 0.99  # of one bare process, when all saturate
GAP_MS = 50.0  # within which others go on after a holder is gone
SECONDS = 5.0
LEAD_S = 1.0  # of a run, when not all have begun
Intervals = list[tuple[int, int]]  # nanoseconds of the GPU's clock, sorted


@dataclass(slots=True)
class Tenant:
    """A container: its limit in percent and its running programs."""

    limit: int
    programs: list[Driven]


def united(parts: Sequence[Intervals]) -> Intervals:
    """Intervals of several processes as one."""
    result: Intervals = []
    for begin, end in sorted(interval for part in parts for interval in part):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def share(busy: Intervals, begin: int, end: int) -> float:
    """Percent of [begin, end) that is covered."""
    covered = sum(max(0, min(end, last) - max(begin, first)) for first, last in busy)
    return 100 * covered / (end - begin)


def beside(own: Intervals, other: Intervals, begin: int, end: int) -> float:
    """Percent of [begin, end) that one had of the GPU: half of what both kernels lasted at once.

    A kernel lasts while the driver's slices are the other one's, too.
    """
    whole = share(united([own, other]), begin, end)
    return (whole + share(own, begin, end) - share(other, begin, end)) / 2


def longest_pause_ms(busy: Intervals, begin: int, end: int) -> float:
    """The longest time in [begin, end) without a kernel."""
    at, longest = begin, 0
    for first, last in busy:
        if last > begin and first < end:
            longest = max(longest, first - at)
            at = max(at, last)
    return max(longest, end - at) / 1e6


def read(path: Path) -> Intervals:
    """What a program wrote; nothing when it was killed before."""
    if not path.exists():
        return []
    numbers = array("Q", path.read_bytes())
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class Scene:
    """Containers that share a node folder, running one spin each at the same time."""

    def __init__(self, setup: Setup, program: Path, stack: ExitStack) -> None:
        self._setup, self._program, self._stack = setup, program, stack
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._tenants: list[Tenant] = []

    def add(self, limit: int, processes: int = 1, **more: str) -> Tenant:
        """One more container; its programs are started and wait."""
        node = self._folder / "node"
        node.mkdir(exist_ok=True)
        names = {"GPUFENCE_NODE_DIR": str(node), "GPUFENCE_CONTAINER": f"c{len(self._tenants)}"}
        env = self._stack.enter_context(fenced(self._setup, limit, **names, **more))
        programs = [
            self._stack.enter_context(driven([self._program], env, f"{limit} %"))
            for _ in range(processes)
        ]
        self._tenants.append(Tenant(limit, programs))
        return self._tenants[-1]

    def file(self, program: Driven) -> Path:
        """Where a program's intervals go."""
        return self._folder / f"{program.pid}.spans"

    def start(self, program: Driven, spin: Spin) -> None:
        """Begins a spin and does not wait."""
        words = ("run", spin.path, spin.kernel_us, spin.blocks, spin.seconds, spin.gap_us)
        program.say(*words, self.file(program))

    def end(self, program: Driven, spin: Spin) -> Intervals:
        """Waits for a spin's end."""
        program.line(spin.seconds * 4 + 60)
        return read(self.file(program))


def _together(
    setup: Setup,
    report: Report,
    program: Path,
    name: str,
    spin: Spin,
    limits: Sequence[tuple[int, int]],
) -> None:
    """Saturating containers of (limit, processes): each share, and the sum of all."""
    with driven([program], setup.environment(preload=False), "bare") as bare:
        alone = float(str(replace(spin, seconds=1.0).ask(bare)["share"]))
    with ExitStack() as stack:
        scene = Scene(setup, program, stack)
        tenants = [scene.add(limit, processes) for limit, processes in limits]
        for tenant in tenants:
            for one in tenant.programs:
                scene.start(one, spin)
        parts = [united([scene.end(one, spin) for one in tenant.programs]) for tenant in tenants]
    begin = max(part[0][0] for part in parts) + int(LEAD_S * 1e9)
    end = min(part[-1][0] for part in parts)
    shares = [share(part, begin, end) for part in parts]
    seconds = [
        [round(share(part, at, at + 10**9), 1) for at in range(begin, end - 10**9 + 1, 10**9)]
        for part in parts
    ]
    whole = share(united(parts), begin, end)
    wanted = sum(tenant.limit for tenant in tenants)
    complaints = [
        f"{got:.1f} instead of {tenant.limit}"
        for got, tenant in zip(shares, tenants, strict=True)
        if abs(got - tenant.limit) > SHARE_POINTS
    ]
    if wanted == 100 and whole < alone * SUM_RATIO:
        complaints.append(f"only {100 * whole / alone:.1f} % of a bare process in sum")
    worst = max(
        abs(second - tenant.limit)
        for row, tenant in zip(seconds, tenants, strict=True)
        for second in row
    )
    if worst > SECOND_POINTS:
        complaints.append(f"a second was off by {worst:.1f}")
    text = f"{' + '.join(f'{one:.1f}' for one in shares)} = {whole:.1f} % of the time"
    text += f", a bare process {alone:.1f}"
    report.judge(
        "cores_tenants",
        name,
        "different" if complaints else "same",
        "; ".join([text, *complaints]),
        shares=shares,
        seconds=seconds,
        whole=whole,
    )


def _idle_neighbour(setup: Setup, report: Report, program: Path) -> None:
    """A container that is idle half of its time must not cost the other its share."""
    busy, idle = (
        Spin(1_000, seconds=SECONDS),
        Spin(5_000, path="gap", gap_us=15_000, seconds=SECONDS),
    )
    with ExitStack() as stack:
        scene = Scene(setup, program, stack)
        saturating, lazy = scene.add(50).programs[0], scene.add(50).programs[0]
        scene.start(saturating, busy)
        scene.start(lazy, idle)
        parts = [scene.end(saturating, busy), scene.end(lazy, idle)]
    begin = max(part[0][0] for part in parts) + int(LEAD_S * 1e9)
    end = min(part[-1][0] for part in parts)
    shares = [beside(*parts, begin, end), share(parts[1], begin, end)]
    verdict = "same" if abs(shares[0] - 50) <= SHARE_POINTS and shares[1] >= 20 else "different"
    text = f"saturating {shares[0]:.1f} of 50 %, the other one's kernels {shares[1]:.1f} of 25 %"
    report.judge("cores_tenants", "idle half of the time", verdict, text, shares=shares)


def _gone(setup: Setup, report: Report, program: Path, name: str, number: signal.Signals) -> None:
    """A saturating holder is killed or stopped: the other goes on soon."""
    spin = Spin(500, seconds=4.0)
    pauses = []
    for attempt in range(3):
        with ExitStack() as stack:
            scene = Scene(setup, program, stack)
            stays, goes = scene.add(50).programs[0], scene.add(50).programs[0]
            scene.start(stays, spin)
            scene.start(goes, spin)
            time.sleep(1.5 + 0.137 * attempt)
            os.kill(goes.pid, number)
            busy = scene.end(stays, spin)
            if number == signal.SIGSTOP:
                os.kill(goes.pid, signal.SIGKILL)
        pauses.append(longest_pause_ms(busy, busy[0][0] + 10**9, busy[-1][0]))
    verdict = "same" if max(pauses) <= GAP_MS else "different"
    text = f"longest pauses of the other {', '.join(f'{one:.1f}' for one in pauses)} ms"
    report.judge("cores_tenants", name, verdict, text, pauses_ms=pauses)


def _soft(setup: Setup, report: Report, program: Path) -> None:
    """Alone up to the soft limit; back to the hard one within a second, and up again."""
    long, short = Spin(1_000, seconds=9.0), Spin(1_000, seconds=3.0)
    with ExitStack() as stack:
        scene = Scene(setup, program, stack)
        soft = scene.add(30, GPUFENCE_CORE_SOFT_LIMIT="80").programs[0]
        other = scene.add(70).programs[0]
        scene.start(soft, long)
        time.sleep(3)
        scene.start(other, short)
        between = scene.end(other, short)
        busy = scene.end(soft, long)
    came, left = between[0][0], between[-1][1]
    spans = {
        "alone": (busy[0][0] + 10**9, came),
        "with another": (came + 10**9, left),
        "alone again": (left + 10**9, busy[-1][0]),
    }
    shares = {name: round(share(busy, *span), 1) for name, span in spans.items()}
    right = all(
        abs(shares[name] - wanted) <= SECOND_POINTS
        for name, wanted in (("alone", 80), ("with another", 30), ("alone again", 80))
    )
    report.judge(
        "cores_tenants",
        "soft limit 30 to 80",
        "same" if right else "different",
        str(shares),
        shares=shares,
    )


def _scenes(setup: Setup, report: Report, program: Path) -> None:
    short, long = Spin(500, seconds=SECONDS), Spin(5_000, seconds=SECONDS)
    for limits in ([(30, 1), (70, 1)], [(50, 1), (50, 1)], [(25, 1)] * 4):
        for spin in (short, long):
            name = f"{'/'.join(str(limit) for limit, _ in limits)} {spin.name}"
            _together(setup, report, program, name, spin, limits)
    _together(setup, report, program, "four processes in one at 50", short, [(50, 4)])
    _together(
        setup,
        report,
        program,
        "two processes each, 30/70",
        replace(short, seconds=4.0),
        [(30, 2), (70, 2)],
    )


def run_part(setup: Setup, report: Report) -> None:
    """Some two minutes."""
    with tempfile.TemporaryDirectory() as name:
        program = compile_spin(setup, Path(name))
        if isinstance(program, str):
            verdict = "skipped" if setup.simulated else "failed"
            report.judge("cores_tenants", "all", verdict, program)
            return
        steps: dict[str, Callable[[], None]] = {
            "shares": lambda: _scenes(setup, report, program),
            "idle": lambda: _idle_neighbour(setup, report, program),
            "killed": lambda: _gone(setup, report, program, "holder killed", signal.SIGKILL),
            "stopped": lambda: _gone(setup, report, program, "holder stopped", signal.SIGSTOP),
            "soft": lambda: _soft(setup, report, program),
        }
        for step, action in steps.items():
            try:
                action()
            except (DrivenError, IndexError, ValueError) as error:  # noqa: PERF203
                report.judge("cores_tenants", step, "failed", f"{type(error).__name__}: {error}")
