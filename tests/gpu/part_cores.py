"""The core limit of one container: the share that kernels really had, by the GPU's own clock.

Kernels of 10 us to a second, by every launch path, at limits from 10 to 90 % (core_matrix). Several
processes and containers are part_cores_tenants, frameworks part_cores_frameworks, and what it costs
is part_cores_cost. Leaves cores.txt, a table, beside the report.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_matrix import SHORT_S, Cell, cells, waited_cells
from driven import Driven, DrivenError, driven
from report import Report
from setup import REPO, Setup, run

SOURCE = REPO / "tests" / "gpu" / "workloads" / "cores_spin.cu"
SHARE_POINTS = 2.0  # over the whole run
SECOND_POINTS = 5.0  # over each second
FREE_RATIO = 0.98  # of the bare rate, for work that needs less than its limit
LONG_US = 50_000  # a kernel this long says nothing about a single second
# Rates of single processes differ by 3 to 5 % (H200), however long they run: what needs less than
# its limit is run so often with and without one, in turns.
TURNS = 9
TURN_S = 0.4
STARTS_S = 10.0  # of a turn's processes, at most


@dataclass(frozen=True, slots=True)
class Spin:
    """One run of the spinning kernels; times in microseconds unless named otherwise."""

    kernel_us: float
    blocks: int = 132
    path: str = "plain"
    seconds: float = 4.0
    gap_us: float = 0.0

    @property
    def name(self) -> str:
        """As reports call it."""
        pause = f" + {self.gap_us:g} us pause" if self.gap_us else ""
        return f"{self.path} {self.kernel_us:g} us x {self.blocks}{pause}"

    def ask(self, program: Driven, file: Path | None = None) -> dict[str, Any]:
        """Runs it in a program and gives back what the program says: numbers by name."""
        words = ("run", self.path, self.kernel_us, self.blocks, self.seconds, self.gap_us)
        extra = (file,) if file is not None else ()
        answer: dict[str, Any] = json.loads(
            program.tell(*words, *extra, timeout_s=self.seconds * 3 + 60)
        )
        return answer


PAUSES = Cell(50, 1_000, "gap", 132)
BARE_S = 1.5
Row = tuple[Cell, dict[str, Any], dict[str, Any] | None]  # what it said, and without a limit


def spin_of(cell: Cell, seconds: float | None = None) -> Spin:
    """What a cell of the matrix runs; `seconds` instead of its own."""
    return Spin(cell.length_us, cell.blocks, cell.path, seconds or cell.seconds, cell.gap_us)


def compile_spin(setup: Setup, folder: Path) -> Path | str:
    """The program, or why there is none."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or setup.simulated:
        return "no nvcc, or a simulated driver"
    target = folder / "cores_spin"
    done = run([nvcc, "-O2", "-o", target, SOURCE, "-lcuda"], setup.environment(preload=False), 120)
    return target if done.status == 0 else f"nvcc: {done.stderr[-300:]}"


@contextmanager
def fenced(setup: Setup, limit: int, **more: str) -> Iterator[dict[str, str]]:
    """A container's environment: a core limit in percent, and a state folder of its own."""
    with tempfile.TemporaryDirectory() as state:
        names = {"GPUFENCE_CORE_LIMIT": str(limit), "GPUFENCE_STATE_DIR": state}
        yield setup.environment(preload=True, extra={**names, **more})


def complaints_about(cell: Cell, said: dict[str, Any], bare: dict[str, Any] | None) -> list[str]:
    """What is wrong with the share that a cell had; `bare`: the same work without a limit."""
    if bare is not None and bare["share"] <= cell.limit:
        ratio = said["rate"] / bare["rate"]
        return [] if ratio >= FREE_RATIO else [f"{100 * ratio:.1f} % of the bare rate"]
    found = []
    if abs(said["share"] - cell.limit) > SHARE_POINTS:
        found.append(f"off by {said['share'] - cell.limit:+.1f} points")
    worst = max((abs(second - cell.limit) for second in said["seconds"]), default=0.0)
    if cell.length_us < LONG_US and worst > SECOND_POINTS:
        found.append(f"a second was off by {worst:.1f}")
    return found


def table(rows: Sequence[Row]) -> str:
    """The matrix for people: one line per run."""
    lines = [
        f"{'limit':>5} {'length us':>9} {'blocks':>6} {'path':12}{'share':>7}{'bare':>7}  wrong"
    ]
    for cell, said, bare in rows:
        free = f"{bare['share']:7.2f}" if bare is not None else " " * 7
        words = f"{cell.limit:5} {cell.length_us:9} {cell.blocks:6} {cell.path:12}"
        line = f"{words}{said['share']:7.2f}{free}  {'; '.join(complaints_about(cell, said, bare))}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def _bare(setup: Setup, program: Path, chosen: Sequence[Cell]) -> dict[Spin, dict[str, Any]]:
    """What those cells that may need less than their limit do without one."""
    found: dict[Spin, dict[str, Any]] = {}
    with driven([program], setup.environment(preload=False), "bare") as bare:
        for cell in chosen:
            spin = spin_of(cell, BARE_S)
            if cell.may_need_less and spin not in found:
                found[spin] = spin.ask(bare)
    return found


