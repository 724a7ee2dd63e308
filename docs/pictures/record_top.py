"""Run jobs under different limits and record `gpufence top` over them: screen, table and object.

Usage: record_top.py LIBRARY OUTPUT_FOLDER SECONDS
Writes top.svg (textual's own picture of the screen), top.txt, top.json and cost.json (how long a
look and a drawn screen take). The jobs are docs/pictures/torch_job.py, in two containers that share
a state and a node folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpufence.machine.gpus import Nvml
from gpufence.top.app import TopApp
from gpufence.top.table import Choice
from gpufence.top.watch import Watcher

HERE = Path(__file__).resolve().parent
SIZE = (118, 16)

# Container, memory, cores, and what torch_job.py gets behind SECONDS.
JOBS = (
    ("trainer", "12GiB", "60", ("8192", "4")),
    ("notebook", "6GiB", "20", ("2048", "6")),
)


def main(library: str, output: Path, seconds: float) -> None:
    """Record everything."""
    with tempfile.TemporaryDirectory() as name:
        folders = {"GPUFENCE_STATE_DIR": f"{name}/state", "GPUFENCE_NODE_DIR": f"{name}/node"}
        for folder in folders.values():
            Path(folder).mkdir(mode=0o1777)
        environment = {**os.environ, **folders}
        jobs = [start(library, job, seconds, environment) for job in JOBS]
        try:
            for job in jobs:
                assert job.stdout is not None
                print("job:", job.stdout.readline().strip(), flush=True)
            asyncio.run(screen(folders, output / "top.svg", seconds / 2))
            for option, file in (("--once", "top.txt"), ("--json", "top.json")):
                told = gpufence("top", option, "--interval", "1", environment=environment)
                (output / file).write_text(told, encoding="utf-8")
            (output / "cost.json").write_text(json.dumps(cost(folders)) + "\n", encoding="utf-8")
        finally:
            for job in jobs:
                print(job.communicate(timeout=seconds + 60)[0], flush=True)


def start(
    library: str, job: tuple[str, str, str, tuple[str, ...]], seconds: float, env: dict[str, str]
) -> subprocess.Popen[str]:
    """One job in its container."""
    container, memory, cores, rest = job
    limits = ["--memory", memory, "--cores", cores, "--container", container, "--lib", library]
    program = [sys.executable, str(HERE / "torch_job.py"), str(seconds), *rest]
    command = [sys.executable, "-m", "gpufence", "run", *limits, "--", *program]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def gpufence(*arguments: str, environment: dict[str, str]) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "gpufence", *arguments]
    environment = {**environment, "COLUMNS": str(SIZE[0])}
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


async def screen(folders: dict[str, str], picture: Path, seconds: float) -> None:
    """The live screen, without a terminal, after some time."""
    app = TopApp(Watcher(folders, nvml=Nvml.open()), Choice(), 0.5)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(seconds)
        picture.write_text(app.export_screenshot(title="gpufence top"), encoding="utf-8")


def cost(folders: dict[str, str]) -> dict[str, float]:
    """Milliseconds of a look, the median of many."""
    watcher = Watcher(folders, nvml=Nvml.open())
    times = []
    for _ in range(41):
        began = time.perf_counter()
        watcher.look()
        times.append((time.perf_counter() - began) * 1e3)
    return {"look_ms": round(sorted(times)[len(times) // 2], 2)}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
