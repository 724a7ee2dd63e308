"""Run a command and record what it prints as a terminal's picture (SVG; ci/picture makes PNG).

Usage: record_text.py PICTURE.svg COLUMNS LINES COMMAND [ARGUMENT ...]
Needs rich, which comes with the extra [top]; at most LINES lines are shown.
"""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console  # noqa: TID251 - a picture is drawn
from rich.text import Text  # noqa: TID251


def main(picture: Path, columns: int, lines: int, command: list[str]) -> None:
    """Run, and draw the prompt with what was printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = (done.stdout + done.stderr).splitlines()
    shown = printed[:lines] + (["…"] if len(printed) > lines else [])
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    words = [Path(command[0]).name, *command[1:]]
    if words[-2:] == ["--color", "always"]:  # which nobody types on a terminal
        words = words[:-2]
    console.print(Text(f"$ {shlex.join(words)}", style="bold"), no_wrap=True, crop=True)
    for line in shown:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="ellipsis", crop=True)
    picture.write_text(console.export_svg(title=words[0]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
