"""LXC and systemd-nspawn, which know no CDI: with the examples in deploy/, as users have them.

Both run a single program, and also boot a whole system: then the program is a service of its
systemd. Must not know what is tested.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import ClassVar

from . import booted
from .engine import IDLE, REPO, SIM, Done, Engine

BOOT = "boot"
_ID = "0123456789abcdef0123456789abcdef\n"
# Without machined nspawn's containers would share a cgroup, and what a systemd left in it.
_IN_A_CGROUP = """
for tree in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
  if test -w $tree/cgroup.procs; then
    mkdir -p $tree/gpufence-$$
    echo $$ >$tree/gpufence-$$/cgroup.procs
  fi
done
exec "$@"
"""


@dataclass(slots=True)
class _WithoutCdi(Engine):
    """Boots in a root of its own."""

    system: Path = field(default_factory=Path)

    example: ClassVar[str] = ""

    def begin(self) -> None:
        self.system = booted.make(self.session, self.host)

    def _example(self) -> str:
        """It, with what lies on this machine in the place of what lies on its reader's."""
        own = self.host.folder
        places = {
            "/opt/gpufence/libgpufence.so": f"{own}/lib/libgpufence.so",
            "/opt/gpufence/ld.so.preload": f"{own}/lib/ld.so.preload",
            "/etc/gpufence/small.conf": f"{own}/limits/gpufence.io/limit/small.conf",
            "/run/gpufence": f"{own}/state",
            "/run/gpufence-node": f"{own}/node",
        }
        text = (REPO / "deploy" / self.example).read_text(encoding="ascii")
        for there, here in places.items():
            # A place on the machine follows a `=`, the container's a blank or a colon.
            text, count = re.subn(rf"(?<==)( ?){re.escape(there)}(?![-\w])", rf"\g<1>{here}", text)
            if count == 0:
                raise OSError(f"deploy/{self.example} lacks {there}")
        return text

    def _root(self, flag: str) -> Path:
        return self.system if flag.startswith(BOOT) else self.host.tree


@dataclass(slots=True)
class Nspawn(_WithoutCdi):
    """An exec is `nsenter`: `machinectl shell` asks the container's systemd, as its services do."""

    started: dict[str, tuple[Popen[bytes], int]] = field(default_factory=dict)

    name: ClassVar[str] = "systemd-nspawn"
    example: ClassVar[str] = "nspawn/gpufence.nspawn"
    tools: ClassVar[tuple[str, ...]] = ("systemd-nspawn", "nsenter")
    knows: ClassVar[tuple[str, ...]] = ("--read-only", "--cap-drop=ALL")
    own_flags: ClassVar[tuple[str, ...]] = (
        "--private-users=pick",
        BOOT,
        f"{BOOT} --private-users=pick",
    )

    def begin(self) -> None:
        _WithoutCdi.begin(self)
        # That of a system that was never booted is empty, and nspawn asks for it.
        self.session.show("/etc/machine-id", _ID)
        settings = self.host.folder / "demo.nspawn"
        settings.write_text(
            f"{self._example()}Bind={self.host.folder}/sim:/sim\n", encoding="ascii"
        )
        folder = "/run/systemd/nspawn"  # /run is the session's own
        self.session.run("sh", "-c", f"mkdir -p {folder}; cp {settings} {folder}/")

    def version(self) -> str:
        return self.session.run("systemd-nspawn", "--version").stdout.split()[1]

    def _words(self, flag: str) -> list[str]:
        words = ["sh", "-euc", _IN_A_CGROUP, "sh"]
        words += ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network"]
        words += ["--machine=demo", f"--directory={self._root(flag)}"]
        words.append(f"--setenv={SIM}")
        for word in flag.split():
            if word == BOOT:
                words.append("--boot")
            else:
                words.append({"--cap-drop=ALL": "--drop-capability=all"}.get(word, word))
        return words

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        if flag.startswith(BOOT):
            booted.choose(self.session, self.host, uid)
            return booted.outcome(self.host, self.session.run(*self._words(flag), timeout=120))
        user = ("--user=user",) if uid else ()
        return self.session.run(*self._words(flag), *user, "--pipe", *argv)

    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        words, first = self._words(flag), "systemd"
        if flag.startswith(BOOT):
            booted.choose(self.session, self.host, None)
        else:
            words, first = [*words, *IDLE], "sleep"
        log = self.host.folder / "log"
        started = self.session.start(*words, log=log)
        leader = _leader(started, first)
        if not leader or (first == "systemd" and not booted.wait(self.host)):
            return Done(words, 1, "", log.read_text(errors="replace") or "it does not begin")
        self.started[name] = (started, leader)
        return Done(words, 0, "", "")

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        user = ("--setuid", str(uid), "--setgid", str(uid))
        target = f"--target={self.started[name][1]}"
        return self.session.run("nsenter", target, "--all", *user, "/bin/env", SIM, *argv)

    def remove(self, name: str) -> None:
        if name in self.started:
            started, leader = self.started.pop(name)
            self.session.run("sh", "-c", f"kill -KILL {leader}")
            started.wait(30)  # until then its folder is taken


