"""Python packages that are not of the standard library: what is said where one is missing.

A command imports such a package in the function that uses it: `run`, `config`, `set`, `status` and
`doctor` start in containers that have the standard library only. Must not know what a package does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import ToolError


@contextmanager
def needed(package: str, what: str) -> Iterator[None]:
    """Around the imports of one package.

    Args:
        package: as pip knows it.
        what: what cannot be done without it.

    Raises:
        ToolError: exit 1, it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ToolError(
            what=what,
            why=f"the Python package {package} is not installed",
            fix=f"Run `pip install {package}`",
        ) from error
