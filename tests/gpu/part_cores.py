"""The core limit of one container: the share that kernels really had, by the GPU's own clock.

Kernels of 10 us to a second, by every launch path, at limits from 10 to 90 %. Several processes and
containers are part_cores_tenants; frameworks are part_cores_frameworks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driven import Driven, DrivenError, driven
from report import Report
from setup import REPO, Setup, run

SOURCE = REPO / "tests" / "gpu" / "workloads" / "cores_spin.cu"
SHARE_POINTS = 2.0  # over the whole run
SECOND_POINTS = 5.0  # over each second
FREE_RATIO = 0.98  # of the bare rate, for work that needs less than its limit
RATE_RATIO = 0.97  # of the bare launch rate, at a limit of 99 %
LONG_US = 50_000  # a kernel this long says nothing about a single second
LAUNCHES = 200_000


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

    def ask(self, program: Driven, file: Path | None = None) -> dict[str, object]:
        """Runs it in a program and gives back what the program says."""
        words = ("run", self.path, self.kernel_us, self.blocks, self.seconds, self.gap_us)
        extra = (file,) if file is not None else ()
        answer: dict[str, object] = json.loads(
            program.tell(*words, *extra, timeout_s=self.seconds * 3 + 60)
        )
        return answer


LENGTHS = (
    Spin(10),
    Spin(100),
    Spin(1_000),
    Spin(20_000),
    Spin(200_000, seconds=8.0),
)
GRIDS = tuple(
    Spin(length, blocks=blocks) for blocks in (1, 65536) for length in (100, 1_000, 20_000)
)
PATHS = tuple(
    Spin(500, path=path) for path in ("ex", "cooperative", "graph", "two", "sync", "per_thread")
)
PAUSES = Spin(1_000, path="gap", gap_us=2_000)
MATRIX: dict[int, tuple[Spin, ...]] = {
    10: LENGTHS,
    25: (*LENGTHS, *GRIDS),
    30: PATHS,
    50: (*LENGTHS, PAUSES, Spin(1_000_000, seconds=10.0)),
    70: PATHS,
    75: LENGTHS,
    90: LENGTHS,
}


def compile_spin(setup: Setup, folder: Path) -> Path | str:
    """The program, or why there is none."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or setup.simulated:
        return "no nvcc, or a simulated driver"
    target = folder / "cores_spin"
    done = run([nvcc, "-O2", "-o", target, SOURCE], setup.environment(preload=False), 120)
    return target if done.status == 0 else f"nvcc: {done.stderr[-300:]}"


@contextmanager
def fenced(setup: Setup, limit: int, **more: str) -> Iterator[dict[str, str]]:
    """A container's environment: a core limit in percent, and a state folder of its own."""
    with tempfile.TemporaryDirectory() as state:
        names = {"GPUFENCE_CORE_LIMIT": str(limit), "GPUFENCE_STATE_DIR": state}
        yield setup.environment(preload=True, extra={**names, **more})


def judge_share(report: Report, limit: int, spin: Spin, said: dict[str, object]) -> None:
    """Whether the share was the limit, over the run and over each second."""
    share, seconds = float(str(said["share"])), said["seconds"]
    assert isinstance(seconds, list)
    complaints = []
    if abs(share - limit) > SHARE_POINTS:
        complaints.append(f"off by {share - limit:+.1f} points")
    worst = max((abs(second - limit) for second in seconds), default=0.0)
    if spin.kernel_us < LONG_US and worst > SECOND_POINTS:
        complaints.append(f"a second was off by {worst:.1f}")
    text = f"{share:.2f} %, seconds {seconds}, longest launch {said['longest_ms']} ms"
    report.judge(
        "cores",
        f"{limit} % {spin.name}",
        "different" if complaints else "same",
        "; ".join([text, *complaints]),
        limit=limit,
        **said,
    )


