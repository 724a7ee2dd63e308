"""Watch fenced containers: memory and GPU time of their limits, launches held, refusals.

On a terminal a live screen (press ? there), otherwise one table. Reads the containers' shared
files only: nothing is started or changed, and no GPU memory is taken.
"""

from __future__ import annotations

import argparse
import os

from gpufence.console import flags, screen
from gpufence.errors import ExitCode
from gpufence.top.order import Sort

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "shown, also when there is nothing to show",
    2: "wrong usage",
}

_LEAST_S, _MOST_S = 0.1, 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; those that people set for good have a variable, too."""
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument("--json", action="store_true", help="print one object, schema 1, and end")
    parser.add_argument(
        "--interval",
        type=flags.seconds(_LEAST_S, _MOST_S),
        metavar="SECONDS",
        default=os.environ.get("GPUFENCE_TOP_INTERVAL") or None,
        help="time between two looks, over which shares are measured: 0.1 to 3600; default 1, and "
        "0.25 with --once or --json [GPUFENCE_TOP_INTERVAL]",
    )
    parser.add_argument(
        "--sort",
        choices=[sort.value for sort in Sort],
        default=os.environ.get("GPUFENCE_TOP_SORT") or Sort.MEMORY.value,
        help="the most first; default memory [GPUFENCE_TOP_SORT]",
    )
    screen.add_color(parser)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only what has it in its name")
    parser.add_argument("--all", action="store_true", help="also what has ended")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="where containers keep their regions; default: GPUFENCE_STATE_DIR, GPUFENCE_NODE_DIR, "
        "/run/gpufence, /dev/shm and /tmp",
    )
    parser.add_argument(
        "--node-dir",
        metavar="DIR",
        help="where containers take turns; default: GPUFENCE_NODE_DIR, unless --state-dir is given",
    )


def run(args: argparse.Namespace) -> int:
    """Show what there is.

    Returns:
        0, or 128 and the signal that ended the live screen.

    Raises:
        ToolError: exit 2 for a variable that names no order.
    """
    from gpufence.top import show as top_show  # only now: --help needs none of it

    return top_show.show(args)
