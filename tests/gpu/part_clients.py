"""Libraries that people use a GPU through, inside a memory limit and a core limit at once.

Each of workloads/clients.py runs bare and in a container of its own. Three promises: it computes
the same, its kernels run during its share of the time, and beyond the memory limit it gets its own
out-of-memory error, after which it goes on. All programs start side by side and then work one
after the other, alone on the GPU; at the end all of them try at once what is refused. Leaves
clients.txt, a table. At most MOST_S, whatever the run's budget: what is left then is skipped.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from driven import Driven, DrivenError, started
from memory_families import LIMIT, LIMIT_TEXT
from part_cores import fenced
from part_cores_frameworks import ask, record_excess_ms
from part_frameworks import SKIPPED, python
from report import MARKS, Report
from setup import Setup

PART = "clients"
CORE_LIMIT = 25  # percent
OVER_POINTS = 2.0  # a share may be above its limit by so much
UNDER_POINTS = 4.0  # and below what it would have; a client that waits for each step loses more
LEAST_MIB = 1024  # granted before the refusal
BARE_S = 0.6
SPENT_S = 0.3  # until what an idle container saved up is spent
SECONDS = 1.5  # each of both ways of looking
START_S = 90.0
MOST_S = 145.0
REFUSED_S = 20.0  # kept for the end
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TRANSFORMERS_VERBOSITY": "error",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}

# In this order, so that a short budget gets those that other parts do not have. By what the table
# calls them: the name in clients.py, what its own error is called, and what its text holds.
TORCH = ("OutOfMemoryError", r"total capacity of 4\.00 GiB")
JAX = ("JaxRuntimeError", "RESOURCE_EXHAUSTED")
CLIENTS = {
    "transformers generate": ("generate", *TORCH),
    "transformers generate, static cache": ("generate-static", *TORCH),
    "transformers generate, compiled": ("generate-compiled", *TORCH),
    "accelerate": ("accelerate", *TORCH),
    "PEFT": ("peft", *TORCH),
    "timm": ("timm", *TORCH),
    "Lightning": ("lightning", *TORCH),
    "torch.compile, CUDA graphs": ("compile", *TORCH),
    "DistributedDataParallel, one rank": ("ddp", *TORCH),
    "FSDP, one rank": ("fsdp", *TORCH),
    "PyTorch": ("torch", *TORCH),
    "JAX": ("jax", *JAX),
    "JAX pmap": ("pmap", *JAX),
    "CuPy": ("cupy", "OutOfMemoryError", "Out of memory"),
    "Numba": ("numba", "", "(?i)out.?of.?memory"),
    "Triton": ("triton", *TORCH),
    "cuda-bindings": ("bindings", "RefusedError", "CUDA_ERROR_OUT_OF_MEMORY"),
    "ONNX runtime": ("onnx", "", "(?i)failed to allocate|out of memory"),
}


Running = Mapping[str, tuple[Driven, Driven]]


@dataclass(slots=True)
class Found:
    """What became of one client; `skipped`, `failed`: why."""

    name: str
    skipped: str = ""
    failed: str = ""
    bare: dict[str, Any] = field(default_factory=dict)
    limited: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, Any] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """So far."""
        return not self.skipped and not self.failed

    def wrong(self) -> list[str]:
        """What broke a promise."""
        _, error, message = CLIENTS[self.name]
        said, lines = self.refused, self.bare["lines"]
        found = [] if self.limited["libgpufence"] else ["the library was not there"]
        if self.limited["lines"] != lines or not lines:
            found.append(f"results differ: {lines} / {self.limited['lines']}")
        if "compiled: False" in lines:
            found.append("nothing was compiled")
        if error not in ("", said["error"]) or not re.search(message, said.get("message", "")):
            found.append(f"its error is {said['error']}: {said.get('message', '')}")
        if not LEAST_MIB <= said["granted MiB"] <= LIMIT >> 20:
            found.append(f"{said['granted MiB']} MiB granted")
        if said["lines"] != lines:
            found.append(f"results differ after the refusal: {said['lines']}")
        return found + self.wrong_share()

    def wrong_share(self) -> list[str]:
        """What is wrong with its share of the time."""
        if "share" not in self.bare or "percent" not in self.limited:
            return [f"nobody saw its kernels: {self.limited.get('unseen', 'none ran')}"]
        above = self.limited["percent"] - CORE_LIMIT
        below = min(CORE_LIMIT, self.bare["share"]) - self.limited["percent"]
        found = [f"{above:.1f} points above its share"] if above > OVER_POINTS else []
        return found + ([f"{below:.1f} points too little"] if below > UNDER_POINTS else [])

    def cells(self) -> tuple[str, ...]:
        """Its line of the table: results, share bare and limited, granted, its error."""
        same = "equal" if self.bare["lines"] == self.limited["lines"] else "DIFFERENT"
        nobody = float("nan")
        shares = (self.bare.get("share", nobody), self.limited.get("percent", nobody))
        told = (f"{shares[0]:.1f}", f"{shares[1]:.1f}", str(self.refused["granted MiB"]))
        return (self.name, same, *told, self.refused["error"])


def table(rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as they must be."""
    head = ("client", "results", "bare %", f"at {CORE_LIMIT} %", "MiB of 4096", "its error")
    every = [head, *rows]
    wide = [max(len(row[column]) for row in every) for column in range(len(head))]
    lines = []
    for row in every:
        padded = (text.ljust(size) for text, size in zip(row, wide, strict=True))
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def start(setup: Setup, stack: ExitStack, name: str, *, bare: bool) -> Driven:
    """A client's program, without a limit or in a container with both."""
    command, extra = python("clients.py", **QUIET)
    command = (*command, CLIENTS[name][0])
    if bare:
        env = setup.environment(preload=False, extra=extra)
    else:
        limits = {"GPUFENCE_MEMORY_LIMIT": LIMIT_TEXT, "GPUFENCE_TEST_LIMIT": str(LIMIT)}
        env = stack.enter_context(fenced(setup, CORE_LIMIT, **extra, **limits))
    return stack.enter_context(started(command, env, f"{name} {'bare' if bare else 'limited'}"))


