"""containerd by CRI, as a kubelet asks for containers: each in a pod of its own, with a CDI device.

Owns the field names and numbers of CRI v1 (k8s.io/cri-api), as far as the tests need them. An exec
has the user of the container's program: CRI lets nobody choose. Must not know what is tested.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import grpc
from gpufence.node import messages

from tests.kubernetes import image

from .engine import DEVICE, IDLE, SIM, Done, Engine, wait

_IMAGE = "localhost/demo:1"
_SERVICE = "runtime.v1.RuntimeService"
_POD, _CONTAINER, _NODE = 0, 1, 2  # of NamespaceMode
_EXITED = 2  # of ContainerState
_MESSAGES = """
    Int64Value value=1:int32
    NamespaceOption network=1:int32 pid=2:int32 ipc=3:int32
    Capability add_capabilities=1:*string drop_capabilities=2:*string
    PodSandboxMetadata name=1:string uid=2:string namespace=3:string
    LinuxSandboxSecurityContext namespace_options=1:NamespaceOption privileged=6:bool
    LinuxPodSandboxConfig security_context=2:LinuxSandboxSecurityContext
    PodSandboxConfig metadata=1:PodSandboxMetadata log_directory=3:string
        linux=8:LinuxPodSandboxConfig
    ContainerMetadata name=1:string
    ImageSpec image=1:string
    KeyValue key=1:string value=2:string
    Mount container_path=1:string host_path=2:string readonly=3:bool
    CDIDevice name=1:string
    LinuxContainerSecurityContext capabilities=1:Capability privileged=2:bool
        namespace_options=3:NamespaceOption run_as_user=5:Int64Value readonly_rootfs=7:bool
    LinuxContainerConfig security_context=2:LinuxContainerSecurityContext
    ContainerConfig metadata=1:ContainerMetadata image=2:ImageSpec command=3:*string
        envs=6:*KeyValue mounts=7:*Mount log_path=11:string linux=15:LinuxContainerConfig
        CDI_devices=17:*CDIDevice
    ContainerStatus state=3:int32 exit_code=7:int32
    VersionRequest version=1:string
    VersionResponse runtime_name=2:string runtime_version=3:string
    RunPodSandboxRequest config=1:PodSandboxConfig
    RunPodSandboxResponse pod_sandbox_id=1:string
    CreateContainerRequest pod_sandbox_id=1:string config=2:ContainerConfig
        sandbox_config=3:PodSandboxConfig
    CreateContainerResponse container_id=1:string
    StartContainerRequest container_id=1:string
    StartContainerResponse
    ContainerStatusRequest container_id=1:string
    ContainerStatusResponse status=1:ContainerStatus
    ExecSyncRequest container_id=1:string cmd=2:*string timeout=3:int32
    ExecSyncResponse stdout=1:string stderr=2:string exit_code=3:int32
    StopPodSandboxRequest pod_sandbox_id=1:string
    StopPodSandboxResponse
    RemovePodSandboxRequest pod_sandbox_id=1:string
    RemovePodSandboxResponse
