"""What the library must never do to the program that it is in, however narrow its world is."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.machine import Sim

REFUSED = '{"init": 1}\n'
LINE = "gpufence: cuInit fails on purpose: "

# Beyond all that the simulated driver's own files need.
MOST_FILE_BYTES = 1 << 42


def forbid_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))


@contextmanager
def nobody_reads(_: Path) -> Iterator[int]:
    """A pipe without a reader: writing raises SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextmanager
def somebody_reads_nothing(_: Path) -> Iterator[int]:
    """A full pipe: writing waits for the reader, for ever."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@contextmanager
def the_file_may_not_grow(folder: Path) -> Iterator[int]:
    """A file at RLIMIT_FSIZE: writing raises SIGXFSZ."""
    with (folder / "stderr").open("wb") as file:
        file.seek(MOST_FILE_BYTES)
        yield file.fileno()


def run_refused(
    sim: Sim, stderr: int, before: Callable[[], None] | None = None, **env: str
) -> tuple[int, str]:
    """A program whose cuInit has something to say: its status and what it printed."""
    done = subprocess.run(
        sim.command("limit_probe", ()),
        env=sim.environment(True, {"GPUFENCE_MEMORY_LIMIT": "much", **env}),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=before,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("sink", [nobody_reads, somebody_reads_nothing, the_file_may_not_grow])
def test_a_line_that_cannot_be_written_costs_the_line_alone(
    sim: Sim, tmp_path: Path, sink: Callable[[Path], AbstractContextManager[int]]
) -> None:
    with sink(tmp_path) as stderr:
        assert run_refused(sim, stderr, forbid_large_files) == (0, REFUSED)


def test_a_log_file_that_may_not_grow_costs_the_line_alone(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(MOST_FILE_BYTES)

    with (tmp_path / "stderr").open("wb") as stderr:
        ended = run_refused(sim, stderr.fileno(), forbid_large_files, GPUFENCE_LOG_FILE=str(log))

    assert ended == (0, REFUSED)
    assert log.stat().st_size == MOST_FILE_BYTES


def test_a_log_pipe_that_nobody_reads_is_not_waited_for(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)

    with (tmp_path / "stderr").open("wb") as stderr:
        ended = run_refused(sim, stderr.fileno(), GPUFENCE_LOG_FILE=str(log))

    assert ended == (0, REFUSED)
    assert (tmp_path / "stderr").read_text().startswith(LINE)


def test_who_waits_for_another_thread_leaves_the_processor(sim: Sim) -> None:
    # A thread of SCHED_FIFO that spun, or yielded, would keep the one it waits for from running.
    assert sim.run("held_lock").facts == {"slept": 1}


# Opens what may be opened but for some, then initialises.
INITIALISE = """
import contextlib, ctypes, os, resource, sys
driver = ctypes.CDLL("libcuda.so.1")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
opened = []
with contextlib.suppress(OSError):
    while True:
        opened.append(os.dup(2))
for _ in range(int(sys.argv[1])):
    os.close(opened.pop())
print(driver.cuInit(0))
"""


@pytest.mark.parametrize(
    ("left", "what"),
    [
        (0, "no file descriptor is left to look for /overrideEnv"),
        # The simulated driver opens two, and looking for limits takes one at a time.
        (3, "the container's region at "),
    ],
)
def test_a_process_without_descriptors_is_told_what_it_lacks(
    sim: Sim, tmp_path: Path, left: int, what: str
) -> None:
    env = {
        "GPUFENCE_MEMORY_LIMIT": "1g",
        "GPUFENCE_STATE_DIR": str(tmp_path),
        "GPUFENCE_CONTAINER": "narrow",
    }

    done = sim.run(sys.executable, "-c", INITIALISE, left, preload=True, env=env)

    assert done.stdout == "1\n"
    assert done.stderr.startswith(LINE + what), done.stderr
    assert done.stderr.endswith(". Raise the limit of open files (ulimit -n)\n"), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cancelled_thread_ends_behind_the_call_and_not_within(sim: Sim, tmp_path: Path) -> None:
    """Unlike one that keeps a lock of ours: whoever comes next would wait for ever."""
    env = {
        "GPUFENCE_MEMORY_LIMIT": "4g",
        "GPUFENCE_STATE_DIR": str(tmp_path),
        "GPUFENCE_CONTAINER": "cancelled",
        "GPUFENCE_LOG_LEVEL": "debug",
    }

    facts = sim.run("cancelled", preload=True, env=env).facts

    assert facts.pop("free") == 4096 - 526 - 64  # a context, and what a descriptor keeps
    assert facts
    assert set(facts.values()) == {1}
