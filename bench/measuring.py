"""What all benches share: their options, the compiler of a build, how they end.

Must not know what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPO = HERE.parent


class BenchError(Exception):
    """Nothing could be measured; the text says why."""


def compiler(build: Path | None) -> list[str]:
    """The C++ compiler of a build folder, else the environment's or the system's."""
    cache = None if build is None else build / "CMakeCache.txt"
    if cache is not None and cache.exists():
        text = cache.read_text(encoding="utf-8")
        found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", text, re.MULTILINE)
        if found is not None and shutil.which(found[1]):
            return [found[1]]
    return os.environ.get("CXX", "c++").split()


def arguments(program: str, purpose: str) -> argparse.ArgumentParser:
    """What every bench takes."""
    parser = argparse.ArgumentParser(prog=f"bench/{program}", description=purpose)
    parser.add_argument("--build", type=Path, default=REPO / "build", help="build folder (build)")
    parser.add_argument("--real", action="store_true", help="measure the machine's own driver")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    return parser


def conclude(
    options: argparse.Namespace,
    measured: Callable[[], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    missed: Callable[[dict[str, Any]], Sequence[str]],
) -> int:
    """Measure, write and print; what was missed counts on a real driver only.

    Returns:
        The exit status: 0 measured, 1 a target missed, 3 nothing measured.
    """
    try:
        figures = measured()
    except BenchError as error:
        print(f"bench: nothing measured: {error}.", file=sys.stderr)
        return 3
    if options.output is not None:
        options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(table(figures))
    complaints = missed(figures) if options.real else []
    for complaint in complaints:
        print(f"MISSED {complaint}")
    return 1 if complaints else 0
