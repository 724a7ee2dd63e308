"""Let a frozen container's launches go on; see `gpufence freeze`.

    gpufence resume train

Held launches begin within a tenth of a second, in the order of their streams. A container that is
not frozen stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpufence.errors import ExitCode

from . import freeze

if TYPE_CHECKING:
    import argparse

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "not frozen any more, or never",
    1: "no such container, not permitted, or its file cannot be used",
    2: "wrong usage",
}

add_arguments = freeze.add_arguments


def run(args: argparse.Namespace) -> ExitCode:
    """End it.

    Raises:
        ToolError: 1, as the module says.
    """
    return freeze.make(args, frozen=False)
