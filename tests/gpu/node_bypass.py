"""A process that goes around the library, beside one that does not: who is named, and how soon.

Must not know how the node is made.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from driven import Driven, DrivenError, driven
from node_stage import Box, Stage, StageError, wait_until
from report import Report
from setup import Setup

PART, NAME = "node", "a process without the library is named"
MIB = 1 << 20
HELD_MIB = 256
WITHIN_S = 2.0
PATIENCE_S = 8.0


def name_a_stranger(setup: Setup, report: Report, node: Stage, box: Box) -> None:
    """`gpufence node check --watch` beside both; one verdict."""
    holder = setup.build / "tests" / "charge_addresses"
    said = node.folder / "check.txt"
    try:
        with (
            _watching(node, said) as watch,
            driven(box.command([holder, "linked"]), node.environment(box), "held") as held,
        ):
            _hold(held)
            inside = _everybody(box.pid)
            time.sleep(WITHIN_S)  # until it has looked, and named nobody of ours
            with driven([holder, "linked"], node.environment(), "stranger") as stranger:
                began_s = time.monotonic()
                _hold(stranger)
                line = f"process {stranger.pid} "
                named = lambda: line in said.read_text() or watch.poll() is not None  # noqa: E731
                wait_until(named, "a line about it", PATIENCE_S)
                took_s = time.monotonic() - began_s
                text = said.read_text(encoding="utf-8")
    except (DrivenError, StageError) as error:
        report.judge(PART, NAME, "failed", str(error)[-300:])
        return
    mine = next((each for each in text.splitlines() if line in each), "")
    wrong = wrong_names(mine, text, inside, took_s)
    verdict = "different" if wrong else "same"
    told = f"{took_s:.2f} s after it took memory: {mine}"
    report.judge(PART, NAME, verdict, "; ".join([told, *wrong]), seconds=took_s, said=text[-1000:])


def wrong_names(mine: str, text: str, fenced: set[int], took_s: float) -> list[str]:
    """What is wrong with what was said: the line about the stranger, and all lines."""
    found = [] if "without the library" in mine else [f"nobody was named in {took_s:.1f} s"]
    if took_s > WITHIN_S:
        found.append(f"that is more than {WITHIN_S:g} s")
    named = {int(number) for number in re.findall(r"process (\d+)", text)}
    found += [f"process {pid} has the library and is named" for pid in sorted(named & fenced)]
    return found


# Implementation.


@contextmanager
def _watching(node: Stage, said: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["node", "check", "--watch", f"--agent-dir={node.agent}", f"--state-dir={node.agent}"]
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpufence", *words],
            env={**node.environment(), "PYTHONPATH": str(node.folder / "tools")},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def _hold(program: Driven) -> None:
    code, *_ = program.ask("alloc", "linear", HELD_MIB * MIB)
    if code != 0:
        raise StageError(f"{HELD_MIB} MiB were refused: {code}")


def _everybody(first: int) -> set[int]:
    """Who is in the pid namespace of a process, as the host counts."""
    wanted = Path(f"/proc/{first}/ns/pid").readlink()
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (path / "ns" / "pid").readlink() == wanted:
                found.add(int(path.name))
    return found
