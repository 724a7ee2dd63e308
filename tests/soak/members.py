"""The processes of the soak: test programs that are driven line by line.

Owns how they are spoken to. Must not know what is promised to them.
"""

from __future__ import annotations

import random
import select
import signal
import time
from dataclasses import dataclass, field
from subprocess import Popen, TimeoutExpired
from typing import IO

from tests.support.machine import Sim

from .quota import Quota

PATIENCE_S = 120.0
KERNEL_NS = 50_000  # of tests/gputime/frozen.cpp
CHUNK = 2 << 20
# Not managed memory: what of it fits is charged before it is touched, and held only after.
OVERSOLD = ("linear", "pitch", "physical", "mapped", "array", "async", "pool")


class LostError(Exception):
    """A process hung, ended by itself, or said what it never should."""


@dataclass(slots=True)
class Member:
    """One process of a container: kill_worker, frozen or oversold_commands."""

    kind: str
    process: Popen[str]
    held: list[tuple[str, str]] = field(default_factory=list)  # oversold: family and handle
    counted: int = 0  # launches: kernels that had ended when last asked
    stopped: bool = False

    @property
    def pid(self) -> int:
        """As the driver and the ledger call it."""
        return self.process.pid

    def say(self, *words: str | int) -> None:
        """One command."""
        assert self.process.stdin
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise LostError(self._why()) from None

    def hear(self) -> list[str]:
        """Its next line."""
        out = self.process.stdout
        assert out
        heard, _, _ = select.select([out], [], [], PATIENCE_S)
        if not heard:
            raise LostError(f"process {self.pid} ({self.kind}) hangs")
        line = out.readline()
        if not line:
            raise LostError(self._why())
        return line.split()

    def ask(self, *words: str | int) -> list[str]:
        """One command and its answer."""
        self.say(*words)
        return self.hear()

    def go_on(self) -> None:
        """Let it run, if it was stopped."""
        if self.stopped:
            self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def throttle(self, sim: Sim, quota: Quota | None, turns: int) -> None:
        """A quarter of a processor for a while: by the kernel, or else by signals alike."""
        if quota is not None:
            quota.take(self.pid)
            time.sleep(0.02 * turns)
            quota.give_back(self.pid)
            return
        for _ in range(turns):
            self.stopped = sim.stop(self.process)
            time.sleep(0.015)
            self.go_on()
            time.sleep(0.005)

    def end(self, politely: bool = False) -> None:
        """Kill it, or let it leave at the end of its input."""
        self.go_on()
        if politely and self.process.stdin and self.kind != "launch":
            self.process.stdin.close()
            self.process.stdin = None
        else:
            self.process.kill()
        try:
            self.process.communicate(timeout=PATIENCE_S)
        except TimeoutExpired:
            raise LostError(f"process {self.pid} ({self.kind}) does not end") from None

    def _why(self) -> str:
        err: IO[str] | None = self.process.stderr
        self.process.wait(PATIENCE_S)
        said = err.read().strip()[-300:] if err else ""
        return f"process {self.pid} ({self.kind}) ended ({self.process.returncode}): {said}"


def start(sim: Sim, kind: str, env: dict[str, str], dice: random.Random) -> Member:
    """A new process, at work."""
    words: tuple[str | int, ...] = {
        "memory": ("kill_worker", dice.getrandbits(32)),
        "launch": ("frozen", 1),
        "oversold": ("oversold_commands",),
    }[kind]
    member = Member(kind, sim.spawn(str(words[0]), *words[1:], preload=True, env=env))
    if member.hear() != ["ready"]:
        raise LostError(f"process {member.pid} ({kind}) is not ready")
    if kind == "memory":
        member.say("go")
    elif kind == "launch":
        member.ask("flood")
    return member


def kernels_ns(member: Member) -> int:
    """GPU time of the kernels that ended since the last call."""
    ended = int(member.ask("ended")[0])
    taken, member.counted = ended - member.counted, ended
    return taken * KERNEL_NS


def wander(member: Member, dice: random.Random, steps: int) -> None:
    """A process of oversold memory takes and gives at random."""
    for _ in range(steps):
        if member.held and (dice.random() < 0.5 or len(member.held) > 24):
            family, handle = member.held.pop(dice.randrange(len(member.held)))
            if member.ask("give", family, "free", handle) != ["0"]:
                raise LostError(f"process {member.pid} could not give {family} back")
            continue
        family = dice.choice(OVERSOLD)
        size = CHUNK * dice.randint(1, 16)
        code, handle = member.ask("take", family, size)
        if code == "0":
            member.held.append((family, handle))
        elif code != "2":
            raise LostError(f"process {member.pid} was told {code} for {size} bytes of {family}")
