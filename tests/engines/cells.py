"""What one program in one container got of the GPU: held, refused, or more than its limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

from . import tree
from .engine import LIMIT_BYTES, SIM, Done, Engine

FLAGS = (
    "", "--read-only", "--ipc=none", "--ipc=host", "--pid=host", "--cap-drop=ALL", "--privileged",
    "--init", "--tmpfs=/run", "--read-only --ipc=none",
)  # fmt: skip
UIDS = (0, 1000)
WAYS = ("run", "exec", "exec, cleared")
HELD, REFUSED, FREE = "held", "refused", "NOT HELD"
_CLEARED = ("/bin/env", "-i", SIM)


@dataclass(frozen=True, slots=True)
class Cell:
    """One way into one kind of container."""

    flag: str
    uid: int
    way: str


def verdict(done: Done) -> str:
    """Of a probe that asked for more than the limit; why there is none where it did not run."""
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
        # Docker's last line only says where its help is.
        lines = said.splitlines()
        return f"no container: {[*lines, *(line for line in lines if 'rror' in line)][-1][-160:]}"
    if facts["init"] != 0:
        return REFUSED if "cuInit fails on purpose" in done.stderr else f"cuInit {facts['init']}"
    return HELD if 0 < facts["granted 0"] <= LIMIT_BYTES and facts["refused 0"] == 2 else FREE


@contextmanager
def idle(engine: Engine, flag: str, name: str = "idle", uid: int = 0) -> Iterator[Done]:
    """A container in which nobody has used the GPU; what its engine said."""
    done = engine.idle(name, flag, uid)
    try:
        yield done
    finally:
        engine.remove(name)


def ask(engine: Engine, flag: str) -> dict[Cell, str]:
    """All cells of one flag. Each exec comes into a container that nobody has used."""
    cells = [Cell(flag, uid, way) for uid, way in product(UIDS, WAYS)]
    return {cell: _ask(engine, cell) for cell in cells}


def _ask(engine: Engine, cell: Cell) -> str:
    if cell.way == "run":
        return verdict(engine.run(cell.flag, cell.uid, tree.PROBE))
    before = _CLEARED if "cleared" in cell.way else ()
    with idle(engine, cell.flag, uid=cell.uid) as started:
        if started.returncode != 0:
            return verdict(started)
        return verdict(engine.exec("idle", cell.uid, *before, tree.PROBE))
