"""The gpufence command as a process of its own, and a file that passes for the library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from . import warm_commands

REPO = Path(__file__).resolve().parents[2]
MACHINE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]


def gpufence(
    *arguments: str | Path, text: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as its own process, with nothing inherited but PATH."""
    done = warm_commands.run(
        "gpufence", arguments, {**warm_commands.BARE, **env}, text=text.encode()
    )
    said = (stream.decode() for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *said)


def bare(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command where Python has its standard library only."""
    return _started(("-S",), arguments, env)


def cold(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an interpreter that starts for it, with all packages."""
    return _started((), arguments, env)


def _started(
    options: tuple[str, ...], arguments: tuple[str | Path, ...], env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-m", "gpufence", *arguments],
        env={**warm_commands.BARE, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=warm_commands.SECONDS,
    )


def header(bits: int = 2, machine: int = MACHINE) -> bytes:
    """The first bytes of an ELF shared object, and our library's own soname."""
    start = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    return start + (3).to_bytes(2, "little") + machine.to_bytes(2, "little") + b"\0libgpufence.so\0"