@dataclass(slots=True)
class Lxc(_WithoutCdi):
    """As root; `lxc-execute` runs one program, `lxc-start` boots, `lxc-attach` comes in."""

    owners: dict[Path, int] = field(default_factory=dict)

    name: ClassVar[str] = "LXC"
    example: ClassVar[str] = "lxc/gpufence.conf"
    tools: ClassVar[tuple[str, ...]] = ("lxc-execute", "lxc-start", "lxc-attach", "lxc-stop")
    knows: ClassVar[tuple[str, ...]] = (
        "--read-only", "--ipc=host", "--pid=host", "--cap-drop=ALL",
    )  # fmt: skip
    # Users of the container are others on the machine.
    own_flags: ClassVar[tuple[str, ...]] = ("lxc.idmap", BOOT, f"{BOOT} lxc.idmap")

    _lines: ClassVar[dict[str, tuple[str, ...]]] = {
        "--read-only": ("lxc.rootfs.options = ro",),
        "--ipc=host": ("lxc.namespace.keep = user ipc",),
        "--pid=host": ("lxc.namespace.keep = user pid",),
        "--cap-drop=ALL": ("lxc.cap.keep = none",),
        "lxc.idmap": (
            "lxc.idmap = u 0 100000 65536",
            "lxc.idmap = g 0 100000 65536",
        ),
        BOOT: (f"lxc.init.cmd = {booted.INIT}",),
    }

    def begin(self) -> None:
        _WithoutCdi.begin(self)
        for path in ("/etc/subuid", "/etc/subgid"):
            self.session.show(path, "root:100000:65536\n")

    def version(self) -> str:
        return self.session.run("lxc-start", "--version").stdout.strip()

    def _lxc(self, command: str, name: str, *arguments: str) -> Done:
        place = self.host.folder / "lxc"
        return self.session.run(command, "-P", place, "-n", name, *arguments, timeout=120)

    def _own(self, root: Path, first: int) -> None:
        """Give a root file system to the container's root."""
        if self.owners.get(root, 0) != first:
            self.session.run("chown", "-hR", f"{first}:{first}", root, timeout=300)
            self.owners[root] = first

    def _configure(self, name: str, flag: str) -> None:
        self._own(self._root(flag), 100_000 if "lxc.idmap" in flag else 0)
        lines = [
            f"lxc.uts.name = {name}",
            f"lxc.rootfs.path = dir:{self._root(flag)}",
            "lxc.net.0.type = empty",
            "lxc.mount.auto = proc:mixed sys:ro cgroup:mixed",
        ]
        for word in flag.split():
            lines += self._lines[word]
        lines.append(f"lxc.environment = {SIM}")
        lines.append(f"lxc.mount.entry = {self.host.folder}/sim sim none bind,create=dir 0 0")
        lines.append(self._example())
        own = self.host.folder / "lxc" / name
        own.mkdir(parents=True, exist_ok=True)
        (own / "config").write_text("\n".join([*lines, ""]), encoding="ascii")

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        self._configure("once", flag)
        if flag.startswith(BOOT):
            booted.choose(self.session, self.host, uid)
            return booted.outcome(self.host, self._lxc("lxc-start", "once", "-F"))
        return self._lxc("lxc-execute", "once", f"--uid={uid}", f"--gid={uid}", "--", *argv)

    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        self._configure(name, flag)
        if not flag.startswith(BOOT):
            return self._lxc("lxc-start", name, "-d", "--", *IDLE)
        booted.choose(self.session, self.host, None)
        done = self._lxc("lxc-start", name, "-d")
        if done.returncode == 0 and not booted.wait(self.host):
            return Done(done.args, 1, "", "its boot does not end")
        return done

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        return self._lxc("lxc-attach", name, f"--uid={uid}", f"--gid={uid}", "--", *argv)

    def remove(self, name: str) -> None:
        self._lxc("lxc-stop", name, "-k")


def _leader(started: Popen[bytes], first: str, patience_s: float = 30) -> int:
    """The number in the session of the container's process 1, once it is `first`; else 0."""
    ends = time.monotonic() + patience_s
    while time.monotonic() < ends and started.poll() is None:
        for pid in _below(started.pid):
            try:
                numbers = _numbers(Path(f"/proc/{pid}"))
                command = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue
            if len(numbers) > 1 and numbers[-1] == 1 and command == first:
                return numbers[-2]
        time.sleep(0.05)
    return 0


def _below(pid: int) -> Iterator[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return
    for child in map(int, text.split()):
        yield child
        yield from _below(child)


def _numbers(process: Path) -> list[int]:
    status = (process / "status").read_text(encoding="utf-8")
    return [int(word) for word in status.partition("\nNSpid:")[2].partition("\n")[0].split()]
