"""Oversold memory on the GPU: 4 GiB seen, 2 GiB of them the device's.

Every family is filled to its refusal and checked word by word, alone and in two processes at once;
training runs with working sets around the share, against no limit and against unified memory for
everything. NVML is read all the while, from outside.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from driven import Driven, driven
from part_frameworks import SKIPPED, python
from report import Report
from setup import REPO, Setup, run

WORKLOADS = REPO / "tests" / "gpu" / "workloads"
MIB = 1 << 20
LIMIT_MIB = 4096
SHARE_MIB = 2048
PIECE_MIB = 32
FAMILIES = ("linear", "pitch", "managed", "async", "pool", "mapped")
# What the device holds besides: 8 MiB that no process is listed with while any context lives, and
# page tables of what is mapped.
BESIDES_MIB = 16
# Code and local memory beside a context, and a piece that does not fit any more.
EARLY_MIB = 640
FACTORS = (0.8, 1.0, 1.25, 1.5, 2.0)
# Context, code and workspaces, which are part of the working set.
RUNTIME_MIB = 700
WITHIN_SHARE = 0.97
ANSWER_S = 90.0


@contextmanager
def container(setup: Setup) -> Iterator[dict[str, str]]:
    """The environment of a container of its own."""
    with tempfile.TemporaryDirectory(prefix="gpufence-") as state:
        extra = {
            "GPUFENCE_MEMORY_LIMIT": f"{LIMIT_MIB}m",
            "GPUFENCE_OVERSUBSCRIBE": f"{LIMIT_MIB / SHARE_MIB:g}",
            "GPUFENCE_STATE_DIR": state,
        }
        yield setup.environment(preload=True, extra=extra)


def used_mib(watch: Driven) -> int:
    """The highest reading of the device's used memory; ends the watch."""
    assert watch.process.stdin is not None
    watch.process.stdin.close()
    return int(watch.line().split()[0]) // MIB


def watching(setup: Setup) -> list[object]:
    """The command that reads NVML as fast as it answers."""
    return [setup.build / "tests" / "charge_watch"]


def compile_with_nvcc(setup: Setup, source: str, folder: Path) -> Path | str:
    """The program, or why there is none."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or setup.simulated:
        return "no nvcc, or a simulated driver"
    target = folder / Path(source).stem
    command = [nvcc, "-O2", "-std=c++17", "-o", target, WORKLOADS / source, "-lcuda"]
    done = run([str(word) for word in command], setup.environment(preload=False), 120)
    return target if done.status == 0 else f"nvcc: {done.stderr[-300:]}"


def complaints(obtained: int, highest: int, contexts: int, wrong: int, freed: int) -> list[str]:
    """What is not as the share and the limit promise."""
    found = []
    if obtained > LIMIT_MIB:
        found.append(f"{obtained} of {LIMIT_MIB} MiB obtained")
    if obtained < LIMIT_MIB - contexts * EARLY_MIB:
        found.append(f"only {obtained} MiB obtained")
    if highest > SHARE_MIB + BESIDES_MIB:
        found.append(f"{highest} of {SHARE_MIB} MiB on the device")
    if wrong:
        found.append(f"{wrong} words wrong")
    if freed:
        found.append(f"a free answered {freed}")
    return found


def judge_family(setup: Setup, report: Report, program: Path, family: str, processes: int) -> None:
    """Fills a family in so many processes at once, checks it and frees it."""
    name = family if processes == 1 else f"{family} in {processes} processes"
    with container(setup) as env, ExitStack() as running:
        watch = running.enter_context(
            driven(watching(setup), setup.environment(preload=False), "charge_watch")
        )
        workers = [
            running.enter_context(driven([program], env, f"oversold_fill {number}"))
            for number in range(processes)
        ]
        for worker in workers:
            worker.say("fill", family, PIECE_MIB)
        filled = [list(map(int, worker.line(ANSWER_S).split())) for worker in workers]
        for worker in workers:
            worker.say("check")
        checked = [list(map(int, worker.line(ANSWER_S).split())) for worker in workers]
        freed = [worker.ask("give", timeout_s=ANSWER_S)[0] for worker in workers]
        free, total = workers[0].ask("view")
        highest = used_mib(watch)
    obtained = sum(mib for _, mib in filled)
    wrong, read = (sum(column) for column in zip(*checked, strict=True))
    found = complaints(obtained, highest, processes, wrong, max(freed))
    found += [f"refused with {code}" for code, _ in filled if code != 2]
    if total != LIMIT_MIB or free < LIMIT_MIB - processes * EARLY_MIB:
        found.append(f"{free} of {total} MiB free afterwards")
    text = f"{obtained} MiB obtained, {highest} on the device, {wrong} of {read} words wrong"
    verdict = "different" if found else "same"
    report.judge("oversold", name, verdict, "; ".join([text, *found]), highest_mib=highest)


def run_part(setup: Setup, report: Report) -> None:
    """Every family alone, some of them in two processes."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_with_nvcc(setup, "oversold_fill.cu", Path(folder))
        if isinstance(program, str):
            report.judge("oversold", "all", "skipped", program)
            return
        for family in FAMILIES:
            judge_family(setup, report, program, family, 1)
        for family in ("linear", "async"):
            judge_family(setup, report, program, family, 2)


