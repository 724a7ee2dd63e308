"""Show limits at work: two programs on one simulated GPU, with `top` beside them.

    gpufence demo

Needs no GPU, no driver and no checkout. One program may use 6 GiB and 60 % of the GPU's time, the
other 2 GiB and 30 %. Both ask for more memory than that and launch kernels without a pause. The
end of the output says what each was given. All files lie in a temporary folder, which is removed.
"""

from __future__ import annotations

import argparse

from gpufence.console import flags
from gpufence.errors import ExitCode

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "both programs were held to their memory",
    1: "a program failed, or the library or simulated driver is missing",
    2: "wrong usage",
    5: "a program was granted more memory than its limit",
}

_LEAST_S, _MOST_S = 1.0, 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--seconds",
        type=flags.seconds(_LEAST_S, _MOST_S),
        metavar="SECONDS",
        default=10.0,
        help="how long both programs run: 1 to 600; default: 10",
    )
    parser.add_argument("--json", action="store_true", help="one object, schema 1, at the end")


def run(args: argparse.Namespace) -> ExitCode:
    """Show it.

    Raises:
        ToolError: 1, as the module says.
    """
    from gpufence.demo import show  # only now: --help needs none of it

    return show.show(args)
