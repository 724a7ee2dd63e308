"""Processes of one container, killed and stopped anywhere: no hang, no byte lost or gained.

The real library over the simulated driver. GPUFENCE_KILL_ROUNDS sets the number of rounds (1000 for
a release; a few by default, because each takes a good part of a second).
"""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from .charges import MIB
from .conftest import Sim

PROCESSES = 32
LIMIT = 512 * MIB
# Small allocations with holes between them may keep one chunk more than their sum needs; the ledger
# learns of it as overhead when it next asks the driver.
CHUNK = 2 * MIB
ROUNDS = int(os.environ.get("GPUFENCE_KILL_ROUNDS", "15"))
PATIENCE_S = 60.0

# lib/src/state/layout.h, first row.
_RECORDS_AT = 64 + 128 * 64
_OVERHEAD_AT = _RECORDS_AT + 64 * 4096 + 8 * 64 * 4096
_CELLS_AT = _OVERHEAD_AT + 8 * 64 * 4096


@dataclass(frozen=True, slots=True)
class Cell:
    """Bytes of one process; overhead is the part that no allocation explains."""

    held: int
    overhead: int


class Herd:
    """The running workers."""

    def __init__(self, sim: Sim, state: Path, dice: random.Random) -> None:
        """Start all of them, standing still."""
        self.sim = sim
        self.state = state
        self.dice = dice
        self.workers: list[Popen[str]] = []
        # Started since the last roll call. Nobody waits for them while others are stopped, who may
        # hold the memory that a context needs, or a lock of the simulated driver.
        self.newcomers: set[int] = set()
        for _ in range(PROCESSES):
            self.workers.append(self.start())
        for worker in self.workers:
            self.await_ready(worker)

    def start(self) -> Popen[str]:
        """A new process of the container."""
        env = {"GPUFENCE_STATE_DIR": str(self.state), "GPUFENCE_MEMORY_LIMIT": str(LIMIT)}
        return self.sim.spawn("kill_worker", self.dice.getrandbits(32), preload=True, env=env)

    def hear(self, worker: Popen[str]) -> list[str]:
        """A worker's next line; silence fails the test."""
        assert worker.stdout
        heard, _, _ = select.select([worker.stdout], [], [], PATIENCE_S)
        assert heard, f"process {worker.pid} hangs"
        line = worker.stdout.readline()
        assert line, f"process {worker.pid} ended: {worker.stderr and worker.stderr.read()}"
        return line.split()

    def say(self, worker: Popen[str], word: str) -> None:
        """One command."""
        assert worker.stdin
        worker.stdin.write(word + "\n")
        worker.stdin.flush()

    def await_ready(self, worker: Popen[str]) -> None:
        """Let a worker begin."""
        assert self.hear(worker) == ["ready"]
        self.say(worker, "go")

    def cells(self) -> dict[int, Cell]:
        """What the region says, by pid; nothing may be left in slots without one, nor asked for."""
        (region,) = self.state.glob("gpufence-*")
        content = region.read_bytes()
        (slots,) = struct.unpack_from("<I", content, 20)
        found: dict[int, Cell] = {}
        for slot in range(slots):
            (pid,) = struct.unpack_from("<I", content, _RECORDS_AT + 64 * slot)
            (overhead,) = struct.unpack_from("<Q", content, _OVERHEAD_AT + 8 * slot)
            held, asking = struct.unpack_from("<QQ", content, _CELLS_AT + 16 * slot)
            assert asking == 0
            if pid == 0:
                assert (held, overhead) == (0, 0)
                continue
            assert pid not in found
            found[pid] = Cell(held, overhead)
        return found

    def disturb(self) -> None:
        """Kill or stop some at random moments."""
        for _ in range(self.dice.randint(1, 4)):
            time.sleep(self.dice.random() * 0.01)
            index = self.dice.randrange(PROCESSES)
            worker = self.workers[index]
            if self.dice.random() < 0.5:
                worker.send_signal(signal.SIGSTOP)
                continue
            worker.kill()
            worker.communicate()
            self.newcomers.discard(worker.pid)
            self.workers[index] = self.start()
            self.newcomers.add(self.workers[index].pid)

    def roll_call(self) -> None:
        """Everybody stands still; the region must say exactly what they hold."""
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
        for worker in self.workers:
            if worker.pid in self.newcomers:
                self.await_ready(worker)
        self.newcomers.clear()
        for worker in self.workers:
            self.say(worker, "stand")
        expected = {}
        for worker in self.workers:
            word, code, held = self.hear(worker)
            assert (word, code) == ("holds", "0")
            expected[worker.pid] = int(held)
        self.say(self.workers[0], "full")
        assert self.hear(self.workers[0]) == ["full", "2", "0"]

        cells = self.cells()
        assert {pid: cell.held - cell.overhead for pid, cell in cells.items()} == expected
        assert self.really_used() <= LIMIT + PROCESSES * CHUNK
        for worker in self.workers:
            self.say(worker, "go")

    def really_used(self) -> int:
        """What the simulated card itself says."""
        devices = self.sim.run("nvml_query", "devices").facts
        used = devices[0]["v2_used"]
        assert isinstance(used, int)
        return used

    def end(self) -> None:
        """Kill whatever lives."""
        for worker in self.workers:
            worker.kill()
            worker.communicate()


def test_no_byte_is_lost_or_gained_and_nobody_hangs(sim: Sim, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    small = sim.with_env(CONTEXT_BYTES="2m")
    herd = Herd(small, state, random.Random(7))

    try:
        for _ in range(ROUNDS):
            herd.disturb()
            herd.roll_call()
    finally:
        herd.end()
