"""Processes of one container, killed and stopped anywhere: no hang, no byte lost or gained.

The real library over the simulated driver. GPUFENCE_TEST_KILL_ROUNDS sets the number of rounds
(1000 for a release; a few by default, because each takes a good part of a second).
"""

from __future__ import annotations

import os
import random
import select
import signal
from collections import Counter
from pathlib import Path
from subprocess import Popen

from tests.support.charges import MIB, OUT_OF_MEMORY
from tests.support.machine import Sim
from tests.support.region_file import Charge, read_charges

PROCESSES = 32
LIMIT = 512 * MIB
ROUNDS = int(os.environ.get("GPUFENCE_TEST_KILL_ROUNDS", "10"))
PATIENCE_S = 60.0


class Herd:
    """The running workers."""

    def __init__(self, sim: Sim, state: Path, dice: random.Random) -> None:
        """Start all of them, and let them run."""
        self.sim = sim
        self.state = state
        self.dice = dice
        self.counts: Counter[str] = Counter()
        self.workers: list[Popen[str]] = [self.start() for _ in range(PROCESSES)]
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

    def ask(self, worker: Popen[str], word: str) -> list[str]:
        """One command and its answer."""
        self.say(worker, word)
        return self.hear(worker)

    def await_ready(self, worker: Popen[str]) -> None:
        """Let a worker begin."""
        assert self.hear(worker) == ["ready"]
        self.say(worker, "go")

    def disturb(self) -> None:
        """Kill or stop some at random moments; whoever is killed has a successor at once."""
        for _ in range(self.dice.randint(1, 4)):
            select.select([], [], [], self.dice.random() * 0.01)
            index = self.dice.randrange(PROCESSES)
            worker = self.workers[index]
            if self.dice.random() < 0.5:
                assert self.sim.stop(worker)
                self.counts["stopped"] += 1
                continue
            worker.kill()
            worker.communicate()
            self.counts["killed"] += 1
            self.workers[index] = self.start()
            # The others may be stopped: they hold nothing that a newcomer has to wait for.
            self.await_ready(self.workers[index])

    def roll_call(self) -> None:
        """Everybody stands still; the region must say exactly what they hold."""
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
        for worker in self.workers:
            self.say(worker, "stand")
        expected = {}
        for worker in self.workers:
            word, code, held, granted, refused = self.hear(worker)
            assert (word, code) == ("holds", "0")
            expected[worker.pid] = int(held)
            self.counts["granted"] += int(granted)
            self.counts["refused"] += int(refused)
        assert self.ask(self.workers[0], "full") == ["full", str(OUT_OF_MEMORY)]

        assert {c.pid: c.held - c.overhead for c in self.charges()} == expected
        assert self.really_used() <= LIMIT
        for worker in self.workers:
            self.say(worker, "go")

    def charges(self) -> list[Charge]:
        """What the region says; nothing may be left in slots without a process, nor asked for."""
        found = read_charges(self.state)
        assert all(charge.asking == 0 for charge in found)
        assert all((charge.held, charge.overhead) == (0, 0) for charge in found if charge.pid == 0)
        taken = [charge for charge in found if charge.pid != 0]
        assert len({charge.pid for charge in taken}) == len(taken)
        return taken

    def really_used(self) -> int:
        """What the simulated card itself says."""
        devices = self.sim.run("nvml_query", "devices").facts
        used = devices[0]["v2_used"]
        assert isinstance(used, int)
        return used

    def empty(self) -> None:
        """Everybody gives everything back: only what no allocation explains may stay charged."""
        for worker in self.workers:
            assert self.ask(worker, "stand")[1] == "0"
        for worker in self.workers:
            assert self.ask(worker, "empty") == ["empty", "0"]
        for worker in self.workers:
            assert self.ask(worker, "stand")[:3] == ["holds", "0", "0"]

        charges = self.charges()

        assert [charge.held - charge.overhead for charge in charges] == [0] * PROCESSES

    def end(self) -> None:
        """Kill whatever lives."""
        for worker in self.workers:
            worker.kill()
            worker.communicate()


def test_no_byte_is_lost_or_gained_and_nobody_hangs(sim: Sim, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    herd = Herd(sim.with_env(CONTEXT_BYTES="2m"), state, random.Random(7))

    try:
        for _ in range(ROUNDS):
            herd.disturb()
            herd.roll_call()
        herd.empty()
    finally:
        herd.end()
        print(dict(herd.counts))

    late = herd.start()
    try:
        assert herd.hear(late) == ["ready"]
        assert herd.ask(late, "stand")[:3] == ["holds", "0", "0"]
        assert herd.ask(late, "full") == ["full", str(OUT_OF_MEMORY)]
        (left,) = herd.charges()
        assert left.held == left.overhead
    finally:
        late.kill()
        late.communicate()