def run_matrix(
    setup: Setup, report: Report, program: Path, chosen: Sequence[Cell] | None = None
) -> None:
    """The runs of core_matrix, or some of them; one container for each limit."""
    if chosen is None:
        chosen = (*cells(), *waited_cells())
    free = _bare(setup, program, chosen)

    def needs_less(cell: Cell) -> bool:
        bare = free.get(spin_of(cell, BARE_S))
        return bare is not None and bool(bare["share"] <= cell.limit)

    rows: list[Row] = []
    reaching = [cell for cell in chosen if not needs_less(cell)]
    for limit in sorted({cell.limit for cell in reaching}):
        try:
            with fenced(setup, limit) as env, driven([program], env, f"{limit} %") as container:
                for cell in (each for each in reaching if each.limit == limit):
                    if setup.left_s(cell.seconds + 5) < cell.seconds:
                        continue
                    said, bare = spin_of(cell).ask(container), free.get(spin_of(cell, BARE_S))
                    rows.append((cell, said, bare))
                    _judge(report, cell, said, bare)
        except DrivenError as error:
            report.judge("cores", f"{limit} %", "failed", str(error))
    try:
        rows += _in_turns(setup, report, program, [cell for cell in chosen if needs_less(cell)])
    except DrivenError as error:
        report.judge("cores", "needs less", "failed", str(error))
    (setup.out / "cores.txt").write_text(table(rows), encoding="utf-8")


def _in_turns(setup: Setup, report: Report, program: Path, chosen: Sequence[Cell]) -> list[Row]:
    """What needs less than its limit, with and without it: of each the run of median rate."""
    bare_runs: dict[Cell, list[dict[str, Any]]] = {cell: [] for cell in chosen}
    held_runs: dict[Cell, list[dict[str, Any]]] = {cell: [] for cell in chosen}
    turn_s = 2 * TURN_S * len(chosen) + STARTS_S
    for turn in range(TURNS if chosen else 0):
        if setup.left_s(turn_s) < turn_s:
            break
        with driven([program], setup.environment(preload=False), f"bare, turn {turn}") as bare:
            for cell in chosen:
                bare_runs[cell].append(spin_of(cell, TURN_S).ask(bare))
        for limit in sorted({cell.limit for cell in chosen}):
            with fenced(setup, limit) as env, driven([program], env, f"{limit} %") as container:
                for cell in (each for each in chosen if each.limit == limit):
                    held_runs[cell].append(spin_of(cell, TURN_S).ask(container))
    rows: list[Row] = [
        (cell, _of_median_rate(held_runs[cell]), _of_median_rate(bare_runs[cell]))
        for cell in chosen
        if held_runs[cell]
    ]
    for row in rows:
        _judge(report, *row)
    return rows


def _of_median_rate(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return sorted(runs, key=lambda run: float(run["rate"]))[len(runs) // 2]


def _judge(report: Report, cell: Cell, said: dict[str, Any], bare: dict[str, Any] | None) -> None:
    wrong = complaints_about(cell, said, bare)
    text = (
        f"{said['share']:.2f} %, seconds {said['seconds']}, longest launch {said['longest_ms']} ms"
    )
    if bare is not None:
        text += (
            f", bare {bare['share']:.2f} %, {100 * said['rate'] / bare['rate']:.1f} % of its rate"
        )
    name = f"{cell.limit} % {spin_of(cell).name}"
    verdict = "different" if wrong else "same"
    report.judge("cores", name, verdict, "; ".join([text, *wrong]), limit=cell.limit, **said)


def _work_that_needs_less(setup: Setup, report: Report, program: Path) -> None:
    _in_turns(setup, report, program, [PAUSES])


def _green_contexts(setup: Setup, report: Report, program: Path) -> None:
    """Streams of a green context that has all multiprocessors, at 30 %."""
    with fenced(setup, 30) as env, driven([program], env, "green") as container:
        for length_us in (100, 1_000, 20_000):
            cell = Cell(30, length_us, "green", 132)
            _judge(report, cell, spin_of(cell, SHORT_S).ask(container), None)


def run_part(setup: Setup, report: Report) -> None:
    """Six minutes, most of them the matrix."""
    with tempfile.TemporaryDirectory() as name:
        program = compile_spin(setup, Path(name))
        if isinstance(program, str):
            report.judge("cores", "all", "skipped" if setup.simulated else "failed", program)
            return
        for step in (_work_that_needs_less, _green_contexts, run_matrix):
            try:
                step(setup, report, program)
            except DrivenError as error:  # noqa: PERF203 - twice is not often
                report.judge("cores", step.__name__.strip("_"), "failed", str(error))
