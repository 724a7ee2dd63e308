"""A place where an engine runs and leaves nothing behind: mounts, network and pids of its own.

Everything that is started in it ends with it. What stays outside are cgroups, which are removed.
The engine may come from another root folder (made with mmdebstrap, say). Needs root.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_CGROUPS = Path("/sys/fs/cgroup")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Shown to an engine of another root; the rest is its own.
_SHARED = ("proc", "sys", "dev", "tmp")


class Session:
    """`folder` is seen inside at the same path, and so is all that engines share with the machine.

    `root` is where the engine is installed: / or the folder of another system. `unified` hides all
    hierarchies of cgroups but that of version 2, for engines that run with no other.
    """

    def __init__(self, folder: Path, root: Path = Path("/"), *, unified: bool = False) -> None:
        """Nothing is started yet."""
        self.folder = folder
        self.root = root
        self._unified = unified
        self._first: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        self._groups: set[Path] = set()
        self._turn = _Turn()

    def __enter__(self) -> Session:
        """Start its first process, which makes the mounts."""
        self._turn.acquire()
        self._groups = _cgroups()
        kinds = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        script = f"{self._mounts()}\necho ready; exec sleep infinity"
        self._first = subprocess.Popen(
            ["unshare", *kinds, "sh", "-euc", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._first.stdout
        if self._first.stdout.readline() != b"ready\n":
            self._first.wait(10)
            self._turn.release()
            raise OSError("no namespaces for an engine")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End everything in it."""
        assert self._first
        assert self._first.stdout
        os.kill(_child_of(self._first.pid), signal.SIGKILL)  # the first inside, hence all others
        for each in (self._first, *self._started):
            each.wait(30)
        self._first.stdout.close()
        _remove(_cgroups() - self._groups)
        self._turn.release()

    def run(
        self,
        *argv: str | Path,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60,
        source: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A command in it, to its end; `source` is what it reads."""
        with (source or Path(os.devnull)).open("rb") as stdin:
            return subprocess.run(
                self.words(*argv),
                env={"PATH": _PATH, "HOME": "/root", **(environment or {})},
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )

    def start(
        self, *argv: str | Path, log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A daemon in it, which ends with it."""
        with log.open("wb") as file:
            started = subprocess.Popen(
                self.words(*argv),
                env={"PATH": _PATH, "HOME": "/root", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._started.append(started)
        return started

    def show(self, path: str, text: str) -> None:
        """A file of the engine's system with other content, in here alone, where there is one."""
        file = self.folder / f"shown-{path.rpartition('/')[2]}"
        file.write_text(text, encoding="ascii")
        self.run("sh", "-c", f"test ! -e {path} || mount --bind {file} {path}")

    def words(self, *argv: str | Path) -> list[str]:
        """The command line by which a command runs in it, for who starts it otherwise."""
        return [*self._enter(), *map(str, argv)]

    def has(self, *tools: str) -> list[str]:
        """Those of the tools that are not installed there."""
        path = ":".join(str(self.root / each.lstrip("/")) for each in _PATH.split(":"))
        return [tool for tool in tools if shutil.which(tool, path=path) is None]

    def _enter(self) -> Sequence[str]:
        assert self._first
        inside = _child_of(self._first.pid)
        ways = ["--mount", "--net", "--pid"]
        return ["nsenter", f"--target={inside}", *ways]

    def _mounts(self) -> str:
        """CDI files lie in /run/cdi, which the machine may lack; its own are not seen."""
        lines = ["mount --make-rprivate /"]
        if self.root != Path("/"):
            lines.append(f"mount --bind {self.root} {self.root}")
            lines += [f"mount --rbind /{name} {self.root}/{name}" for name in _SHARED]
        if self._unified:
            lines.append(f"mount -t cgroup2 cgroup2 {self.root}/sys/fs/cgroup")
        run = f"{self.root}/run".replace("//", "/")
        lines += [f"mount -t tmpfs -o mode=755 tmpfs {run}", f"mkdir {run}/cdi"]
        if self.root != Path("/"):
            # Not by chroot: who enters a container made there would find the machine's root.
            lines.append(f"cd {self.root}; pivot_root . .; umount -l .; cd /")
        return "\n".join(lines)


class _Turn:
    """One session at a time on a machine: engines of several would make the same cgroups."""

    def __init__(self) -> None:
        self._fd = -1

    def acquire(self) -> None:
        path = Path(tempfile.gettempdir()) / "gpufence-engines.lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        os.close(self._fd)


def _child_of(pid: int, patience_s: float = 10) -> int:
    ends = time.monotonic() + patience_s
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        if children:
            return int(children[0])
        if time.monotonic() > ends:
            raise OSError("the session's first process is gone")


def _cgroups() -> set[Path]:
    """Those below each hierarchy's root; engines make folders of their own there."""
    trees = [_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir())]
    return {path for tree in trees for path in tree.iterdir() if path.is_dir()}


def _remove(groups: set[Path], patience_s: float = 5) -> None:
    """Also where what lived in them is only just ending."""
    ends = time.monotonic() + patience_s
    while groups := {group for group in groups if group.is_dir()}:
        for group in groups:
            below = [path for path in group.rglob("*") if path.is_dir()]
            for path in sorted([group, *below], key=lambda each: -len(each.parts)):
                with suppress(OSError):
                    path.rmdir()
        if time.monotonic() > ends:
            return
        time.sleep(0.05)
