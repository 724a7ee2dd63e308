"""The processes of the GPU's soak: one takes memory line by line, one launches kernels, one trains.

Owns how they are begun and spoken to. Must not know what is promised to them.
"""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from colocation.session import Kernels
from driven import Driven, DrivenError

MIB = 1 << 20
READY_S, ANSWER_S, END_S = 60.0, 60.0, 30.0
OUT_OF_MEMORY = 2
NO_CONTEXT = f"cuCtxCreate_v2(&context, 0, 0): {OUT_OF_MEMORY}"
# What charge_addresses calls them, and how they are given back.
FAMILIES = {"linear": "free", "async": "free_async", "pitch": "free"}
MOST_PIECES = 24
TRAINING = Path(__file__).with_name("workloads") / "soak_training.py"
ENDLESS_S = 1_000_000


@dataclass(slots=True)
class Member:
    """A process of a container."""

    COUNTED: ClassVar[str] = "asked for memory"  # what `work` gives a number of
    driven: Driven

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """As the system has it."""
        return self.driven.process

    @property
    def pid(self) -> int:
        """As NVML and the ledger call it."""
        return self.driven.pid

    def has_ended(self) -> bool:
        """By itself, since nobody that was killed is a member any more."""
        return self.process.poll() is not None

    def work(self, _dice: random.Random) -> int:
        """One thing, if it has to be told; how many requests that was."""
        return 0

    def wait(self) -> None:
        """Until it has done what it was told."""

    def leave(self) -> None:
        """It ends as programs do; DrivenError when it hangs or fails."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise DrivenError(f"process {self.pid} does not end") from None
        self._close()
        if status != 0:
            raise DrivenError(f"process {self.pid} ended with {status}")

    def kill(self) -> None:
        """As kill -9 does it."""
        self.process.kill()
        self.process.wait(END_S)
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@dataclass(slots=True)
class Taker(Member):
    """charge_addresses: it takes and gives back memory, or churns, when it is told."""

    held: list[tuple[str, int]] = field(default_factory=list)
    churns: bool = False

    @classmethod
    def start(cls, program: Path, env: Mapping[str, str]) -> Taker | None:
        """A new one, which holds nothing yet; None where no memory is left for its context."""
        made = cls(_started([program, "linked"], env, "a taker"))
        try:
            made.driven.await_ready(READY_S)
        except DrivenError as error:
            if NO_CONTEXT not in str(error):
                raise
            made.kill()
            return None
        return made

    def work(self, dice: random.Random) -> int:
        """Some requests, or a churn that it is left alone with."""
        self.wait()
        if dice.random() < 0.3:
            self.driven.say("churn", "linear", "free", dice.randint(1, 64) * MIB, 4, 200)
            self.churns = True
            return 800
        count = dice.randint(1, 8)
        for _ in range(count):
            if self.held and (len(self.held) > MOST_PIECES or dice.random() < 0.45):
                door, address = self.held.pop(dice.randrange(len(self.held)))
                self._must(self.driven.ask("free", door, address)[0])
                continue
            family = dice.choice(list(FAMILIES))
            code, address, *_ = self.driven.ask("alloc", family, dice.randint(1, 256) * MIB)
            if code == 0:
                self.held.append((FAMILIES[family], address))
            elif code != OUT_OF_MEMORY:
                self._must(code)
        self._must(self.driven.ask("sync", "stream")[0])
        return count

    def wait(self) -> None:
        """Until its churn is over."""
        if self.churns:
            self.churns = False
            code, *_ = map(int, self.driven.line(ANSWER_S).split())
            if code != OUT_OF_MEMORY:
                self._must(code)

    def leave(self) -> None:
        """What it was told it does first."""
        self.wait()
        Member.leave(self)

    def _must(self, code: int) -> None:
        if code != 0:
            raise DrivenError(f"process {self.pid} was told {code} by the driver")


@dataclass(slots=True)
class Launcher(Member):
    """The bench's kernels: it saturates the GPU for as long as its container lives."""

    @classmethod
    def start(
        cls, kernels: Kernels, records: Path, env: Mapping[str, str], *, endless: bool
    ) -> Launcher:
        """A new one, at work."""
        turns = [f"{kernels.one:.9f}", f"{kernels.full:.9f}"]
        words = [kernels.program, "work", *turns, records, "saturate", 1000]
        made = cls(_started(words, env, "a launcher"))
        for word, answer in (("", "loaded"), ("prepare", "ready")):
            if word:
                made.driven.say(word)
            heard = made.driven.line(READY_S)
            if heard != answer:
                raise DrivenError(f"a launcher said {heard}")
        made.driven.say("go", ENDLESS_S if endless else 3, 0)
        return made

    def leave(self) -> None:
        """It ends when its seconds are over."""
        self.driven.line(ANSWER_S)
        Member.leave(self)


@dataclass(slots=True)
class Trainer(Member):
    """PyTorch, where it is: the same training again and again, which must learn the same."""

    COUNTED: ClassVar[str] = "trainings"
    learned: str = ""
    trains: bool = False

    @classmethod
    def start(cls, env: Mapping[str, str], *, simulated: bool) -> Trainer:
        """A new one, which has not begun its first training."""
        way = "torch" if not simulated and importlib.util.find_spec("torch") else "spin"
        made = cls(_started([sys.executable, TRAINING, way], env, "a trainer"))
        made.driven.await_ready(READY_S)
        return made

    def work(self, _dice: random.Random) -> int:
        """One training, left alone."""
        self.wait()
        self.driven.say("train")
        self.trains = True
        return 1

    def wait(self) -> None:
        """Until its training is over; DrivenError when it learned something else than before."""
        if not self.trains:
            return
        self.trains = False
        learned = self.driven.line(ANSWER_S)
        if self.learned not in ("", learned):
            raise DrivenError(f"process {self.pid} learned {learned} and {self.learned} before")
        self.learned = learned

    def leave(self) -> None:
        """Its training is over first."""
        self.wait()
        Member.leave(self)


@dataclass(slots=True)
class Container:
    """A container: its limits as it began, and its processes; a resident's first one stays."""

    name: str
    kind: str
    first_mib: int
    first_cores: int
    resident: bool
    members: list[Member] = field(default_factory=list)


def everybody_waits(containers: Iterable[Container]) -> None:
    """Until nobody that takes memory is at it."""
    for container in containers:
        for member in container.members:
            member.wait()


def _started(command: list[object], env: Mapping[str, str], name: str) -> Driven:
    process = subprocess.Popen(
        [str(word) for word in command],
        env=dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return Driven(process, name)
