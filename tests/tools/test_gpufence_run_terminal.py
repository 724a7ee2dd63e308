"""`gpufence run` in a terminal: signals, window size, job control and status are the program's own.

Every test is a session of its own on a pseudo-terminal, as a shell would give it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.commands import run
from gpufence.console import parsers

from .gpufence_command import REPO

PATIENCE_S = 60


@dataclass(slots=True)
class Terminal:
    """The keyboard's side of a terminal, and the process that was started on it."""

    master: int
    pid: int
    seen: str = ""

    def until(self, text: str) -> str:
        """Reads until the screen has shown `text`."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], deadline - time.monotonic())
            assert ready, f"never saw {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.master, 4096).decode()
            except OSError:
                break
        return self.seen

    def press(self, keys: bytes) -> None:
        """Types."""
        os.write(self.master, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Changes the window."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, options: int = 0) -> int:
        """The next change of the process's state, as waitpid has it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, options | os.WNOHANG)
            if pid:
                return status
            time.sleep(0.01)
        raise AssertionError("it goes on and on")


@contextmanager
def terminal(library: Path, script: str) -> Iterator[Terminal]:
    """`gpufence run -- sh -c SCRIPT` on a terminal of 24 rows and 80 columns."""
    command = [sys.executable, "-m", "gpufence", "run", "--lib", str(library), "--"]
    pid, master = pty.fork()
    if pid == 0:
        # A script's background job ignores the keyboard's signals, and so would all that it begins.
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.environ["PYTHONPATH"] = str(REPO / "tools")
        os.execv(sys.executable, [*command, "sh", "-c", script])
    screen = Terminal(master, pid)
    screen.resize(24, 80)
    try:
        yield screen
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(master)


def test_the_program_has_the_process_number_and_the_status(library: Path) -> None:
    with terminal(library, 'echo "I am $$, yes"; exit 7') as screen:
        assert f"I am {screen.pid}, yes" in screen.until(", yes")
        assert os.waitstatus_to_exitcode(screen.wait()) == 7


def test_ctrl_c_ends_the_program_as_if_alone(library: Path) -> None:
    with terminal(library, "echo begun; exec sleep 60") as screen:
        screen.until("begun")
        screen.press(b"\x03")

        assert os.waitstatus_to_exitcode(screen.wait()) == -signal.SIGINT


def test_a_program_that_catches_ctrl_c_catches_it(library: Path) -> None:
    script = 'trap "echo caught; exit 3" INT; echo begun; while :; do sleep 0.05; done'
    with terminal(library, script) as screen:
        screen.until("begun")
        screen.press(b"\x03")

        assert "caught" in screen.until("caught")
        assert os.waitstatus_to_exitcode(screen.wait()) == 3


def test_ctrl_backslash_quits_it(library: Path) -> None:
    with terminal(library, "ulimit -c 0; echo begun; exec sleep 60") as screen:
        screen.until("begun")
        screen.press(b"\x1c")

        assert os.waitstatus_to_exitcode(screen.wait()) == -signal.SIGQUIT


def test_ctrl_z_stops_it_and_it_goes_on(library: Path) -> None:
    # A session's first process has nobody to continue it, so the terminal does not stop it: a shell
    # starts it as a job of its own, here as everywhere.
    script = "set -m; (echo begun; read line; echo got $line; exit 5); echo stopped; fg; echo is $?"
    with terminal(library, script) as screen:
        screen.until("begun")
        screen.press(b"\x1a")
        screen.until("stopped")
        screen.press(b"word\n")

        screen.until("got word")
        assert "is 5" in screen.until("is 5")


def test_it_is_stopped_and_continued_by_signals(library: Path) -> None:
    with terminal(library, "echo begun; read line; exit 4") as screen:
        screen.until("begun")
        os.kill(screen.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(screen.wait(os.WUNTRACED))
        os.kill(screen.pid, signal.SIGCONT)
        screen.press(b"\n")

        assert os.waitstatus_to_exitcode(screen.wait()) == 4


def test_the_window_is_the_programs(library: Path) -> None:
    script = 'trap "stty size" WINCH; echo begun; while :; do sleep 0.05; done'
    with terminal(library, script) as screen:
        screen.until("begun")
        screen.resize(50, 132)

        assert "50 132" in screen.until("50 132")


def test_standard_streams_are_the_terminal(library: Path) -> None:
    script = "for n in 0 1 2; do [ -t $n ] || exit 1; done; exit 0"
    with terminal(library, script) as screen:
        assert os.waitstatus_to_exitcode(screen.wait()) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["true"],
        ["--", "true", "--sim"],
        ["--memory", "1g", "--memory=0=2g", "--cores", "5", "--", "x"],
        ["--soft-cores=6", "--oversubscribe", "1.5", "--gpu", "0", "--gpu", "1", "x", "-y"],
        ["--name", "a", "--lib", "/l", "--sim", "--sim-driver", "550", "x"],
        ["--container", "a", "x"],
        ["--memory", "", "x"],
        [],
    ],
)
def test_plain_arguments_are_read_as_the_parser_reads_them(words: list[str]) -> None:
    parsed = vars(parsers.of_command("run", run).parse_args(words))

    plain = run.parse_plain(words)

    assert plain is not None
    assert vars(plain) == parsed


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["--mem", "1g"], ["--memory"], ["--bogus=1", "x"], ["--sim=1"]]
)
def test_what_is_not_plain_is_left_to_the_parser(words: list[str]) -> None:
    assert run.parse_plain(words) is None


def test_every_command_has_a_parser() -> None:
    assert {"run", "set", "status"} <= cli.commands().keys()
