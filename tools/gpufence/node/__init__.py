"""The agent of a Kubernetes node: gives out parts of GPUs, and finds who goes around the library.

    gpufence node serve --config /etc/gpufence/node.toml

`serve` is a device plugin: containers ask for GPUs, memory and a share of time by resource names of
gpufence, HAMi, vgpu-manager, Volcano or Alnair, and get their limits, the library and a folder of
their own. It needs the extra gpufence[node]. Exit status: 0, 1 something cannot be read, written or
served, 2 wrong usage or configuration, 3 no driver or no GPU, 4 an amount that is none.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpufence.errors import ExitCode, ToolError

USAGE_STATUS = ExitCode.USAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="serve")
    serve = verbs.add_parser("serve", help="be the node's device plugin until SIGTERM")
    serve.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="TOML or JSON; default: the resources gpufence.io/gpu, …/memory-mib and …/cores",
    )
    serve.add_argument("--lib", metavar="PATH", help="libgpufence.so to mount into containers")


def run(args: argparse.Namespace) -> ExitCode:
    """Do what the verb says.

    Raises:
        ToolError: as the module says.
    """
    return _serve(args)


def _serve(args: argparse.Namespace) -> ExitCode:
    from gpufence import locate

    from . import config

    chosen = config.read(args.config) if args.config else config.of_table({})
    try:
        from . import agent
    except ImportError as error:
        raise ToolError(
            what="the agent cannot run",
            why=f"this Python has no {error.name or 'grpcio'}",
            fix="Install it: pip install 'gpufence[node]'",
        ) from None
    try:
        library = locate.library(args.lib)
    except ToolError as error:
        raise ToolError(what=error.what, why=error.why, fix=error.fix) from None
    agent.run(chosen, str(library), str(locate.preload_file(library, with_addpath=False)))
    return ExitCode.OK
