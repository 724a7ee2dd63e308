"""The agent of a Kubernetes node: gives out parts of GPUs, and names programs without limits.

    gpufence node serve --config /etc/gpufence/node.toml
    gpufence node check
    gpufence node check --watch --events

`serve` is a device plugin: containers ask for GPUs, memory and a share of time by resource names of
gpufence, HAMi, vgpu-manager, Volcano or Alnair, and get their limits, the library and a folder of
their own. It needs the extra gpufence[node]. `check` names processes that use a GPU without the
library, or more of it than their limit; with --watch it goes on and tells of each as it begins.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpufence.errors import ExitCode, ToolError

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "done, and no process goes around its limit",
    1: "a file or socket cannot be used, or grpcio is missing",
    2: "wrong usage or configuration",
    3: "no driver, or no GPU",
    4: "an amount cannot be read",
    5: "a process goes around its limit",
}
VERB_STATUSES = {
    "serve": {
        0: "ended by SIGTERM or SIGINT",
        1: "a file or socket cannot be used, or grpcio is missing",
        2: "wrong usage or configuration",
        3: "no driver, or no GPU",
        4: "an amount in the configuration cannot be read",
    },
    "check": {
        0: "no process goes around its limit",
        1: "a file or address cannot be used",
        2: "wrong usage",
        3: "no driver, or no GPU",
        4: "--tolerance cannot be read",
        5: "a process goes around its limit",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="serve|check")
    serve = verbs.add_parser("serve", help="be the node's device plugin until SIGTERM")
    serve.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="TOML or JSON; default: the resources gpufence.io/gpu, …/memory-mib and …/cores",
    )
    serve.add_argument("--lib", metavar="FILE", help="libgpufence.so to mount into containers")
    _add_check(verbs.add_parser("check", help="name processes that go around their limit"))


def _add_check(check: argparse.ArgumentParser) -> None:
    form = check.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one object, schema 1")
    form.add_argument("--metrics", action="store_true", help="metrics for Prometheus instead")
    form.add_argument(
        "--listen",
        metavar="[ADDRESS]:PORT",
        help="serve http://ADDRESS:PORT/metrics, looked at anew each time, until it is ended",
    )
    check.add_argument(
        "--watch",
        action="store_true",
        help="look every second until it is ended, and say on stderr who begins",
    )
    check.add_argument(
        "--events", action="store_true", help="with --watch: also as an Event of the pod"
    )
    check.add_argument(
        "--ask-eviction",
        action="store_true",
        help="with --events: also annotate the pod with gpufence.io/evict=REASON",
    )
    check.add_argument(
        "--api-server",
        metavar="URL",
        default="",
        help="for --events; default: the cluster's, in a pod",
    )
    check.add_argument(
        "--textfile", metavar="FILE", help="also replace this file of metrics, for node_exporter"
    )
    check.add_argument(
        "--tolerance",
        metavar="SIZE",
        default="64MiB",
        help="by how much NVML may show more than was granted; default: %(default)s",
    )
    check.add_argument(
        "--allow",
        metavar="COMMAND",
        action="append",
        help="a command that may use GPUs as it likes, as in /proc/PID/comm; may be repeated",
    )
    check.add_argument(
        "--state-dir",
        metavar="DIR",
        action="append",
        help="where containers keep their ledgers, beside the agent's own; may be repeated",
    )
    check.add_argument(
        "--agent-dir",
        "--folder",
        metavar="DIR",
        default="/var/lib/gpufence/node",
        help="the agent's folder; default: %(default)s",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Do what the verb says.

    Raises:
        ToolError: as the module says.
    """
    if args.verb == "check":
        from gpufence.node import check

        return check.run(args)
    return _serve(args)


def _serve(args: argparse.Namespace) -> ExitCode:
    from gpufence import locate
    from gpufence.node import config

    chosen = config.read(args.config) if args.config else config.of_table({})
    try:
        from gpufence.node import agent
    except ImportError as error:
        raise ToolError(
            what="the agent cannot run",
            why=f"this Python has no {error.name or 'grpcio'}",
            fix="Install the extra: pip install grpcio protobuf",
        ) from None
    try:
        library = locate.library(args.lib)
    except ToolError as error:
        raise ToolError(what=error.what, why=error.why, fix=error.fix) from None
    agent.run(chosen, str(library), str(locate.preload_file(library, with_addpath=False)))
    return ExitCode.OK