def _limits(setup: Setup, report: Report, program: Path) -> None:
    for limit, spins in MATRIX.items():
        try:
            with fenced(setup, limit) as env, driven([program], env, f"{limit} %") as container:
                for spin in spins:
                    if spin is not PAUSES and setup.left_s(spin.seconds + 5) >= spin.seconds:
                        judge_share(report, limit, spin, spin.ask(container))
        except DrivenError as error:  # noqa: PERF203 - seven times is not often
            report.judge("cores", f"{limit} %", "failed", str(error))


def _work_that_needs_less(setup: Setup, report: Report, program: Path) -> None:
    rates = []
    with driven([program], setup.environment(preload=False), "bare") as bare:
        rates.append(float(str(PAUSES.ask(bare)["rate"])))
    with fenced(setup, 50) as env, driven([program], env, "50 %") as container:
        rates.append(float(str(PAUSES.ask(container)["rate"])))
    ratio = rates[1] / rates[0]
    verdict = "same" if ratio >= FREE_RATIO else "different"
    text = f"{100 * ratio:.1f} % of the bare rate ({rates[0]:.1f} a second)"
    report.judge("cores", f"needs less than 50 %: {PAUSES.name}", verdict, text, rates=rates)


def _launch_rate(setup: Setup, report: Report, program: Path) -> None:
    said = {}
    with driven([program], setup.environment(preload=False), "bare") as bare:
        said["bare"] = json.loads(bare.tell("rate", LAUNCHES))
    with fenced(setup, 99) as env, driven([program], env, "99 %") as container:
        said["limited"] = json.loads(container.tell("rate", LAUNCHES))
    ratio = said["bare"]["each_ns"] / said["limited"]["each_ns"]
    verdict = "same" if ratio >= RATE_RATIO else "different"
    text = f"{100 * ratio:.1f} % of the bare rate; " + ", ".join(
        f"{name} {one['each_ns']:.0f} ns each, p99 {one['p99_ns']:.0f}, "
        f"longest {one['longest_ns'] / 1000:.0f} us"
        for name, one in said.items()
    )
    report.judge("cores", "launch rate at 99 %", verdict, text, **said)


def _watcher(setup: Setup, report: Report, program: Path) -> None:
    """CPU time of the process's other threads, busy and idle."""
    with fenced(setup, 50) as env, driven([program], env, "watched") as container:
        shares = {}
        for name, spin in {"busy": Spin(1_000), "idle": None}.items():
            before = threads_s(container.pid)
            if spin is not None:
                spin.ask(container)
            else:
                run(["sleep", "2"], env, 5)
            used = threads_s(container.pid)
            spans = {tid: used[tid] - before.get(tid, 0.0) for tid in used if tid != container.pid}
            shares[name] = 100 * sum(spans.values()) / (spin.seconds if spin else 2.0)
    verdict = "same" if shares["busy"] <= 2.0 and shares["idle"] <= 0.1 else "different"
    text = f"{shares['busy']:.2f} % of a core busy, {shares['idle']:.2f} % idle"
    report.judge("cores", "watcher", verdict, text, **shares)


def threads_s(pid: int) -> dict[int, float]:
    """CPU seconds of each thread, to the nanosecond."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds = (task / "schedstat").read_text(encoding="utf-8").split()[0]
        found[int(task.name)] = int(nanoseconds) / 1e9
    return found


def run_part(setup: Setup, report: Report) -> None:
    """The quick questions first, then the matrix."""
    with tempfile.TemporaryDirectory() as name:
        program = compile_spin(setup, Path(name))
        if isinstance(program, str):
            report.judge("cores", "all", "skipped" if setup.simulated else "failed", program)
            return
        for step in (_launch_rate, _watcher, _work_that_needs_less, _limits):
            try:
                step(setup, report, program)
            except DrivenError as error:  # noqa: PERF203 - four times is not often
                report.judge("cores", step.__name__.strip("_"), "failed", str(error))