"""
_CONFIG = """\
version = 2
root = "{own}/root"
state = "/run/containerd-test"
[grpc]
address = "{own}/sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
enable_cdi = true
cdi_spec_dirs = ["/run/cdi"]
restrict_oom_score_adj = true
disable_apparmor = true
"""


@dataclass(slots=True)
class Cri(Engine):
    """Its daemon, and pods in the session's own network."""

    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    settings: str = ""

    name: ClassVar[str] = "CRI of containerd"
    tools: ClassVar[tuple[str, ...]] = ("containerd", "ctr", "runc")
    knows: ClassVar[tuple[str, ...]] = (
        "--read-only", "--ipc=host", "--pid=host", "--cap-drop=ALL", "--privileged",
    )  # fmt: skip
    # As shareProcessNamespace of a pod.
    own_flags: ClassVar[tuple[str, ...]] = ("--pid=pod",)

    @property
    def _own(self) -> Path:
        return self.host.folder / "containerd"

    def begin(self) -> None:
        (self._own / "logs").mkdir(parents=True)
        config = _CONFIG.format(own=self._own, image=_IMAGE) + self.settings
        (self._own / "config.toml").write_text(config, encoding="ascii")
        self.give_device()
        log = self._own / "log"
        self.session.start("containerd", "--config", self._own / "config.toml", log=log)
        wait(lambda: bool(self._version()), log)
        archive = self.host.folder / "demo.tar"
        image.write(archive, _IMAGE, self.host.tree, IDLE, {})
        ctr = ("ctr", "--address", f"{self._own}/sock", "--namespace", "k8s.io")
        done = self.session.run(*ctr, "images", "import", archive, timeout=120)
        if done.returncode != 0:
            raise OSError(f"no image: {done.stderr.strip()[-300:]}")

    def version(self) -> str:
        return self._version()

    def _version(self) -> str:
        """Of containerd; "" before it listens."""
        try:
            said = self._call("Version", version="v1")
        except OSError:
            return ""
        return str(said.runtime_version).lstrip("v")

    def run(self, flag: str, uid: int, *argv: str) -> Done:
        started = self._start("once", flag, uid, argv)
        if started.returncode != 0:
            return started
        try:
            return self._outcome("once", argv)
        finally:
            self.remove("once")

    def idle(self, name: str, flag: str, uid: int = 0) -> Done:
        return self._start(name, flag, uid, IDLE)

    def exec(self, name: str, uid: int, *argv: str) -> Done:
        _, container = self.pods[name]
        try:
            done = self._call("ExecSync", container_id=container, cmd=argv, timeout=60)
        except OSError as error:
            return Done(argv, 1, "", str(error))
        return Done(argv, done.exit_code, done.stdout, done.stderr)

    def remove(self, name: str) -> None:
        pod, _ = self.pods.pop(name, ("", ""))
        if pod:
            self._call("StopPodSandbox", pod_sandbox_id=pod)
            self._call("RemovePodSandbox", pod_sandbox_id=pod)

    def _start(self, name: str, flag: str, uid: int, argv: tuple[str, ...]) -> Done:
        """A pod with one container; `remove` ends it, also where it did not come to a start."""
        try:
            config = _pod(name, flag, self._own / "logs")
            pod = self._call("RunPodSandbox", config=config).pod_sandbox_id
            self.pods[name] = (pod, "")
            container = self._call(
                "CreateContainer",
                pod_sandbox_id=pod,
                config=self._container(name, flag, uid, argv),
                sandbox_config=config,
            ).container_id
            self.pods[name] = (pod, container)
            self._call("StartContainer", container_id=container)
        except OSError as error:
            return Done(argv, 1, "", str(error))
        return Done(argv, 0, "", "")

    def _container(self, name: str, flag: str, uid: int, argv: tuple[str, ...]) -> dict[str, Any]:
        key, _, value = SIM.partition("=")
        words = flag.split()
        security = {
            "namespace_options": _namespaces(flag),
            "run_as_user": {"value": uid},
            "readonly_rootfs": "--read-only" in words,
            "privileged": "--privileged" in words,
        }
        if "--cap-drop=ALL" in words:
            security["capabilities"] = {"drop_capabilities": ["ALL"]}
        return {
            "metadata": {"name": name},
            "image": {"image": _IMAGE},
            "command": argv,
            "envs": [{"key": key, "value": value}],
            "mounts": [{"container_path": "/sim", "host_path": f"{self.host.folder}/sim"}],
            "log_path": f"{name}.log",
            "linux": {"security_context": security},
            "CDI_devices": [{"name": name} for name in self._devices()],
        }

    def _devices(self) -> list[str]:
        return [DEVICE]

    def _outcome(self, name: str, argv: tuple[str, ...], patience_s: float = 60) -> Done:
        _, container = self.pods[name]
        ends = time.monotonic() + patience_s
        while (status := self._status(container)).state != _EXITED and time.monotonic() < ends:
            time.sleep(0.05)
        log = self._own / "logs" / f"{name}.log"
        said: dict[str, str] = {"stdout": "", "stderr": ""}
        # Each line: its time, where it was written to, F for a whole line, the text.
        for line in log.read_text(encoding="utf-8").splitlines():
            _, stream, _, text = line.split(" ", 3)
            said[stream] += f"{text}\n"
        log.unlink()
        return Done(argv, status.exit_code, said["stdout"], said["stderr"])

    def _status(self, container: str) -> Any:  # noqa: ANN401 - messages are untyped
        return self._call("ContainerStatus", container_id=container).status

    def _call(self, method: str, **fields: Any) -> Any:  # noqa: ANN401 - messages are untyped
        """Its answer; OSError with the reason where there is none."""
        known = messages.described("runtime.v1", _MESSAGES)
        with grpc.insecure_channel(f"unix:{self._own}/sock") as channel:
            ask = channel.unary_unary(
                f"/{_SERVICE}/{method}",
                request_serializer=known[f"{method}Request"].SerializeToString,
                response_deserializer=known[f"{method}Response"].FromString,
            )
            try:
                return ask(known[f"{method}Request"](**fields), timeout=90)
            except grpc.RpcError as error:
                raise OSError(f"{method}: {error.details()}") from None


def _pod(name: str, flag: str, logs: Path) -> dict[str, Any]:
    security = {"namespace_options": _namespaces(flag), "privileged": "--privileged" in flag}
    return {
        "metadata": {"name": name, "uid": f"{name}-{time.monotonic_ns()}", "namespace": "default"},
        "log_directory": str(logs),
        "linux": {"security_context": security},
    }


def _namespaces(flag: str) -> dict[str, int]:
    """Never a network of the pod's own, which plugins would have to make."""
    words = flag.split()
    pid = _NODE if "--pid=host" in words else _POD if "--pid=pod" in words else _CONTAINER
    return {"network": _NODE, "pid": pid, "ipc": _NODE if "--ipc=host" in words else _POD}