def build_allocator(setup: Setup, folder: Path, name: str, *flags: str) -> Path | str:
    """The pluggable allocator, or why there is none."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return "no nvcc"
    target = folder / f"{name}.so"
    source = WORKLOADS / "oversold_managed.c"
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", *flags, "-o", target, source, "-lcuda"]
    done = run(command, setup.environment(preload=False), 60)
    return target if done.status == 0 else f"nvcc: {done.stderr[-300:]}"


def train(
    setup: Setup, env: dict[str, str], sizes: list[int]
) -> dict[int, dict[str, object]] | str:
    """Milliseconds a step for each size, or what went wrong."""
    command, extra = python("oversold_torch.py")
    done = run((*command, *map(str, sizes)), env | extra, setup.left_s(150))
    if done.status == SKIPPED:
        return "skipped: " + done.stdout.strip()[-200:]
    if done.status != 0:
        return f"status {done.status}: {(done.stdout + done.stderr)[-400:]}"
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {int(row["mib"]): row for row in rows}


def run_training(setup: Setup, report: Report) -> None:
    """Bare, oversold, and with unified memory for everything."""
    part = "oversold_training"
    if setup.simulated:
        report.judge(part, "all", "skipped", "needs a GPU")
        return
    sizes = [int(factor * SHARE_MIB) - RUNTIME_MIB for factor in FACTORS]
    bare_env = setup.environment(preload=False)
    rows: dict[str, dict[int, dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as name, container(setup) as oversold:
        modes = {"bare": bare_env, "oversold": oversold}
        for mode, flags in (("unified", ()), ("unified on the host", ("-DHOSTED",))):
            allocator = build_allocator(setup, Path(name), mode.replace(" ", "_"), *flags)
            if isinstance(allocator, str):
                report.judge(part, mode, "skipped", allocator)
            else:
                modes[mode] = bare_env | {"GPUFENCE_TEST_ALLOCATOR": str(allocator)}
        for mode, env in modes.items():
            done = train(setup, env, sizes)
            if isinstance(done, str):
                verdict = "skipped" if done.startswith("skipped") else "failed"
                report.judge(part, mode, verdict, done)
                if mode in ("bare", "oversold"):
                    return
            else:
                rows[mode] = done
    for factor, size in zip(FACTORS, sizes, strict=True):
        judge_training(
            report, factor, {mode: row[size] for mode, row in rows.items() if size in row}
        )


def judge_training(report: Report, factor: float, of_modes: dict[str, dict[str, object]]) -> None:
    """One working set: the same losses, and bare speed within the share."""
    steps = {mode: float(str(row["step_ms"])) for mode, row in of_modes.items()}
    found = []
    if len({row["loss"] for row in of_modes.values()}) != 1:
        found.append("losses differ")
    if factor < 1 and steps["bare"] < WITHIN_SHARE * steps["oversold"]:
        found.append("slower than bare within the share")
    text = ", ".join(f"{mode} {step:.2f} ms" for mode, step in steps.items())
    verdict = "different" if found else "same"
    report.judge("oversold_training", f"{factor:g} shares", verdict, "; ".join([text, *found]))
