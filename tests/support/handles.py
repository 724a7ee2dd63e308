"""A running handles_commands, told what to create, map, launch and end; one answer a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .charges import OUT_OF_MEMORY, charged, refusals
from .machine import Sim


@dataclass(frozen=True, slots=True)
class Handles:
    """One fenced process on a simulated machine."""

    to: IO[str]
    answers: IO[str]
    folder: Path
    sim: Sim

    def ask(self, *words: str | int) -> list[int]:
        """One command; its numbers, the driver's code first."""
        self.to.write(" ".join(map(str, words)) + "\n")
        self.to.flush()
        answer = self.answers.readline()
        assert answer, f"the program ended at {words}"
        return [int(word) for word in answer.split()]

    def does(self, *words: str | int) -> None:
        """A command that must succeed."""
        assert self.ask(*words)[0] == 0, words

    def make(self, *words: str | int) -> int:
        """A command that must succeed and gives a handle or an address."""
        code, handle, *_ = self.ask(*words)
        assert code == 0, f"{words}: {code} at {self.charged()} charged"
        return handle

    def refused(self, *words: str | int) -> None:
        """A command that must be out of memory, counted once, its output, if any, untouched."""
        before = self.refusals()
        code, *rest = self.ask(*words)
        assert code == OUT_OF_MEMORY, words
        assert self.refusals() == before + 1, words
        assert rest[1:] in ([], [0])

    def charged(self) -> int:
        """What the region says: the sum over all processes."""
        return charged(self.folder)

    def refusals(self) -> int:
        """What the region says the limit refused."""
        return refusals(self.folder)

    def used(self) -> int:
        """What the machine says, asked by a process without a limit."""
        return int(self.sim.run("handles_commands", "look").stdout)


@contextmanager
def handles(
    sim: Sim,
    folder: Path,
    limit: str | None = "1g",
    program: str = "handles_commands",
    **faults: str,
) -> Iterator[Handles]:
    """Run handles_commands, or a program like it, with a memory limit; its state is in `folder`."""
    env = {"GPUFENCE_STATE_DIR": str(folder)}
    if limit is not None:
        env["GPUFENCE_MEMORY_LIMIT"] = limit
    if faults:
        env["GPUFENCE_SIM_FAULTS"] = ";".join(f"{name}@{what}" for name, what in faults.items())
    folder.mkdir(exist_ok=True)
    with sim.driven(program, env=env) as (to, answers):
        yield Handles(to, answers, folder, sim)


def exporting(sim: Sim, folder: Path) -> AbstractContextManager[Handles]:
    """The same of exports_commands, which gives pools and ranges of memory to others."""
    return handles(sim, folder, program="exports_commands")
