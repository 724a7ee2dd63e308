"""What `gpufence export` does: metrics to stdout, into a file, or to whoever asks over HTTP.

Owns where they go; must not know a metric (metrics.py) or HTTP (http_metrics.py).
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.console import output_file
from gpufence.container import containers, leftovers
from gpufence.errors import ExitCode, ToolError
from gpufence.machine import gpus
from gpufence.top.history import History
from gpufence.top.watch import Watcher

from . import metrics

# Shares are differences of two looks: of the last two scrapes, or of two so far apart.
_FIRST_S = 0.25
# How often it tidies up behind containers that ended: where it serves, nobody may run `status`.
_SWEEP_S = 60.0


def write(args: argparse.Namespace) -> None:
    """As export.run says."""
    metrics.require()
    collector = Collector(_watcher(args), _wanted(args.names))
    listen = args.listen or ("" if args.once or args.textfile else _variable("LISTEN"))
    textfile = args.textfile or ("" if args.once or listen else _variable("TEXTFILE"))
    if listen:
        from . import http_metrics

        http_metrics.serve(listen, collector.collect)
    elif textfile:
        replace(Path(textfile), collector.collect())
    else:
        sys.stdout.write(collector.collect())


@dataclass(slots=True)
class Collector:
    """Metrics as text, whenever asked; one look at a time."""

    watcher: Watcher
    names: tuple[str, ...]
    _history: History = field(default_factory=History)
    _looked: bool = False
    _swept: float | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def collect(self) -> str:
        """Look now. The first call looks twice, so that there are shares."""
        with self._turn:
            self._sweep()
            if not self._looked:
                self._history.add(self.watcher.look())
                time.sleep(_FIRST_S)
                self._looked = True
            look = self.watcher.look()
            self._history.add(look)
            families = (metrics.NAMES[name](look, self._history) for name in self.names)
            return "".join(metrics.text(each) for each in families)

    def _sweep(self) -> None:
        now = time.monotonic()
        if self._swept is None or now - self._swept >= _SWEEP_S:
            self._swept = now
            leftovers.sweep(containers.places(self.watcher.folder))


def _watcher(args: argparse.Namespace) -> Watcher:
    return Watcher(
        containers.core_environment(),
        args.state_dir,
        args.all,
        nvml=gpus.Nvml.open(),
        node=args.node_dir,
        agent=args.agent_dir,
    )


def _variable(name: str) -> str:
    return os.environ.get(f"GPUFENCE_EXPORT_{name}", "")


def _wanted(given: list[str] | None) -> tuple[str, ...]:
    """The names asked for, each once; from the variable where no option gives any."""
    chosen = given or [name for name in _variable("NAMES").split(",") if name] or ["gpufence"]
    for name in chosen:
        if name not in metrics.NAMES:
            raise ToolError(
                what=f"GPUFENCE_EXPORT_NAMES={name} refused",
                why=f"it is none of {', '.join(metrics.NAMES)}",
                fix="Write some of them, separated by commas",
                status=ExitCode.USAGE,
            )
    return tuple(dict.fromkeys(chosen))


def replace(path: Path, content: str) -> None:
    """Write a file of metrics.

    Raises:
        ToolError: exit 1, it cannot be written.
    """
    try:
        output_file.write(path, content)
    except OSError as error:
        raise ToolError(
            what=f"cannot write {path}",
            why=(error.strerror or "unwritable").lower(),
            fix="Name a file in a folder that this user can write to",
        ) from None
