"""What the library must never do to the program that it is in, however narrow its world is."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from .conftest import Sim

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
