"""`gpufence top` on its own terminal: keys and sizes work, and every end leaves it as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import warm_commands
from .region_files import GIB, RegionFile, Signed

pytest.importorskip("textual", reason="the live screen needs the extra [top]")

REPO = Path(__file__).resolve().parents[2]
PATIENCE_S = 30
RESTORED = b"\x1b[?1049l"  # back from the alternate screen


class Terminal:
    """The command on a pty; what it wrote so far is in `seen`."""

    def __init__(self, folder: Path, *command: str, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(24, 80, tell=False)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        base = {**warm_commands.BARE, "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            [*(command or (sys.executable, "-m", "gpufence")), "top", "--state-dir", str(folder)],
            env={**base, "TERM": "xterm-256color", "GPUFENCE_TOP_INTERVAL": "0.1", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def resize(self, rows: int, columns: int, tell: bool = True) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def read(self) -> None:
        """Take what is there, waiting for a moment."""
        if select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536)

    def until(self, text: bytes) -> None:
        """Read until the text has come; what was read up to it is forgotten."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < end, self.seen[-3000:]
            self.read()
        self.seen = self.seen.partition(text)[2]

    def end(self) -> int:
        """Its exit status, after everything it wrote was read."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen[-3000:]
            self.read()
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.process.returncode

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """The live screen, showing one container."""
    with RegionFile(tmp_path) as made:
        made.device(0)
        made.process(0, Signed())
        made.use(0, 0, held=GIB, limit=4 * GIB)
        live = Terminal(tmp_path)
        live.until(b"web")
        yield live
        live.close()


@pytest.mark.parametrize(("key", "status"), [(b"q", 0), (b"\x03", 0)], ids=["q", "ctrl-C"])
def test_a_key_ends_it_and_the_terminal_is_as_before(
    terminal: Terminal, key: bytes, status: int
) -> None:
    terminal.type(key)

    assert terminal.end() == status
    assert RESTORED in terminal.seen
    assert terminal.is_as_before()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_as_before(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.process.send_signal(number)

    assert terminal.end() == 128 + number
    assert RESTORED in terminal.seen
    assert terminal.is_as_before()


def test_keys_work_and_a_new_size_is_taken(terminal: Terminal) -> None:
    terminal.type(b"n")
    terminal.until(b"by name")
    terminal.type(b"?")
    terminal.until(b"this help")
    terminal.type(b"?")
    terminal.until(b"25%")
    terminal.type(b"/web")  # all at once, as over a slow line
    terminal.until(b"only 'web'")
    terminal.resize(40, 140)
    terminal.until(b"TREND")  # 80 columns have no room for it


def test_ctrl_z_stops_it_and_fg_brings_it_back(terminal: Terminal) -> None:
    terminal.type(b"\x1a")
    os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
    assert terminal.is_as_before()

    terminal.process.send_signal(signal.SIGCONT)
    terminal.until(b"web")
    terminal.type(b"q")

    assert terminal.end() == 0
    assert terminal.is_as_before()


def test_no_colour_is_sent_where_none_is_wanted(tmp_path: Path) -> None:
    live = Terminal(tmp_path, NO_COLOR="1")
    live.until(b"no container with a limit")
    live.type(b"q")
    live.end()
    live.close()

    assert b"[38;" not in live.seen
    assert b"[32m" not in live.seen


def test_without_its_package_the_table_is_shown_with_a_hint(
    tmp_path: Path,
) -> None:
    (tmp_path / "textual.py").write_text("raise ModuleNotFoundError('gone', name='textual')\n")
    live = Terminal(tmp_path, PYTHONPATH=f"{tmp_path}:{REPO / 'tools'}")

    status = live.end()
    live.close()

    *table, hint = live.seen.decode().splitlines()
    assert status == 0
    assert "CONTAINER / PROCESS" in "\n".join(table)
    assert hint == (
        "gpufence: no live screen: the package textual is not installed. "
        "Install it with `pip install textual`."
    )


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_under_tmux(tmp_path: Path) -> None:
    socket = str(tmp_path / "tmux")
    environment = {**os.environ, "PYTHONPATH": str(REPO / "tools"), "LANG": "C.UTF-8"}

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-S", socket, "-f", "/dev/null", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    def until(text: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while text not in (shown := tmux("capture-pane", "-p", "-t", "top")):
            assert time.monotonic() < end, shown
            time.sleep(0.1)

    live = f"{sys.executable} -m gpufence top --state-dir {tmp_path / 'regions'}; echo ended: $?"
    with RegionFile(tmp_path / "regions") as made:
        made.device(0)
        made.process(0, Signed())
        made.use(0, 0, held=GIB, limit=4 * GIB)
        tmux("new-session", "-d", "-s", "top", "-x", "100", "-y", "20", "sh", "-c", f"{live}; cat")
        try:
            until("web")
            until("1.0GiB    4.0GiB   25%")
            tmux("send-keys", "-t", "top", "C-c")
            until("ended: 0")
        finally:
            tmux("kill-server")
