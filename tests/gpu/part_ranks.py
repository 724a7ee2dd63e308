"""Jobs on several GPUs inside one container: a rank for each GPU, or one process with all of them.

DistributedDataParallel, FSDP, a pipeline of as many stages as there are GPUs, and JAX pmap, each
bare and inside a memory limit and a core limit. Each must compute the same, keep its share on every
GPU, and get its own out-of-memory error, after which it goes on. All programs start side by side,
and the jobs then work one after the other. Leaves ranks.txt, a table. At most MOST_S.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from driven import Driven, DrivenError, started
from memory_families import LIMIT, LIMIT_TEXT
from part_clients import JAX, QUIET, TORCH
from part_cores import fenced
from part_cores_frameworks import record_excess_ms
from part_frameworks import SKIPPED, python
from report import MARKS, Report
from setup import Setup, run

PART = "ranks"
MOST_S = 90.0
REFUSED_S = 12.0  # kept for the end
START_S = 60.0
ANSWER_S = 25.0
BARE_S, SPENT_S, SECONDS = 1.0, 0.3, 2.0
LEAST_MIB = 1024  # granted before the refusal
FEWEST = 2  # GPUs
COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value)
"""
Answers = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Job:
    """What ranks.py calls it, its core limit, how far its share may be off, and its own error."""

    kind: str
    limit: int
    points: float
    error: tuple[str, str] = TORCH


JOBS = {
    "DistributedDataParallel at 50": Job("ddp", 50, 2.0),
    "FSDP at 50": Job("fsdp", 50, 2.0),
    "JAX pmap at 50": Job("pmap", 50, 2.0, JAX),
    "pipeline at 25": Job("stages", 25, 3.0),
    "pipeline at 50": Job("stages", 50, 3.0),
}


@dataclass(slots=True)
class Team:
    """The processes of one job, which are all told the same."""

    programs: list[Driven]

    def await_ready(self, deadline: float) -> None:
        """Until each is."""
        for program in self.programs:
            program.await_ready(max(0.1, deadline - time.monotonic()))

    def tell(self, *words: object) -> Answers:
        """One line to each, and one from each; DrivenError when one is late."""
        for program in self.programs:
            program.say(*words)
        return [json.loads(program.line(ANSWER_S)) for program in self.programs]

    def kill(self) -> None:
        """Those that wait for each other on the GPUs would be in the way of all others."""
        for program in self.programs:
            program.process.kill()


@dataclass(slots=True)
class Found:
    """What became of one job, rank by rank; `skipped`, `failed`: why."""

    name: str
    skipped: str = ""
    failed: str = ""
    bare: Answers = field(default_factory=list)
    limited: Answers = field(default_factory=list)
    refused: Answers = field(default_factory=list)

    @property
    def works(self) -> bool:
        """So far."""
        return not self.skipped and not self.failed

    def wrong(self) -> list[str]:
        """What broke a promise."""
        job, found = JOBS[self.name], []
        ranks = zip(self.bare, self.limited, self.refused, strict=True)
        for rank, (bare, limited, refused) in enumerate(ranks):
            mine = [] if limited["libgpufence"] else ["the library was not there"]
            if limited["lines"] != bare["lines"] or not bare["lines"]:
                mine.append(f"results differ: {bare['lines']} / {limited['lines']}")
            mine += wrong_refusal(job, bare["lines"], refused)
            mine += wrong_share(job, bare, limited)
            found += [f"rank {rank}: {each}" for each in mine]
        return found

    def cells(self) -> tuple[str, ...]:
        """Its line of the table: results, rate and shares bare and limited, granted, its error."""
        same = all(a["lines"] == b["lines"] for a, b in zip(self.bare, self.limited, strict=True))
        of_bare = 100 * self.limited[0]["rate"] / self.bare[0]["rate"]
        shares = [
            " + ".join(f"{each.get(word, float('nan')):.1f}" for each in every)
            for every, word in ((self.bare, "share"), (self.limited, "percent"))
        ]
        granted = " + ".join(str(each["granted MiB"]) for each in self.refused)
        told = ("equal" if same else "DIFFERENT", f"{of_bare:.1f}", *shares, granted)
        return (self.name, *told, str(self.refused[0]["error"]))


