"""What `gpufence top` does: one table, one object, or the live screen.

Chooses between them; must not know what is in a table (table.py) or on the screen (app.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from gpufence.console import streams
from gpufence.container.containers import core_environment
from gpufence.errors import ExitCode, ToolError
from gpufence.machine import gpus

from . import plain, table
from .as_json import as_dict
from .history import History
from .order import Sort
from .table import Choice
from .watch import Look, Watcher

_ONCE_S = 0.25


def show(args: argparse.Namespace) -> int:
    """As top.run says."""
    watcher = Watcher(
        core_environment(),
        args.state_dir,
        args.all,
        nvml=gpus.Nvml.open(),
        node=args.node_dir,
    )
    choice = Choice(sort=_order(args.sort), filter=args.filter, unicode=plain.speaks_unicode())
    if args.json:
        look, history = _look_twice(watcher, args.interval)
        print(json.dumps(as_dict(look, history), indent=2))
    elif args.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print(*_look_twice(watcher, args.interval), choice, args.color)
    else:
        return _live(watcher, choice, args.interval or 1.0, args.color)
    return ExitCode.OK


def _live(watcher: Watcher, choice: Choice, interval_s: float, color: str) -> int:
    if color != "auto":  # textual reads the variable as it is loaded
        os.environ["NO_COLOR"] = "" if color == "always" else "1"
    try:
        from .app import TopApp
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("textual", "rich"):
            raise
        _print(*_look_twice(watcher, None), choice, color)
        streams.say(
            f"gpufence: no live screen: the package {error.name} is not installed."
            " Install it with `pip install textual`."
        )
        return ExitCode.OK
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


def _print(look: Look, history: History, choice: Choice, color: str) -> None:
    print(table.summary(look))
    for line in plain.lines(look, history, choice, color):
        print(line)


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
