"""What a test asks of an engine, and what lies on the machine for its containers.

Each container has one device of a CDI file that limits memory, or, where an engine knows no CDI,
the mounts and variables of that device. Must not know any engine, nor what is tested.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from . import tree
from .session import Session

REPO = Path(__file__).resolve().parents[2]
DEVICE = "gpufence.io/limit=small"
LIMIT_BYTES = 1 << 30
# The simulated GPU, which a real one needs no variable for.
SIM = "GPUFENCE_SIM_STATE=/sim/machine"
IDLE = ("/bin/sleep", "1000")
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Host:
    """What lies on the machine: the container's files, the library, the folders that are shared."""

    folder: Path
    tree: Path
    cdi: Path

    @property
    def state(self) -> Path:
        """Where containers keep their ledgers."""
        return self.folder / "state"


@dataclass(frozen=True, slots=True)
class Edits:
    """What a container gets; a mount is the machine's path, the container's, and its options."""

    variables: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


def make_host(folder: Path, build: Path, *options: str) -> Host:
    """Make it, with a device of 1 GiB; more options for `gpufence cdi generate`."""
    for name in ("state", "node", "sim"):
        (folder / name).mkdir()
        (folder / name).chmod(0o1777)
    library = folder / "lib"
    gpufence("install", str(library), "--lib", str(build / "lib" / "libgpufence.so"))
    cdi = folder / "gpufence.json"
    gpufence(
        "cdi", "generate", "--name", "small", "--memory", str(LIMIT_BYTES), *options,
        "--lib", str(library / "libgpufence.so"), "--state", str(folder / "state"),
        "--node", str(folder / "node"), "--limits", str(folder / "limits"), "--output", str(cdi),
    )  # fmt: skip
    host = Host(folder, tree.make(folder / "tree", build), cdi)
    # The simulated GPU is every user's.
    probe = {"GPUFENCE_SIM_STATE": str(folder / "sim" / "machine")}
    driver = {"LD_LIBRARY_PATH": str(build / "sim")}
    subprocess.run(
        [str(build / "tests" / "limit_probe")], env=probe | driver, capture_output=True, check=True
    )
    for file in (folder / "sim").iterdir():
        file.chmod(0o666)
    return host


def edits(host: Host) -> Edits:
    """The device's own, and the simulated GPU."""
    document = json.loads(host.cdi.read_text(encoding="utf-8"))
    parts = [document["containerEdits"], document["devices"][0]["containerEdits"]]
    mounts = [
        (mount["hostPath"], mount["containerPath"], tuple(mount["options"]))
        for part in parts
        for mount in part.get("mounts", ())
    ]
    mounts.append((f"{host.folder}/sim", "/sim", ("rw", "bind")))
    variables = [text for part in parts for text in part.get("env", ())]
    return Edits((*variables, SIM), tuple(mounts))


def gpufence(*arguments: str) -> Done:
    """The command, on the machine."""
    return subprocess.run(
        [sys.executable, "-m", "gpufence", *arguments],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(REPO / "tools")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@dataclass(slots=True)
class Engine(ABC):
    """One engine in its session. A flag is Docker's spelling of a kind of container."""

    session: Session
    host: Host

    name: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ()
    # The words of flags that it has a counterpart for; kinds of container that only it has.
    knows: ClassVar[Collection[str]] = ()
    own_flags: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def begin(self) -> None:
        """Start what it needs."""

    @abstractmethod
    def version(self) -> str:
        """As it says itself."""

    @abstractmethod
    def run(self, flag: str, uid: int, *argv: str) -> Done:
        """A program in a new container, to its end."""

    @abstractmethod
    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        """A container in which nobody uses the GPU.

        `uid` is the user of a program that is to come in by `exec`. Its own program is root's, but
        where an exec has the user of the container's program.
        """

    @abstractmethod
    def exec(self, name: str, uid: int, *argv: str) -> Done:
        """A further program in a running container."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """End a container."""

    def takes(self, flag: str) -> bool:
        """Whether it has that kind of container."""
        return flag in self.own_flags or set(self.knows).issuperset(flag.split())

    def give_device(self) -> None:
        """Put the CDI file where the engine looks for it."""
        self.session.run("sh", "-c", f"cp {shlex.quote(str(self.host.cdi))} /run/cdi/")


def wait(ready: Callable[[], bool], log: Path, patience_s: float = 40) -> None:
    """Until an engine is ready; OSError with the end of its log where it never is."""
    ends = time.monotonic() + patience_s
    while not ready():
        if time.monotonic() > ends:
            said = log.read_text(errors="replace")[-600:]
            raise OSError(f"it does not begin: {' '.join(said.split())}")
        time.sleep(0.2)
