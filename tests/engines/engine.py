"""What a test asks of an engine, and how podman, Docker and containerd do it.

Each starts containers with one CDI device that limits memory. Must not know what is tested.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from . import tree
from .session import Session

REPO = Path(__file__).resolve().parents[2]
DEVICE = "gpufence.io/limit=small"
LIMIT_BYTES = 1 << 30
_SIM = "GPUFENCE_SIM_STATE=/sim/machine"
_CONTAINERS_CONF = """\
[containers]
default_ulimits=["nofile=1024:1024","nproc=4096:4096"]
netns="none"
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="none"
"""
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
    """One engine in its session; `flags` are those of its `run` for a kind of container."""

    session: Session
    host: Host

    name: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ()

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
    def idle(self, name: str, flag: str) -> Done:
        """A container in which nobody uses the GPU."""

    @abstractmethod
    def exec(self, name: str, uid: int, *argv: str) -> Done:
        """A further program in a running container."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """End a container."""

    def lacks(self, flag: str) -> str:
        """Why it has no such flag; "" if it has."""
        return ""

    def give_device(self) -> None:
        """Put the CDI file where the engine looks for it."""
        self.session.run("sh", "-c", f"cp {shlex.quote(str(self.host.cdi))} /run/cdi/")


@dataclass(slots=True)
class _LikeDocker(Engine):
    """Those with Docker's command line."""

    base: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    image: ClassVar[str] = "localhost/demo:1"

    def _ask(self, *arguments: str | Path, source: Path | None = None) -> Done:
        return self.session.run(
            *self.base, *arguments, environment=self.environment, timeout=120, source=source
        )

    def _load(self) -> None:
        archive = self.host.folder / "tree.tar"
        subprocess.run(["tar", "-C", self.host.tree, "-cf", archive, "."], check=True)
        done = self._ask("import", "-", self.image, source=archive)
        if done.returncode != 0:
            raise OSError(f"no image: {done.stderr.strip()[-300:]}")

    def _options(self, flag: str) -> list[str]:
        sim = f"{self.host.folder}/sim:/sim"
        return ["--network=none", "--device", DEVICE, "-v", sim, "-e", _SIM, *flag.split()]

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        return self._ask("run", "--rm", "--user", str(uid), *self._options(flag), self.image, *argv)

    def idle(self, name: str, flag: str) -> Done:
        command = ("/bin/sleep", "1000")
        return self._ask("run", "-d", "--name", name, *self._options(flag), self.image, *command)

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        return self._ask("exec", "--user", str(uid), name, *argv)

    def remove(self, name: str) -> None:
        self._ask("rm", "-f", name)


