"""containerd by its own command, `ctr`, which takes names of CDI devices from 2.1 on only.

Before, the device's edits are given one by one. Must not know what is tested.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .engine import DEVICE, IDLE, SIM, Done, Engine, edits, wait


@dataclass(slots=True)
class Containerd(Engine):
    """Its daemon without CRI."""

    cdi: bool = False

    name: ClassVar[str] = "ctr of containerd"
    tools: ClassVar[tuple[str, ...]] = ("containerd", "ctr", "runc")
    knows: ClassVar[tuple[str, ...]] = ("--read-only", "--pid=host", "--privileged")

    def begin(self) -> None:
        own = self.host.folder / "containerd"
        own.mkdir()
        config = (
            f'version = 2\nroot = "{own}/root"\nstate = "/run/containerd-test"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            '[grpc]\naddress = "/run/containerd-test.sock"\n'
        )
        (own / "config.toml").write_text(config, encoding="ascii")
        self.give_device()
        log = own / "log"
        self.session.start("containerd", "--config", own / "config.toml", log=log)
        wait(lambda: self._ask("version").returncode == 0, log)
        self.cdi = self._number() >= (2, 1)

    def _ask(self, *arguments: str | Path) -> Done:
        return self.session.run("ctr", "--address", "/run/containerd-test.sock", *arguments)

    def version(self) -> str:
        return f"{self._said()} ({'CDI' if self.cdi else 'mounts and variables'})"

    def _said(self) -> str:
        lines = self._ask("version").stdout.split("Server:")[-1].splitlines()
        return next(line.split()[-1] for line in lines if "Version" in line)

    def _number(self) -> tuple[int, int]:
        match = re.match(r"v?(\d+)\.(\d+)", self._said())
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def _options(self, flag: str) -> list[str]:
        options = ["--rootfs"]
        if self.cdi:
            options += ["--device", DEVICE, f"--env={SIM}"]
            places = f"src={self.host.folder}/sim,dst=/sim"
            options += ["--mount", f"type=bind,{places},options=rbind:rw"]
        else:
            given = edits(self.host)
            options += [f"--env={text}" for text in given.variables]
            for there, here, how in given.mounts:
                words = ":".join(["rbind", *(word for word in how if word != "bind")])
                options += ["--mount", f"type=bind,src={there},dst={here},options={words}"]
        if flag == "--pid=host":
            return [*options, "--with-ns", "pid:/proc/1/ns/pid"]
        return [*options, *flag.split()]

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        user = ("--user", str(uid)) if uid else ()
        return self._ask("run", "--rm", *user, *self._options(flag), self._root(), "once", *argv)

    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        return self._ask("run", "-d", *self._options(flag), self._root(), name, *IDLE)

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        user = ("--user", str(uid)) if uid else ()
        started = f"exec-{time.monotonic_ns()}"
        return self._ask("task", "exec", "--exec-id", started, *user, name, *argv)

    def remove(self, name: str) -> None:
        self._ask("task", "kill", "--signal", "SIGKILL", name)
        self._ask("task", "delete", "--force", name)
        self._ask("container", "delete", name)

    def _root(self) -> Path:
        """Without an image the root file system is the folder itself."""
        return self.host.tree
