"""A container with a pid namespace of its own, where NVML may count processes in another one.

Tells which numbers this driver's NVML gives there, and judges that the limit holds all the same: a
neighbour's figure must not be taken for the container's, nor the container's own be overlooked.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from driven import driven
from memory_families import EARLY_MOST, LIMIT, MIB, OUT_OF_MEMORY, container, outside
from report import Report
from setup import REPO, Setup, run

PIDS = REPO / "tests" / "gpu" / "workloads" / "memory_pids.py"
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")
NEIGHBOUR_BYTES = 2048 * MIB
# Measured by the difference in free memory, a context costs what NVML says or some MiB more.
MEASURED_SLACK = 64 * MIB
SMI_TIMEOUT_S = 60.0


def run_namespace(setup: Setup, report: Report, _static: dict[str, Path]) -> None:
    """One bare program that tells, one limited program that fills, beside a neighbour."""
    bare = setup.environment(preload=False)
    if shutil.which("unshare") is None or run([*UNSHARE, "true"], bare, 10).status != 0:
        report.judge("memory", "pid namespace", "skipped", "none can be made here")
        return
    holder = setup.build / "tests" / "charge_addresses"
    with driven([holder, "linked"], bare, "neighbour") as neighbour, outside(setup) as nvml:
        neighbour.ask("alloc", "linear", NEIGHBOUR_BYTES)
        with driven([*UNSHARE, sys.executable, PIDS], bare, "pids bare") as program:
            told = json.loads(program.line())
        before = nvml.ask("device")[0]
        with (
            container(setup) as (env, _),
            driven([*UNSHARE, sys.executable, PIDS, "fill"], env, "pids limited") as program,
        ):
            limited = json.loads(program.line(SMI_TIMEOUT_S))
            held = nvml.ask("device")[0] - before
    _judge(report, told, limited, held)
    _judge_smi(report, setup, limited)


def _judge(report: Report, told: dict[str, Any], limited: dict[str, Any], held: int) -> None:
    complaints = []
    if limited["code"] != OUT_OF_MEMORY:
        complaints.append(f"refused with {limited['code']}")
    if held > LIMIT:
        complaints.append(f"the driver holds {held / MIB:.1f} MiB")
    if LIMIT - held > EARLY_MOST + MEASURED_SLACK:
        complaints.append(f"refused {(LIMIT - held) / MIB:.0f} MiB early")
    text = (
        f"own pid {told['pid']}, NVML lists {told['listed']} bare and {limited['listed']} inside a "
        f"limit; {limited['granted'] / MIB:.0f} MiB granted, {held / MIB:.1f} MiB held"
    )
    verdict = "different" if complaints else "same"
    detail = {"told": told, "limited": limited, "held": held}
    report.judge("memory", "pid namespace", verdict, "; ".join([text, *complaints]), **detail)


def _judge_smi(report: Report, setup: Setup, limited: dict[str, Any]) -> None:
    if setup.simulated or not limited["smi"]:
        report.judge("memory", "nvidia-smi in a container", "skipped", "there is none")
        return
    table, apps = limited["smi"]
    complaints = []
    if f"/ {LIMIT // MIB:>6}MiB" not in table:
        complaints.append("the total is not the limit")
    listed = [line.split(",")[0] for line in apps.splitlines()]
    if listed != [str(limited["pid"])]:
        complaints.append(f"lists {listed}, not the container's own process")
    memory_line = next((line for line in table.splitlines() if "MiB /" in line), "")
    report.judge(
        "memory",
        "nvidia-smi in a container",
        "different" if complaints else "same",
        "; ".join([memory_line.strip(), apps.strip(), *complaints]),
        output=table,
        apps=apps,
    )
