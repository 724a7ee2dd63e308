"""The MPS daemon of a session: started where a way needs it, and gone where none does.

It ends some time after it was told to quit, and refuses to start beside itself. Nothing here waits
forever. Must not know scenes or programs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from .ways import MPS_PIPES, Machine

CONTROL = "nvidia-cuda-mps-control"
SHORT_NAME = CONTROL[:15]  # as the kernel shortens it, and that of the servers
RUNNING = "already running"
ANSWER_S = 20.0  # of the control program
GONE_S = 15.0  # from "quit", which leaves servers five seconds, to the end of daemon and servers
START_S = 15.0  # in which one that is not seen may end
LOOK_S = 0.1


class MpsDaemon:
    """NVIDIA's daemon, running from the first scene that needs it to the next that does not."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._runs = False
        self.missing = "" if shutil.which(CONTROL) else f"{CONTROL} is not installed"
        if machine.sim is not None:
            self.missing = "the simulated driver has no MPS"

    def wanted(self, mps: bool) -> None:
        """Starts or ends it, as the next scene needs; one that cannot start is `missing`."""
        if mps == self._runs or (mps and self.missing):
            return
        if not mps:
            self.end()
            return
        for folder in (self._machine.mps_pipes, self._logs):
            folder.mkdir(exist_ok=True)
        self.missing = self._start()
        self._runs = not self.missing
        if self.missing:
            self._leave_none(time.monotonic())

    def end(self) -> None:
        """Leaves none behind. Servers end with their clients, which are gone by now."""
        if self._runs:
            self._control(told="quit -t 5\n")
            self._runs = False
            self._leave_none(time.monotonic() + GONE_S)

    @property
    def _logs(self) -> Path:
        return self._machine.folder / "mps-log"

    def _start(self) -> str:
        """Starts it, once no other has the folder; why it did not start, or ''."""
        deadline = time.monotonic() + START_S
        while True:
            why = self._control("-d")
            if RUNNING not in why or time.monotonic() >= deadline:
                return why
            time.sleep(LOOK_S)

    def _leave_none(self, deadline: float) -> None:
        """Waits for the end of daemon and servers, and kills what is left from the deadline on.

        Who was killed is there for a while yet; whoever nothing ends is left after all.
        """
        given_up = max(deadline, time.monotonic()) + GONE_S
        while (left := self._processes()) and (now := time.monotonic()) < given_up:
            if now >= deadline:
                for pid in left:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(LOOK_S)

    def _processes(self) -> list[int]:
        """Daemon and servers, by the folder that is ours alone; no clients, no zombies."""
        ours = f"{MPS_PIPES}={self._machine.mps_pipes}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
                if name != SHORT_NAME:
                    continue
                if ours in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def _control(self, *words: str, told: str = "") -> str:
        """What went wrong; empty when nothing did.

        What it says goes to a file: the daemon keeps its end of a pipe open.
        """
        log = self._machine.folder / "mps-control.txt"
        pipes = {MPS_PIPES: str(self._machine.mps_pipes), "CUDA_MPS_LOG_DIRECTORY": str(self._logs)}
        try:
            with log.open("w", encoding="utf-8") as out:
                done = subprocess.run(
                    [CONTROL, *words],
                    env=self._machine.environment() | pipes,
                    input=told,
                    stdout=out,
                    stderr=out,
                    text=True,
                    timeout=ANSWER_S,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{CONTROL}: {type(error).__name__}"
        if done.returncode == 0:
            return ""
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        return said[-200:] or f"{CONTROL} failed"
