"""Programs that keep a simulated GPU busy in several containers, and what each of them did.

Must not know what a test does to them.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.machine import Sim

WORDS = 512
DEADLINE_S = 60.0  # for what must happen at some time; a machine may be very busy
KERNEL_US = 500


class Workers:
    """Workers by their number; `start` makes one, `counts` tells how many kernels each has run."""

    def __init__(self, sim: Sim, folder: Path) -> None:
        self.sim, self.folder = sim, folder
        self.node = folder / "node"
        self.node.mkdir(parents=True)
        self.began = time.monotonic()
        self.diary = folder / "diary"
        self.diary.write_bytes(bytes(8 * WORDS))
        self._file = self.diary.open("r+b")
        self._words = mmap.mmap(self._file.fileno(), 8 * WORDS)
        self.running: dict[int, subprocess.Popen[str]] = {}

    def env(self, container: str, percent: int, **more: str) -> dict[str, str]:
        """A container's variables."""
        return {
            "GPUFENCE_CORE_LIMIT": str(percent),
            "GPUFENCE_STATE_DIR": str(self.folder),
            "GPUFENCE_NODE_DIR": str(self.node),
            "GPUFENCE_CONTAINER": container,
            **more,
        }

    def start(
        self, number: int, env: Mapping[str, str], mode: str = "one", user: int | None = None
    ) -> None:
        """Begins a worker, of another user if need be."""
        words = ("turns_worker", KERNEL_US, self.diary, number, mode)
        self.running[number] = self.sim.spawn(*words, preload=True, env=env, user=user)

    def kill(self, number: int) -> None:
        """Ends one by SIGKILL."""
        process = self.running.pop(number)
        process.kill()
        process.communicate()

    def stop(self, number: int) -> None:
        """Stops one."""
        assert self.sim.stop(self.running[number])

    def go_on(self, number: int) -> None:
        """Lets a stopped one go on."""
        self.running[number].send_signal(signal.SIGCONT)

    def count(self, number: int) -> int:
        """Kernels that the workers of this number have run."""
        return int(struct.unpack_from("Q", self._words, 8 + 8 * number)[0])

    def await_progress(self, numbers: list[int], least: int = 8) -> None:
        """Each of them runs some more kernels."""
        before = {number: self.count(number) for number in numbers}
        self.await_true(
            lambda: all(self.count(number) >= before[number] + least for number in numbers),
            lambda: f"{[n for n in numbers if self.count(n) < before[n] + least]} got nowhere",
        )

    def await_true(self, done: Callable[[], bool], complaint: Callable[[], str]) -> None:
        """Waits until something is so; fails when it never is."""
        until = time.monotonic() + DEADLINE_S
        while not done():
            for number, process in self.running.items():
                assert process.poll() is None, f"{number} ended: {process.communicate()}"
            assert time.monotonic() < until, complaint()
            time.sleep(0.002)

    def finish(self) -> dict[int, str]:
        """Tells all to end, and gives back what each wrote to stderr."""
        struct.pack_into("Q", self._words, 0, 1)
        said = {}
        for number, process in self.running.items():
            process.send_signal(signal.SIGCONT)
            _, said[number] = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, said[number]
        self.running.clear()
        return said

    def busy_ms(self, numbers: list[int]) -> float:
        """Time of the GPU that workers of these numbers had."""
        return sum(self.count(number) for number in numbers) * KERNEL_US / 1000

    def elapsed_ms(self) -> float:
        """Since these workers were made."""
        return (time.monotonic() - self.began) * 1000

    def time_file(self, container: str) -> Path:
        """The container's own file."""
        (found,) = self.folder.glob(f"gpufence-{container}.cores*")
        return found

    def notices(self) -> list[Path]:
        """What containers say of themselves in the node folder."""
        return sorted(self.node.glob("gpufence-turns*"))

    def close(self) -> None:
        """Ends what is left."""
        for process in self.running.values():
            process.kill()
            process.communicate()
        self._words.close()
        self._file.close()


@contextmanager
def workers(sim: Sim, folder: Path) -> Iterator[Workers]:
    """Workers that end with the test."""
    made = Workers(sim, folder)
    try:
        yield made
    finally:
        made.close()


def turn(time_file: Path) -> tuple[int | None, bool]:
    """Whose turn it is on the first device, and whether it is closing.

    As the container of this file knows: 0 is itself, others are its neighbours.
    """
    with time_file.open("rb") as file:
        word = struct.unpack("Q", os.pread(file.fileno(), 8, 64 + 24))[0]
    return (word & 0xFF) - 1 if word & 0xFF else None, bool(word & 0x100)