def await_all(every: list[Found], running: Running, setup: Setup) -> None:
    """Until each program is ready, since those that start disturb those that work."""
    deadline = min(setup.deadline, time.monotonic() + START_S)
    for found in every:
        await_both(found, running[found.name], deadline)


def await_both(found: Found, programs: tuple[Driven, Driven], deadline: float) -> None:
    """A client's two programs; what is not there is skipped."""
    try:
        for program in programs:
            program.await_ready(max(0.1, deadline - time.monotonic()))
    except DrivenError as error:
        missing = f"status {SKIPPED}:" in str(error)
        found.skipped, found.failed = (str(error), "") if missing else ("", str(error))


def measure(found: Found, programs: tuple[Driven, Driven], excess_ms: float) -> None:
    """Results and shares of one client, first bare and then limited.

    Without a limit its share is as it was seen: that alone decides whether it needs its limit.
    """
    bare, limited = programs
    try:
        found.bare |= json.loads(bare.tell("results"))
        found.bare |= json.loads(bare.tell("share", BARE_S))
        found.limited |= json.loads(limited.tell("results"))
        limited.tell("rate", SPENT_S)
        found.limited |= ask(limited, SECONDS, excess_ms)
    except DrivenError as error:
        found.failed = str(error)


def refuse(found: Found, program: Driven) -> None:
    """One client at its memory limit."""
    try:
        found.refused = json.loads(program.tell("refused", timeout_s=2 * REFUSED_S))
    except DrivenError as error:
        found.failed = str(error)


def judge(report: Report, found: Found) -> tuple[str, ...]:
    """One verdict; gives back the client's line of the table."""
    if found.skipped or found.failed:
        verdict = "skipped" if found.skipped else "failed"
        text = " ".join((found.skipped or found.failed).split())
        report.judge(PART, found.name, verdict, text[-300:])
        return (found.name, MARKS[verdict], "", "", "", text[-60:])
    wrong = found.wrong()
    text = "; ".join([f"{found.limited.get('percent', -1):.1f} % of the time", *wrong])
    verdict = "different" if wrong else "same"
    said = {"bare": found.bare, "limited": found.limited, "refused": found.refused}
    report.judge(PART, found.name, verdict, text, **said)
    return found.cells()


def run_part(setup: Setup, report: Report) -> None:
    """All of it; some two minutes."""
    if setup.simulated:
        rehearse(setup, report)
        return
    deadline = min(setup.deadline, time.monotonic() + MOST_S)
    until_refused = replace(setup, deadline=deadline - REFUSED_S)
    with ExitStack() as stack:
        running = {
            name: (start(setup, stack, name, bare=True), start(setup, stack, name, bare=False))
            for name in CLIENTS
        }
        excess_ms = record_excess_ms(setup, report, PART)
        every = [Found(name) for name in CLIENTS]
        await_all(every, running, until_refused)
        for found in (one for one in every if one.works):
            if until_refused.left_s(1) > 0:
                measure(found, running[found.name], excess_ms)
            else:
                found.skipped = "the time is over"
        whole = [found for found in every if found.works]
        with ThreadPoolExecutor(len(CLIENTS)) as pool:
            list(pool.map(lambda found: refuse(found, running[found.name][1]), whole))
        text = table([judge(report, found) for found in every])
    (setup.out / "clients.txt").write_text(text, encoding="utf-8")
    report.note(f"{PART}: with {LIMIT_TEXT} and {CORE_LIMIT} % of the time\n{text}")


def rehearse(setup: Setup, report: Report) -> None:
    """Without a GPU: those that compute on the processor do so twice, and must agree."""
    for name, (client, *_) in CLIENTS.items():
        command, extra = python("clients.py", **QUIET, JAX_PLATFORMS="cpu")
        env = setup.environment(preload=False, extra=extra)
        lines = []
        try:
            for _ in range(2):
                with started((*command, client, "cpu"), env, name) as program:
                    program.await_ready(setup.left_s(MOST_S))
                    lines.append(json.loads(program.tell("results"))["lines"])
        except DrivenError as error:
            verdict = "skipped" if f"status {SKIPPED}:" in str(error) else "failed"
            report.judge(PART, name, verdict, " ".join(str(error).split())[-300:])
            continue
        verdict = "same" if lines[0] == lines[1] and lines[0] else "different"
        report.judge(PART, name, verdict, f"on the processor: {lines[0]}")
