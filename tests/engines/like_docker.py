"""Podman, Docker and compose: engines with Docker's command line, or with its daemon.

Must not know what is tested.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gpufence.cdi import yaml_text

from .engine import DEVICE, IDLE, REPO, SIM, Done, Engine, wait

_KNOWN = (
    "--read-only", "--ipc=none", "--ipc=host", "--pid=host", "--cap-drop=ALL", "--privileged",
    "--init", "--tmpfs=/run",
)  # fmt: skip
_RESERVED = "reservations"
# NVIDIA's device of the example, which this machine has no GPU for.
_STANDS_IN = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "all", "containerEdits": {"env": ["GPU=simulated"]}}],
}
_CONTAINERS_CONF = """\
[containers]
default_ulimits=["nofile=1024:1024","nproc=4096:4096"]
netns="none"
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="none"
"""


@dataclass(slots=True)
class _LikeDocker(Engine):
    """Those with Docker's command line."""

    base: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    image: ClassVar[str] = "localhost/demo:1"
    knows: ClassVar[tuple[str, ...]] = _KNOWN

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
        return ["--network=none", "--device", DEVICE, "-v", sim, "-e", SIM, *flag.split()]

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        return self._ask("run", "--rm", "--user", str(uid), *self._options(flag), self.image, *argv)

    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        return self._ask("run", "-d", "--name", name, *self._options(flag), self.image, *IDLE)

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        return self._ask("exec", "--user", str(uid), name, *argv)

    def remove(self, name: str) -> None:
        self._ask("rm", "-f", name)


@dataclass(slots=True)
class Podman(_LikeDocker):
    """As root, with runc."""

    name: ClassVar[str] = "podman"
    tools: ClassVar[tuple[str, ...]] = ("podman", "conmon", "runc")
    running: ClassVar[str] = "/run/podman-test"
    # Users of the container are others on the machine.
    own_flags: ClassVar[tuple[str, ...]] = ("--uidmap=0:100000:65536",)

    def begin(self) -> None:
        own = self.host.folder / "podman"
        own.mkdir()
        own.chmod(0o777)
        (own / "containers.conf").write_text(_CONTAINERS_CONF, encoding="ascii")
        (own / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.environment = {"CONTAINERS_CONF": str(own / "containers.conf")}
        self.base = ["podman", "--root", f"{own}/root", "--runroot", self.running]
        self.base += ["--log-level=error"]
        self.give_device()
        self._load()

    def version(self) -> str:
        return self._ask("--version").stdout.split()[-1]

    def remove(self, name: str) -> None:
        self._ask("rm", "-f", "-t", "0", name)


@dataclass(slots=True)
class RootlessPodman(Podman):
    """As a user who is nobody on the machine but has numbers for the users of containers."""

    name: ClassVar[str] = "podman without root"
    tools: ClassVar[tuple[str, ...]] = (*Podman.tools, "newuidmap", "setpriv")
    own_flags: ClassVar[tuple[str, ...]] = ("--userns=keep-id",)
    running: ClassVar[str] = "/run/user/1000/podman-test"

    def begin(self) -> None:
        users = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/run/home:/bin/sh\n"
        self.session.show("/etc/passwd", users)
        self.session.show("/etc/group", "root:x:0:\nuser:x:1000:\n")
        for path in ("/etc/subuid", "/etc/subgid"):
            self.session.show(path, "user:100000:65536\n")
        folders = "/run/home /run/user/1000"  # /run is the session's own
        self.session.run("sh", "-c", f"mkdir -p {folders}; chown 1000:1000 {folders}")
        Podman.begin(self)

    def _ask(self, *arguments: str | Path, source: Path | None = None) -> Done:
        before = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
        homes = {"HOME": "/run/home", "XDG_RUNTIME_DIR": "/run/user/1000"}
        return self.session.run(
            *before, *self.base, *arguments,
            environment=self.environment | homes, timeout=120, source=source,
        )  # fmt: skip


@dataclass(slots=True)
class Docker(_LikeDocker):
    """Its daemon without bridge and iptables, in the session's own network."""

    more: ClassVar[dict[str, Any]] = {}

    name: ClassVar[str] = "Docker"
    tools: ClassVar[tuple[str, ...]] = ("dockerd", "docker", "containerd", "runc")

    def begin(self) -> None:
        own = self.host.folder / "docker"
        own.mkdir()
        settings = {
            **self.more,
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
        wait(lambda: self._ask("version").returncode == 0, log)
        self._load()

    def version(self) -> str:
        return self._ask("version", "--format", "{{.Server.Version}}").stdout.strip()


@dataclass(slots=True)
class DockerRemap(Docker):
    """All containers have users of their own, others on the machine."""

    name: ClassVar[str] = "Docker with userns-remap"
    more: ClassVar[dict[str, Any]] = {"userns-remap": "root"}

    def begin(self) -> None:
        for path in ("/etc/subuid", "/etc/subgid"):
            self.session.show(path, "root:100000:65536\n")
        Docker.begin(self)


@dataclass(slots=True)
class Compose(Docker):
    """Of the plugin, `docker compose`: one file for each kind of container.

    The device stands in `devices:`, which older versions take for paths only, or is reserved as in
    the example in deploy/.
    """

    example: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "compose"
    own_flags: ClassVar[tuple[str, ...]] = (_RESERVED, f"{_RESERVED} --privileged")

    _words: ClassVar[dict[str, dict[str, Any]]] = {
        "--read-only": {"read_only": True},
        "--ipc=none": {"ipc": "none"},
        "--ipc=host": {"ipc": "host"},
        "--pid=host": {"pid": "host"},
        "--cap-drop=ALL": {"cap_drop": ["ALL"]},
        "--privileged": {"privileged": True},
        "--init": {"init": True},
        "--tmpfs=/run": {"tmpfs": ["/run"]},
    }

    def begin(self) -> None:
        Docker.begin(self)
        if self._ask("compose", "version").returncode != 0:
            raise OSError("no plugin `docker compose`")
        file = self.host.folder / "nvidia.json"
        file.write_text(json.dumps(_STANDS_IN), encoding="ascii")
        self.session.run("cp", file, "/run/cdi/")
        example = (REPO / "deploy" / "compose" / "compose.yaml").read_text(encoding="utf-8")
        self.example = yaml_text.load(example)["services"]["small"]

    def version(self) -> str:
        own = self._ask("compose", "version", "--short").stdout.strip()
        return f"{own} with Docker {Docker.version(self)}"

    def _compose(self, flag: str, *arguments: str) -> Done:
        service: dict[str, Any] = {
            "image": self.image,
            "container_name": "idle",
            "command": list(IDLE),
            "network_mode": "none",
            "devices": [DEVICE],
            "volumes": [f"{self.host.folder}/sim:/sim"],
            "environment": [SIM],
        }
        for word in flag.split():
            reserved = {"devices": [], "deploy": self.example["deploy"]}
            service |= reserved if word == _RESERVED else self._words[word]
        file = self.host.folder / "compose.yaml"  # JSON is YAML
        file.write_text(json.dumps({"services": {"demo": service}}), encoding="ascii")
        return self._ask("compose", "--project-name", "demo", "--file", file, *arguments)

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        return self._compose(flag, "run", "-T", "--rm", "--user", str(uid), "demo", *argv)

    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        return self._compose(flag, "up", "-d", "demo")

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        return self._ask(
            "compose", "--project-name", "demo", "exec", "-T", "--user", str(uid), "demo", *argv
        )

    def remove(self, name: str) -> None:
        self._ask("compose", "--project-name", "demo", "down", "--timeout", "0")
