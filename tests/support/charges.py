"""What the charge tests share: the region read from outside, a program driven line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpufence.state import region

from .machine import Sim
from .region_file import charged, resident

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
CHUNK = 2 * MIB
BLOCK = 32 * MIB

OUT_OF_MEMORY = 2
INVALID_VALUE = 1


@dataclass(frozen=True, slots=True)
class Allocator:
    """A running charge_addresses."""

    to: IO[str]
    answers: IO[str]
    folder: Path

    def tell(self, *words: str | int) -> list[str]:
        """One command, its answer's words."""
        self.to.write(" ".join(map(str, words)) + "\n")
        self.to.flush()
        answer = self.answers.readline()
        assert answer, f"the program ended at {words}"
        return answer.split()

    def ask(self, *words: str | int) -> list[int]:
        """One command, its numbers: the driver's code first."""
        return [int(word) for word in self.tell(*words)]

    def take(self, family: str, size: int) -> int:
        """Allocate, which must succeed; the address."""
        code, address, _ = self.ask("alloc", family, size)
        assert code == 0, f"{size} bytes of {family}: {code} at {charged(self.folder)} charged"
        return address

    def give(self, door: str, address: int) -> None:
        """Free, which must succeed."""
        assert self.ask("free", door, address) == [0]

    def refused(self, family: str, size: int, *, by_the_driver: bool = False) -> None:
        """Allocate, which must be out of memory and leave the outputs alone.

        The limit counts what it refuses, once; what the driver refuses is not its business.
        """
        before = self.refusals()
        code, _, written = self.ask("alloc", family, size)
        assert (code, written) == (OUT_OF_MEMORY, 0)
        assert self.refusals() == before + (not by_the_driver), (family, size)

    def refusals(self) -> int:
        """What the region says the limit refused."""
        return refusals(self.folder)

    def does(self, *words: str | int) -> None:
        """A command that must succeed."""
        assert self.ask(*words)[0] == 0, words

    def charged(self) -> int:
        """What the region says now."""
        return charged(self.folder)

    def resident(self) -> int:
        """What of it is device memory; counted where memory is oversold."""
        return resident(self.folder)


def refusals(folder: Path) -> int:
    """What the only region under `folder` says its limits refused."""
    (path,) = region.find({}, str(folder))
    return sum(device.activity.refusals for device in region.read(path).devices)


@contextmanager
def allocator(
    sim: Sim,
    folder: Path,
    way: str = "linked",
    limit: str | None = "1g",
    oversubscribe: str | None = None,
    **faults: str,
) -> Iterator[Allocator]:
    """Run charge_addresses with a memory limit; its state lies in `folder`."""
    env = {"GPUFENCE_STATE_DIR": str(folder)}
    if oversubscribe is not None:
        env["GPUFENCE_OVERSUBSCRIBE"] = oversubscribe
    if limit is not None:
        env["GPUFENCE_MEMORY_LIMIT"] = limit
    if faults:
        env["GPUFENCE_SIM_FAULTS"] = ";".join(f"{name}@{what}" for name, what in faults.items())
    folder.mkdir(exist_ok=True)
    with sim.driven("charge_addresses", way, env=env) as (to, answers):
        yield Allocator(to, answers, folder)
