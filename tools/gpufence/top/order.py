"""What `gpufence top` can be ordered by. Apart, because `--help` needs it and nothing else."""

from __future__ import annotations

import enum


class Sort(enum.Enum):
    """What containers and processes are ordered by, the most first."""

    NAME = "name"
    MEMORY = "memory"
    CORES = "cores"
    HELD = "held"
    REFUSED = "refused"