@dataclass(slots=True)
class Podman(_LikeDocker):
    """As root, with runc."""

    name: ClassVar[str] = "podman"
    tools: ClassVar[tuple[str, ...]] = ("podman", "conmon", "runc")

    def begin(self) -> None:
        own = self.host.folder / "podman"
        own.mkdir()
        (own / "containers.conf").write_text(_CONTAINERS_CONF, encoding="ascii")
        (own / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.environment = {"CONTAINERS_CONF": str(own / "containers.conf")}
        self.base = ["podman", "--root", f"{own}/root", "--runroot", "/run/podman-test"]
        self.base += ["--log-level=error"]
        self.give_device()
        self._load()

    def version(self) -> str:
        return self._ask("--version").stdout.split()[-1]

    def remove(self, name: str) -> None:
        self._ask("rm", "-f", "-t", "0", name)


@dataclass(slots=True)
class Docker(_LikeDocker):
    """Its daemon without bridge and iptables, in the session's own network."""

    name: ClassVar[str] = "Docker"
    tools: ClassVar[tuple[str, ...]] = ("dockerd", "docker", "containerd", "runc")

    def begin(self) -> None:
        own = self.host.folder / "docker"
        own.mkdir()
        settings: dict[str, Any] = {
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
            "ip-forward": False,
            "data-root": f"{own}/data",
            "exec-root": "/run/docker-test",
            "pidfile": "/run/docker-test.pid",
            "hosts": ["unix:///run/docker-test.sock"],
            "features": {"cdi": True},
            "cdi-spec-dirs": ["/run/cdi"],
        }
        (own / "daemon.json").write_text(json.dumps(settings), encoding="ascii")
        self.base = ["docker", "--host", "unix:///run/docker-test.sock"]
        self.give_device()
        log = own / "log"
        self.session.start("dockerd", "--config-file", own / "daemon.json", log=log)
        _wait(lambda: self._ask("version").returncode == 0, log)
        self._load()

    def version(self) -> str:
        return self._ask("version", "--format", "{{.Server.Version}}").stdout.strip()


@dataclass(slots=True)
class Containerd(Engine):
    """By `ctr`, which takes CDI names from 2.1 on only: the device's edits are given one by one."""

    name: ClassVar[str] = "containerd"
    tools: ClassVar[tuple[str, ...]] = ("containerd", "ctr", "runc")

    def begin(self) -> None:
        own = self.host.folder / "containerd"
        own.mkdir()
        config = (
            f'version = 2\nroot = "{own}/root"\nstate = "/run/containerd-test"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            '[grpc]\naddress = "/run/containerd-test.sock"\n'
        )
        (own / "config.toml").write_text(config, encoding="ascii")
        log = own / "log"
        self.session.start("containerd", "--config", own / "config.toml", log=log)
        _wait(lambda: self._ask("version").returncode == 0, log)

    def _ask(self, *arguments: str | Path) -> Done:
        return self.session.run("ctr", "--address", "/run/containerd-test.sock", *arguments)

    def version(self) -> str:
        lines = self._ask("version").stdout.split("Server:")[-1].splitlines()
        return next(line.split()[-1] for line in lines if "Version" in line)

    def lacks(self, flag: str) -> str:
        return "no such flag" if "--ipc" in flag else ""

    def _options(self, flag: str) -> Sequence[str]:
        document = json.loads(self.host.cdi.read_text(encoding="utf-8"))
        edits = [document["containerEdits"], document["devices"][0]["containerEdits"]]
        mounts = [mount for each in edits for mount in each.get("mounts", ())]
        sim = {"hostPath": f"{self.host.folder}/sim", "containerPath": "/sim", "options": ["rw"]}
        options = ["--rootfs", "--env", _SIM]
        for each in edits:
            options += [f"--env={text}" for text in each.get("env", ())]
        for mount in [*mounts, sim]:
            places = f"src={mount['hostPath']},dst={mount['containerPath']}"
            how = ":".join(["rbind", *(o for o in mount["options"] if o != "bind")])
            options += ["--mount", f"type=bind,{places},options={how}"]
        if flag == "--pid=host":
            return [*options, "--with-ns", "pid:/proc/1/ns/pid"]
        return [*options, *flag.split()]

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        user = ("--user", str(uid)) if uid else ()
        options = self._options(flag)
        return self._ask("run", "--rm", *user, *options, self._copy(), "once", *argv)

    def idle(self, name: str, flag: str) -> Done:
        command = ("/bin/sleep", "1000")
        return self._ask("run", "-d", *self._options(flag), self._copy(), name, *command)

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        user = ("--user", str(uid)) if uid else ()
        started = f"exec-{time.monotonic_ns()}"
        return self._ask("task", "exec", "--exec-id", started, *user, name, *argv)

    def remove(self, name: str) -> None:
        self._ask("task", "kill", "--signal", "SIGKILL", name)
        self._ask("task", "delete", "--force", name)
        self._ask("container", "delete", name)

    def _copy(self) -> Path:
        """Without an image the root file system is the folder itself."""
        return self.host.tree


def _wait(ready: Any, log: Path, patience_s: float = 40) -> None:  # noqa: ANN401
    ends = time.monotonic() + patience_s
    while not ready():
        if time.monotonic() > ends:
            raise OSError(f"it does not begin: {log.read_text(errors='replace')[-600:]}")
        time.sleep(0.2)


ENGINES: Mapping[str, type[Engine]] = {
    "podman": Podman,
    "docker": Docker,
    "containerd": Containerd,
}
