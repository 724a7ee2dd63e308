"""What is seen inside a limit: nvidia-smi, NVML, CUDA and the runtime, with strangers next door.

A container of 4 GiB in which one process holds 1 GiB and another asks; a process outside it holds
2 GiB that nobody inside may see.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from driven import Driven, DrivenError, driven
from memory_families import LIMIT, MIB, container
from report import Report
from setup import REPO, Ran, Setup, run

SHOWN = REPO / "tests" / "gpu" / "workloads" / "memory_shown.py"
QUERY = "--query-compute-apps=pid,used_memory"


def run_views(setup: Setup, report: Report, static: dict[str, Path]) -> None:
    """Judges everything that shows memory."""
    holder = setup.build / "tests" / "charge_addresses"
    bare = setup.environment(preload=False)
    with container(setup) as (env, _):
        try:
            with (
                driven([holder, "linked"], bare, "stranger") as stranger,
                driven([holder, "linked"], env, "holder") as own,
            ):
                stranger.ask("alloc", "linear", 2048 * MIB)
                own.ask("alloc", "linear", 1024 * MIB)
                _judge_client(setup, report, env, own, stranger)
                _judge_smi(setup, report, env, own, stranger)
                _judge_runtime(report, env, static)
        except DrivenError as error:
            report.judge("memory", "views", "failed", str(error))


def complaints_about(shown: dict[str, Any], own_pid: int, stranger_pid: int) -> list[str]:
    """What in one client's view contradicts the limit or itself."""
    found = []
    cuda, nvml = shown["cuda"], shown["nvml"]
    totals = [cuda["total"], cuda["device_total"], nvml["v1"]["total"], nvml["v2"]["total"]]
    for name in ("pynvml", "torch"):
        if shown[name] is not None:
            totals += [size for key, size in shown[name].items() if "total" in key]
    if set(totals) != {LIMIT}:
        found.append(f"totals {sorted(set(totals))}")
    for name in ("v1", "v2"):
        view = nvml[name]
        if view["used"] + view["free"] + view.get("reserved", 0) != view["total"]:
            found.append(f"{name}: used, free and reserved make no total: {view}")
    if cuda["free"] > LIMIT - 1280 * MIB:
        found.append(f"CUDA shows {cuda['free'] / MIB:.0f} MiB free beside 1280 MiB held")
    listed = nvml["processes"]
    if str(stranger_pid) in listed:
        found.append("a stranger is listed")
    if str(own_pid) not in listed or len(listed) != 2:
        found.append(f"not the container's own processes: {listed}")
    return found


def _judge_client(
    setup: Setup, report: Report, env: dict[str, str], own: Driven, stranger: Driven
) -> None:
    done = run([sys.executable, SHOWN], env, setup.left_s(90))
    if done.status != 0:
        report.judge("memory", "views by client", "failed", done.stderr[-400:])
        return
    shown = json.loads(done.stdout.splitlines()[-1])
    complaints = complaints_about(shown, own.pid, stranger.pid)
    report.judge(
        "memory",
        "views by client",
        "different" if complaints else "same",
        "; ".join([done.stdout.strip(), *complaints]),
        shown=shown,
    )


def _judge_smi(
    setup: Setup, report: Report, env: dict[str, str], own: Driven, stranger: Driven
) -> None:
    smi = shutil.which("nvidia-smi")
    if smi is None or setup.simulated:
        report.judge("memory", "nvidia-smi", "skipped", "there is none")
        return
    plain: Ran = run([smi], env, setup.left_s(30))
    apps = run([smi, QUERY, "--format=csv,noheader"], env, setup.left_s(30))
    complaints = []
    if plain.status != 0 or apps.status != 0:
        complaints.append(f"status {plain.status} and {apps.status}: {apps.stderr[-200:]}")
    if f"/ {LIMIT // MIB:>6}MiB" not in plain.stdout:
        complaints.append("the total is not the limit")
    if str(own.pid) not in apps.stdout:
        complaints.append("the container's own process is not listed")
    memory_line = next((line for line in plain.stdout.splitlines() if "MiB /" in line), "")
    # nvidia-smi reads the list from a private table of NVML's, out of reach; in a pid namespace of
    # its own a container's processes are all that the driver lists (memory_namespace.py).
    stranger_text = "lists" if str(stranger.pid) in apps.stdout else "does not list"
    text = "; ".join(
        [
            memory_line.strip(),
            f"{stranger_text} a stranger of the same namespace",
            apps.stdout.strip().replace("\n", " | "),
            *complaints,
        ]
    )
    verdict = "different" if complaints else "same"
    report.judge("memory", "nvidia-smi", verdict, text, output=plain.stdout, apps=apps.stdout)


def _judge_runtime(report: Report, env: dict[str, str], static: dict[str, Path]) -> None:
    for name, path in static.items():
        with driven([path], env, name) as program:
            properties, total, free = program.ask("shown")
        right = properties == total == LIMIT and free <= LIMIT
        report.judge(
            "memory",
            f"{name} properties",
            "same" if right else "different",
            f"totalGlobalMem {properties}, cudaMemGetInfo {free} of {total}",
        )
