"""What most rooms share: built programs over the simulated driver, and a machine per test.

A test that takes `sim` gets a simulated machine nobody else sees (its own state file), so tests may
run in parallel and leave nothing behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from . import gpus
from .robust import holds_robust_mutex

REPO = Path(__file__).resolve().parents[2]

_GATE_BYTE = 1 << 40  # lib/sim/machine/file.cpp


def without_refusals(stderr: str) -> tuple[tuple[str, ...], str]:
    """The lines that name a first refusal, and the text without them."""
    lines = stderr.splitlines(keepends=True)
    refused = tuple(line for line in lines if line.startswith("gpufence: refused "))
    return refused, "".join(line for line in lines if line not in refused)


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ended: its status (negative: killed by that signal) and what it wrote.

    `refused` holds the lines that name a container's first refusal, which is what most programs
    here are after; `stderr` is everything else.
    """

    returncode: int
    stdout: str
    stderr: str
    refused: tuple[str, ...] = ()

    @staticmethod
    def of(done: subprocess.CompletedProcess[str]) -> Finished:
        """The same of a command that was run, its streams as text."""
        refused, others = without_refusals(done.stderr)
        return Finished(done.returncode, done.stdout, others, refused)

    @property
    def facts(self) -> Any:  # noqa: ANN401 - whatever JSON the program printed
        """Stdout as JSON; the assertion carries stderr when the program failed."""
        assert self.returncode == 0, f"status {self.returncode}\n{self.stdout}\n{self.stderr}"
        return json.loads(self.stdout)


@dataclass(frozen=True, slots=True)
class Sim:
    """One simulated machine.

    `env` holds the GPUFENCE_SIM_* variables; `run` and `spawn` start a program of build/tests by
    name, or any command when given a path. `preload` puts libgpufence.so in front.
    """

    build: Path
    state: Path
    env: Mapping[str, str] = field(default_factory=dict)
    latest: bool = False

    def with_env(self, **variables: str | int) -> Sim:
        """The same machine file, other settings: `sim.with_env(GPUS=2, DRIVER=535)`."""
        named = {f"GPUFENCE_SIM_{name}": str(value) for name, value in variables.items()}
        return Sim(self.build, self.state, {**self.env, **named}, self.latest)

    def environment(self, preload: bool, extra: Mapping[str, str]) -> dict[str, str]:
        """The child's environment: the simulated driver first on the loader's path."""
        folder = self.build / "sim" / "latest" if self.latest else self.build / "sim"
        result = {k: v for k, v in os.environ.items() if not k.startswith(("GPUFENCE_", "LD_"))}
        result |= {"LD_LIBRARY_PATH": str(folder), "GPUFENCE_SIM_STATE": str(self.state)}
        if preload:
            # A sanitizer's runtime, when the build is made with one, has to be the first of all.
            runtime = os.environ.get("GPUFENCE_TEST_RUNTIME", "")
            result["LD_PRELOAD"] = f"{runtime} {self.build / 'lib' / 'libgpufence.so'}".strip()
        result = {**result, **self.env, **extra}
        if preload:
            gpus.make_known(result)
        return result

    def command(self, program: str | Path, arguments: tuple[str | int | Path, ...]) -> list[str]:
        """The program's path and arguments as text."""
        path = program if "/" in str(program) else self.build / "tests" / program
        return [str(path), *map(str, arguments)]

    def run(
        self,
        program: str | Path,
        *arguments: str | int | Path,
        preload: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Finished:
        """Run to the end; a hang fails the test after `timeout` seconds."""
        done = subprocess.run(
            self.command(program, arguments),
            env=self.environment(preload, env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Finished.of(done)

    def spawn(
        self,
        program: str | Path,
        *arguments: str | int | Path,
        preload: bool = False,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> subprocess.Popen[str]:
        """Start and return at once, with all three streams as pipes; `user` is its group, too."""
        return subprocess.Popen(
            self.command(program, arguments),
            env=self.environment(preload, env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=user,
        )

    @contextmanager
    def driven(
        self, program: str, *arguments: str | int | Path, env: Mapping[str, str]
    ) -> Iterator[tuple[IO[str], IO[str]]]:
        """A fenced program that answers line by line: what it reads, and what it answers.

        It says "ready" first, and ends well when its input does.
        """
        process = self.spawn(program, *arguments, preload=True, env=env)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        try:
            ready = process.stdout.readline()
            assert ready == "ready\n", process.stderr.read()
            yield process.stdin, process.stdout
            process.stdin.close()
            assert process.wait(60) == 0, process.stderr.read()
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                stream.close()

    def stop(self, process: subprocess.Popen[str]) -> bool:
        """SIGSTOP it anywhere but inside the driver; False when it has ended instead.

        A real driver's critical sections are the kernel's, where no process can be stopped: the
        signal takes effect on its way out. The simulated one's are ordinary code: behind its gate,
        or with a mutex of its own.
        """
        while True:
            process.send_signal(signal.SIGSTOP)
            seen = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if seen is None or seen.si_code != os.CLD_STOPPED:
                return False
            if not holds_robust_mutex(process.pid) and self._gate_opens():
                return True
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)

    def _gate_opens(self) -> bool:
        """Whether the driver's gate is seen open within a moment, so that nobody stopped has it."""
        (machine,) = self.state.parent.glob(self.state.name + ".*")
        with machine.open("r+b") as file:
            for _ in range(1000):
                if _try_gate(file.fileno()):
                    return True
                time.sleep(0.0001)
        return False


def _try_gate(machine: int) -> bool:
    """Take the gate of a machine file if it is free; closing the file opens it again."""
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _GATE_BYTE, 1, 0)
    try:
        fcntl.fcntl(machine, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="session")
def build() -> Path:
    """The build folder (GPUFENCE_BUILD, default build/)."""
    folder = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build"))
    if not (folder / "lib" / "libgpufence.so").exists():
        pytest.skip(f"{folder} holds no build: run ci/build first")
    return folder


@pytest.fixture
def sim(build: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Sim:
    """A fresh simulated machine with one GPU of the default driver, and the module's MACHINE."""
    variables: Mapping[str, int] = getattr(request.module, "MACHINE", {})
    return Sim(build, tmp_path / "machine").with_env(**variables)


@pytest.fixture
def bare(sim: Sim) -> Sim:
    """A machine on which a context costs nothing."""
    return sim.with_env(CONTEXT_BYTES=0)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where a container keeps its region; not made yet."""
    return tmp_path / "state"
