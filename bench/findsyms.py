"""How long does the whole findsyms process take, beside an nm-and-grep script?

Usage: bench/findsyms.py [--findsyms COMMAND] [--runs N] LIBRARY...

Both get the same libraries and answer "what is new?". The script greps a table of hooked names once
per exported name, as the scripts of other systems do; the table is made of the newest shipped
lists. Runs alternate, so that a busy machine slows both. Prints medians and minima in seconds, or
JSON with --json. Exit status 1 if findsyms is less than 2.5 times as fast.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPT = REPOSITORY / "bench" / "find_new_lib.sh"
TARGET_RATIO = 2.5
# A hook table of another system holds a macro call per name, not the bare name.
ENTRY = "  CUDA_HOOK_ENTRY({name}),\n"


def seconds(command: list[str]) -> float:
    """Wall time of one run of a command, start of the process included."""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    elapsed = time.perf_counter() - start
    # The finding bits of findsyms (4, 8, 16) are answers; 1 and 2 are failures.
    if done.returncode < 0 or done.returncode & 3:
        sys.exit(f"findsyms bench: '{shlex.join(command)}' failed: {done.stderr.decode().strip()}")
    return elapsed


def write_table(path: Path) -> None:
    """Write the hook table that the script greps."""
    symbols = REPOSITORY / "lib" / "api" / "symbols"
    names: set[str] = set()
    for library in ("libcuda", "libnvidia-ml"):
        names |= set((symbols / f"{library}-580.159.04.txt").read_text(encoding="ascii").split())
    path.write_text("".join(ENTRY.format(name=n) for n in sorted(names)), encoding="ascii")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="findsyms against an nm-and-grep script")
    parser.add_argument("libraries", nargs="+", metavar="LIBRARY")
    parser.add_argument("--findsyms", default=str(REPOSITORY / ".venv" / "bin" / "findsyms"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tool = [*shlex.split(options.findsyms), *options.libraries]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "hooks.c"
        write_table(table)
        script = ["sh", str(SCRIPT), str(table), *options.libraries]
        pairs = [(seconds(tool), seconds(script)) for _ in range(options.runs)]
    ours, theirs = (sorted(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(theirs) / statistics.median(ours)
    figures = {
        "schema": 1,
        "findsyms_s": {"median": statistics.median(ours), "min": ours[0]},
        "nm_grep_s": {"median": statistics.median(theirs), "min": theirs[0]},
        "ratio": ratio,
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"findsyms     median {statistics.median(ours):.3f} s, min {ours[0]:.3f} s")
        print(f"nm and grep  median {statistics.median(theirs):.3f} s, min {theirs[0]:.3f} s")
        print(f"ratio        {ratio:.2f} (target {TARGET_RATIO})")
    return 0 if ratio >= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
