"""Metrics of fenced containers for Prometheus: printed, kept in a file, or served.

Reads the containers' shared files only, as `gpufence top` does. The server answers GET /metrics and
nothing else. Without an option the variables GPUFENCE_EXPORT_LISTEN and GPUFENCE_EXPORT_TEXTFILE
decide; without those it prints once.
"""

from __future__ import annotations

import argparse

from gpufence.errors import ExitCode

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "printed or written",
    1: "no file can be written, no address can be had, or a package is missing",
    2: "wrong usage",
}

# Those that metrics.py has.
NAMES = ("gpufence", "hami", "hami-legacy", "alnair")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--once", action="store_true", help="print to stdout; the default")
    where.add_argument(
        "--textfile",
        metavar="FILE",
        help="replace this file at once and whole, for node_exporter [GPUFENCE_EXPORT_TEXTFILE]",
    )
    where.add_argument(
        "--listen",
        metavar="[ADDRESS]:PORT",
        help="serve http://ADDRESS:PORT/metrics [GPUFENCE_EXPORT_LISTEN]",
    )
    parser.add_argument(
        "--names",
        action="append",
        choices=NAMES,
        help="whose metrics; may be repeated; default gpufence "
        "[GPUFENCE_EXPORT_NAMES, separated by commas]",
    )
    parser.add_argument("--all", action="store_true", help="also containers that have ended")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="where containers keep their regions; default: as for `gpufence top`",
    )
    parser.add_argument(
        "--node-dir",
        metavar="DIR",
        help="where containers take turns; default: GPUFENCE_NODE_DIR, unless --state-dir is given",
    )
    parser.add_argument(
        "--agent-dir",
        metavar="DIR",
        help="also the containers of `gpufence node serve`: its folder, /var/lib/gpufence/node",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Print, write or serve.

    Raises:
        ToolError: exit 1, when the file cannot be written or the address cannot be had; exit 2 for
            an address or names that are none.
    """
    from gpufence.export import export_write  # only now: --help needs none of it

    export_write.write(args)
    return ExitCode.OK
