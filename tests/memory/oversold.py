"""What the tests of oversold memory share: a program driven line by line, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.charges import GIB, OUT_OF_MEMORY, Allocator
from tests.support.machine import Sim

LIMIT = GIB
SHARE = GIB // 2


@contextmanager
def commands(
    sim: Sim, folder: Path, setting: str = "2", limit: str = "1g", faults: str = ""
) -> Iterator[Allocator]:
    """Run oversold_commands in a container whose state lies in `folder`."""
    folder.mkdir(exist_ok=True)
    env = {
        "GPUFENCE_STATE_DIR": str(folder),
        "GPUFENCE_MEMORY_LIMIT": limit,
        "GPUFENCE_OVERSUBSCRIBE": setting,
    }
    if faults:
        env["GPUFENCE_SIM_FAULTS"] = faults
    with sim.driven("oversold_commands", env=env) as (to, answers):
        yield Allocator(to, answers, folder)


def fill(fence: Allocator, family: str, piece: int) -> list[int]:
    """Take pieces until there is no more: what they are."""
    taken = []
    while True:
        code, handle = fence.ask("take", family, piece)
        if code != 0:
            assert (code, handle) == (OUT_OF_MEMORY, 0)
            return taken
        taken.append(handle)


def on_device(sim: Sim) -> int:
    """Bytes of the simulated device that are in use, by anybody."""
    return int(sim.run("handles_commands", "look").stdout)