def wrong_refusal(job: Job, lines: Sequence[str], said: dict[str, Any]) -> list[str]:
    """What is wrong with a rank's own error."""
    name, message = job.error
    found = []
    if said["error"] != name or not re.search(message, said.get("message", "")):
        found.append(f"its error is {said['error']}: {said.get('message', '')}")
    if not LEAST_MIB <= said["granted MiB"] <= LIMIT >> 20:
        found.append(f"{said['granted MiB']} MiB granted")
    if said["lines"] != lines:
        found.append(f"results differ after the refusal: {said['lines']}")
    return found


def wrong_share(job: Job, bare: dict[str, Any], limited: dict[str, Any]) -> list[str]:
    """What is wrong with a rank's share of its GPU's time."""
    if "share" not in bare or "percent" not in limited:
        return [f"nobody saw its kernels: {limited.get('unseen', 'none ran')}"]
    off = limited["percent"] - min(job.limit, bare["share"])
    return [f"its share is off by {off:+.1f} points"] if abs(off) > job.points else []


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as they must be."""
    head = ("job", "results", "% of bare rate", "bare %", "limited %", "MiB of 4096", "its error")
    wide = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
    lines = [
        "  ".join(text.ljust(size) for text, size in zip(row, wide, strict=True)).rstrip()
        for row in [head, *rows]
    ]
    return "\n".join(lines) + "\n"


def run_part(setup: Setup, report: Report) -> None:
    """All of it; over the simulated driver a rehearsal on the processor."""
    bounded = replace(setup, deadline=min(setup.deadline, time.monotonic() + MOST_S))
    with tempfile.TemporaryDirectory(prefix="gpufence-ranks-") as name:
        if setup.simulated:
            rehearse(bounded, report, Path(name))
            return
        done = run([sys.executable, "-c", COUNT], setup.environment(preload=False), 60)
        gpus = int(done.stdout) if done.status == 0 else 0
        if gpus < FEWEST:
            report.judge(PART, "all", "skipped", f"needs {FEWEST} GPUs, and {gpus} are here")
            return
        with ExitStack() as stack:
            rows = _all_jobs(bounded, report, stack, Path(name), gpus)
    text = table(rows)
    (setup.out / "ranks.txt").write_text(text, encoding="utf-8")
    report.note(f"{PART}: {gpus} GPUs, {LIMIT_TEXT} of each\n{text}")


# Implementation.


def _all_jobs(
    setup: Setup, report: Report, stack: ExitStack, folder: Path, gpus: int
) -> list[tuple[str, ...]]:
    kinds = dict.fromkeys(job.kind for job in JOBS.values())
    bare = {kind: _start(setup, stack, folder, Job(kind, 0, 0.0), gpus) for kind in kinds}
    limited = {name: _start(setup, stack, folder, job, gpus) for name, job in JOBS.items()}
    excess_ms = record_excess_ms(setup, report, PART)
    every = [Found(name) for name in JOBS]
    deadline = min(setup.deadline, time.monotonic() + START_S)
    absent = {kind: _until_ready(team, deadline) for kind, team in bare.items()}
    for found in every:
        why = absent[JOBS[found.name].kind] or _until_ready(limited[found.name], deadline)
        missing = f"status {SKIPPED}:" in why
        found.skipped, found.failed = (why, "") if missing else ("", why)
    for found in (one for one in every if one.works):
        if setup.left_s(1 + REFUSED_S) <= REFUSED_S:
            found.skipped = "the time is over"
            continue
        _measure(found, bare[JOBS[found.name].kind], limited[found.name], excess_ms)
    for found in (one for one in every if one.works):
        _refuse(found, limited[found.name])
    return [_judged(report, found) for found in every]


def _start(setup: Setup, stack: ExitStack, folder: Path, job: Job, gpus: int) -> Team:
    """A job's processes; without a limit where its limit is 0."""
    devices = f"--xla_force_host_platform_device_count={gpus}"
    on_processor = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": devices} if setup.simulated else {}
    command, extra = python("ranks.py", **QUIET, OMP_NUM_THREADS="1", **on_processor)
    env = setup.environment(preload=False, extra=extra)
    if job.limit:
        limits = {"GPUFENCE_MEMORY_LIMIT": LIMIT_TEXT, "GPUFENCE_TEST_LIMIT": str(LIMIT)}
        env = stack.enter_context(fenced(setup, job.limit, **extra, **limits))
    meeting = folder / f"{job.kind}-{job.limit}"
    programs = []
    for rank in range(1 if job.kind == "pmap" else gpus):
        words = (*command, job.kind, rank, gpus, meeting, *(["cpu"] if setup.simulated else []))
        name = f"{job.kind} {job.limit or 'bare'}, rank {rank}"
        programs.append(stack.enter_context(started(words, env, name)))
    return Team(programs)


