"""What is read: a machine's or a container's environment and files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import library
from .library import ConfigError

__all__ = ["ConfigError", "Sources", "System"]


@dataclass(frozen=True, slots=True)
class System:
    """What is read: a root folder ("" is the machine's own) and an environment.

    The environment is "NAME=TEXT" as Latin-1 text, in order, doubles included.
    """

    root: str = ""
    environment: tuple[str, ...] = ()

    @staticmethod
    def own() -> System:
        """This process's."""
        return System("", tuple((k + b"=" + v).decode("latin-1") for k, v in os.environb.items()))

    def claims(self, devices: str = "") -> Any:  # noqa: ANN401 - JSON
        """As library.claims()."""
        return library.claims(self.root, self._entries(), devices)

    def _entries(self) -> Iterable[bytes]:
        return (entry.encode("latin-1") for entry in self.environment)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where limits stand, whether or not they can be read.

    `state_folder` is as it was written, "" where it was not; `ignored` are names without effect.
    """

    config_path: str
    state_folder: str
    ignored: tuple[str, ...]

    @staticmethod
    def of(system: System) -> Sources:
        """Look.

        Raises:
            ConfigError: when a source is there but cannot be read, or a name is nonsense.
        """
        found = library.sources(system.root, system._entries())
        return Sources(found["config_path"], found["state_folder"], tuple(found["ignored"]))
