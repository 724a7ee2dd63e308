"""Watch fenced containers: memory and GPU time of their limits, launches held, refusals.

On a terminal a live screen (press ? there), otherwise one table. Looks at the containers' shared
files only: nothing is started, changed or joined, and no GPU memory is taken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time

from . import gpus, table
from .containers import core_environment
from .errors import ExitCode, ToolError
from .history import History
from .table import Choice, Line, Sort, Tone
from .top_json import as_dict
from .watch import Look, Watcher

USAGE_STATUS = ExitCode.USAGE

_LEAST_S, _MOST_S = 0.1, 3600.0
_ONCE_S = 0.25
_PLAIN_WIDTH = 110
_ANSI = {
    Tone.TITLE: "1",
    Tone.HEADING: "7",
    Tone.QUIET: "2",
    Tone.GOOD: "32",
    Tone.WARN: "33",
    Tone.BAD: "31",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; those that people set for good have a variable, too."""
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument("--json", action="store_true", help="print one object, schema 1, and end")
    parser.add_argument(
        "--interval",
        type=_seconds,
        metavar="SECONDS",
        default=os.environ.get("GPUFENCE_TOP_INTERVAL") or None,
        help="time between two looks, over which shares are measured: 0.1 to 3600; default 1, and "
        "0.25 with --once or --json (GPUFENCE_TOP_INTERVAL)",
    )
    parser.add_argument(
        "--sort",
        choices=[sort.value for sort in Sort],
        default=os.environ.get("GPUFENCE_TOP_SORT") or Sort.MEMORY.value,
        help="the most first; default memory (GPUFENCE_TOP_SORT)",
    )
    parser.add_argument("--filter", default="", metavar="TEXT", help="only what has it in its name")
    parser.add_argument("--all", action="store_true", help="also what has ended")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="where containers keep their regions; default: GPUFENCE_STATE_DIR, GPUFENCE_NODE_DIR, "
        "/run/gpufence, /dev/shm and /tmp",
    )


def run(args: argparse.Namespace) -> int:
    """Show what there is.

    Returns:
        0, or 128 and the signal that ended the live screen.

    Raises:
        ToolError: exit 1, when the live screen is asked for and its package is missing; exit 2 for
            a variable that names no order.
    """
    watcher = Watcher(core_environment(), args.state_dir, args.all, nvml=gpus.Nvml.open())
    choice = Choice(sort=_order(args.sort), filter=args.filter, unicode=_speaks_unicode())
    if args.json:
        look, history = _look_twice(watcher, args.interval)
        print(json.dumps(as_dict(look, history), indent=2))
    elif args.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print(*_look_twice(watcher, args.interval), choice)
    else:
        return _live(watcher, choice, args.interval or 1.0)
    return ExitCode.OK


def _live(watcher: Watcher, choice: Choice, interval_s: float) -> int:
    try:
        from .top_app import TopApp
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("textual", "rich"):
            raise
        raise ToolError(
            what="no live screen",
            why=f"the package {error.name} is not installed",
            fix="Install it with `pip install 'gpufence[top]'`, or use --once or --json",
        ) from None
    app = TopApp(watcher, choice, interval_s)
    app.run(mouse=False)
    return app.return_code or ExitCode.OK


def _look_twice(watcher: Watcher, interval_s: float | None) -> tuple[Look, History]:
    """Shares are differences: two looks, that long apart."""
    history = History()
    history.add(watcher.look())
    time.sleep(interval_s if interval_s is not None else _ONCE_S)
    look = watcher.look()
    history.add(look)
    return look, history


def _print(look: Look, history: History, choice: Choice) -> None:
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_PLAIN_WIDTH, 0)).columns
    colours = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    paint = _painted if colours else _plain
    print(table.summary(look))
    for line in (table.heading(width), *table.body(look, history, choice, width)):
        print(paint(line))


def _plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def _painted(line: Line) -> str:
    return "".join(
        f"\x1b[{_ANSI[tone]}m{text}\x1b[0m" if tone in _ANSI else text for text, tone in line
    )


def _speaks_unicode() -> bool:
    """Whether the terminal's encoding has the bars of a trend."""
    try:
        table.BARS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST_S <= seconds <= _MOST_S:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 0.1 to 3600")
    return seconds


def _order(text: str) -> Sort:
    try:
        return Sort(text)
    except ValueError:
        raise ToolError(
            what=f"GPUFENCE_TOP_SORT={text} refused",
            why=f"it is none of {', '.join(sort.value for sort in Sort)}",
            fix="Write one of them, or unset it",
            status=ExitCode.USAGE,
        ) from None