def _until_ready(team: Team, deadline: float) -> str:
    """Why it is not; empty when it is."""
    try:
        team.await_ready(deadline)
    except DrivenError as error:
        team.kill()
        return " ".join(str(error).split())[-300:]
    return ""


def _measure(found: Found, bare: Team, limited: Team, excess_ms: float) -> None:
    """Results and shares of one job, first bare and then limited."""
    team = bare
    try:
        results, seen = bare.tell("results"), bare.tell("share", BARE_S)
        found.bare = _merged(results, seen, bare.tell("rate", BARE_S))
        team = limited
        results = limited.tell("results")
        limited.tell("rate", SPENT_S)
        rates, seen = limited.tell("rate", SECONDS), limited.tell("share", SECONDS)
        found.limited = _merged(results, seen, rates)
        for each in found.limited:
            if "step_ms" in each:
                step_ms = each["step_ms"] - each["kernels"] * excess_ms
                each["percent"] = each["rate"] * step_ms / 10
    except DrivenError as error:
        found.failed = str(error)
        team.kill()


def _refuse(found: Found, limited: Team) -> None:
    """All ranks at their memory limit at once."""
    try:
        found.refused = limited.tell("refused")
    except DrivenError as error:
        found.failed = str(error)
        limited.kill()


def _merged(*answers: Answers) -> Answers:
    """Rank by rank, what it answered; of one name the last."""
    return [{k: v for one in each for k, v in one.items()} for each in zip(*answers, strict=True)]


def _judged(report: Report, found: Found) -> tuple[str, ...]:
    """One verdict; gives back the job's line of the table."""
    if not found.works:
        verdict = "skipped" if found.skipped else "failed"
        text = found.skipped or found.failed
        report.judge(PART, found.name, verdict, text[-300:])
        return (found.name, MARKS[verdict], "", "", "", "", text[-60:])
    wrong, cells = found.wrong(), found.cells()
    verdict = "different" if wrong else "same"
    text = f"{cells[3]} % bare, {cells[4]} % limited, {cells[2]} % of the bare rate"
    said = {"bare": found.bare, "limited": found.limited, "refused": found.refused}
    report.judge(PART, found.name, verdict, "; ".join([text, *wrong]), **said)
    return cells


def rehearse(setup: Setup, report: Report, folder: Path) -> None:
    """Without GPUs: two ranks on the processor, twice, which must agree and go on."""
    for kind in dict.fromkeys(job.kind for job in JOBS.values()):
        lines: list[list[str]] = []
        try:
            for number in range(2):
                with ExitStack() as stack:
                    place = folder / str(number)
                    place.mkdir(exist_ok=True)
                    team = _start(setup, stack, place, Job(kind, 0, 0.0), FEWEST)
                    team.await_ready(time.monotonic() + setup.left_s(START_S))
                    team.tell("rate", 0.1)
                    lines.append([line for one in team.tell("results") for line in one["lines"]])
        except DrivenError as error:
            missing = f"status {SKIPPED}:" in str(error)
            text = " ".join(str(error).split())[-300:]
            report.judge(PART, kind, "skipped" if missing else "failed", text)
            continue
        verdict = "same" if lines[0] == lines[1] and lines[0] else "different"
        report.judge(PART, kind, verdict, f"on the processor: {lines[0]}")
