"""A cluster of one node: etcd, the control plane, containerd and a kubelet, from a folder of tools.

Everything lives in the namespaces of a session (tests/engines/session.py), inside which this runs:
folders, network and kernel settings that a kubelet changes are the session's own. Must not know
the agent, nor what is tested.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import image
from .api import Api, ApiError

TOOLS = (
    "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "containerd",
    "ctr", "runc", "openssl", "ip", "mount",
)  # fmt: skip
NODE = "node"
IMAGE = "localhost/demo:1"
KUBELET = Path("/var/lib/kubelet")
_ADDRESS = "10.77.0.1"
_API = "https://127.0.0.1:6443"
_TOKEN = "of-the-tests"
# The service account of the chart's agent, with the rights that its manifests give.
_AGENT = ("of-the-agent", "system:serviceaccount:kube-system:gpufence-agent")
# Where an agent outside of any pod finds what a pod of its service account would.
_ACCOUNT = Path("/run/secrets/kubernetes.io/serviceaccount")
_CONTAINERD = "/run/containerd-test.sock"
# What a kubelet writes for the whole machine; it gets files of its own instead.
_SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
)  # fmt: skip
# A network plugin that makes no network: a pod has an address in name only.
_NO_NETWORK = """\
#!/bin/sh
version=$(sed -n 's/.*"cniVersion": *"\\([^"]*\\)".*/\\1/p' | head -n 1)
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "'"${version:-0.4.0}"'", "interfaces": [{"name": "'"$CNI_IFNAME"'",
  "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"version": "4", "interface": 0,
  "address": "10.77.1.2/24"}]}' ;;
VERSION) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}' ;;
esac
"""


class NotReadyError(Exception):
    """A part of the cluster does not begin."""


@dataclass(slots=True)
class Cluster:
    """`folder` holds everything's files and logs, `tools` the programs (else those of PATH)."""

    folder: Path
    tools: Path | None
    api: Api = field(default_factory=lambda: Api(_API, _TOKEN))
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def begin(self, tree: Path, environment: Mapping[str, str]) -> None:
        """Start all; returns when the node is ready. `tree` becomes the image of every container.

        Raises:
            NotReadyError: something does not begin.
        """
        self._place()
        self._control_plane()
        self._runtime(tree, environment)
        self.start_kubelet()
        self.wait(self.node_is_ready, "the node", 120)

    def node_is_ready(self) -> bool:
        """As the API server has it."""
        conditions = self.node()["status"].get("conditions", ())
        tainted = self.node()["spec"].get("taints", ())
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return ready and not tainted

    def node(self) -> Any:  # noqa: ANN401 - a document
        """The node's object."""
        return self.api.get(f"/api/v1/nodes/{NODE}")

    def minor(self) -> int:
        """Of the API server: 36 for 1.36."""
        return int("".join(filter(str.isdigit, self.api.get("/version")["minor"])))

    def version(self) -> str:
        """Kubelet and runtime, as the node says."""
        info = self.node()["status"]["nodeInfo"]
        return f"kubelet {info['kubeletVersion']}, {info['containerRuntimeVersion']}"

    def account(self) -> str:
        """Have a program find the API server as in the agent's pod; the server's address."""
        _ACCOUNT.mkdir(parents=True, exist_ok=True)
        (_ACCOUNT / "token").write_text(_AGENT[0])
        shutil.copy("/var/lib/apiserver/apiserver.crt", _ACCOUNT / "ca.crt")
        return f"https://{_ADDRESS}:6443"  # which its certificate names

    def run(self, tool: str, *words: str) -> str:
        """What kubectl or helm says, asked as the cluster's administrator.

        Raises:
            NotReadyError: it is not installed, or refuses.
        """
        program = shutil.which(tool, path=self.path)
        if program is None:
            raise NotReadyError(f"{tool}: not installed, nor in --tools")
        return _run(program, f"--kubeconfig={self.folder}/kubeconfig", *words)

    def start_kubelet(self) -> None:
        """Its process; another one for each call."""
        self.start(
            "kubelet",
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={self.folder}/kubeconfig",
            f"--hostname-override={NODE}",
            f"--node-ip={_ADDRESS}",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{_CONTAINERD}",
            f"--pod-infra-container-image={IMAGE}",
            "--v=2",
        )

    def stop_kubelet(self) -> None:
        """As by kill -9; containers run on."""
        process = self.running.pop("kubelet")
        process.kill()
        process.wait()

    def start(self, name: str, *arguments: str) -> None:
        """A program, with a log that grows over its starts."""
        program = shutil.which(name, path=self.path)
        assert program, name
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": self.path, "HOME": "/root"},
                cwd="/",
            )

    def log(self, name: str) -> Path:
        """What a program said."""
        return self.folder / f"{name}.log"

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return f"{self.tools}:{usual}" if self.tools else usual

    def load(self, name: str, tree: Path, environment: Mapping[str, str]) -> None:
        """Have an image of this folder in the node's runtime."""
        archive = self.folder / "image.tar"
        image.write(archive, name, tree, ("/bin/sleep", "100000"), environment)
        ctr = [str(shutil.which("ctr", path=self.path)), "--address", _CONTAINERD]
        _run(*ctr, "--namespace=k8s.io", "images", "import", str(archive))
        archive.unlink()

    def end(self) -> None:
        """Every process, the runtime's containers too: the session's first process ends them."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()

    def wait(self, ready: Callable[[], bool], what: str, seconds: float) -> None:
        """Until it is true; an API server that does not answer is not ready.

        Raises:
            NotReadyError: it is not in time, or a program has ended meanwhile.
        """
        ends = time.monotonic() + seconds
        while True:
            with suppress(ApiError, KeyError):
                if ready():
                    return
            ended = [name for name, each in self.running.items() if each.poll() is not None]
            if ended or time.monotonic() > ends:
                name = ended[0] if ended else "kubelet"
                told = self.log(name).read_text(errors="replace")[-600:] if ended else ""
                raise NotReadyError(f"{what}: {name} has ended: {told}" if ended else what)
            time.sleep(0.1)

    def _place(self) -> None:
        """Folders, network and settings."""
        for folder in ("/var/lib", "/opt"):
            _run("mount", "-t", "tmpfs", "tmpfs", folder)
        (self.folder / "log").mkdir()  # of the containers: --keep keeps them, too
        _run("mount", "--bind", str(self.folder / "log"), "/var/log")
        # Of /etc it sees what there is; what is written does not stay.
        written = [self.folder / "etc" / name for name in ("upper", "work")]
        for each in written:
            each.mkdir(parents=True)
        ways = f"lowerdir=/etc,upperdir={written[0]},workdir={written[1]}"
        _run("mount", "-t", "overlay", "-o", ways, "overlay", "/etc")
        for name in _SETTINGS:
            real = Path("/proc/sys") / name
            mine = self.folder / "settings" / name
            mine.parent.mkdir(parents=True, exist_ok=True)
            mine.write_text(real.read_text())
            _run("mount", "--bind", str(mine), str(real))
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "address", "add", f"{_ADDRESS}/32", "dev", "lo")

    def _control_plane(self) -> None:
        key, users = self.folder / "accounts.key", self.folder / "users.csv"
        _run("openssl", "genrsa", "-out", str(key), "2048")
        users.write_text(f'{_TOKEN},test,test,"system:masters"\n{",".join(_AGENT)},agent\n')
        self._write(
            "kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [
                    {"name": "c", "cluster": {"server": _API, "insecure-skip-tls-verify": True}}
                ],
                "users": [{"name": "u", "user": {"token": _TOKEN}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            },
        )
        self.start("etcd", "--data-dir=/var/lib/etcd", "--log-level=error")
        self.start(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--cert-dir=/var/lib/apiserver",
            f"--token-auth-file={users}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://localhost",
            "--service-cluster-ip-range=10.78.0.0/24",
            f"--advertise-address={_ADDRESS}",
        )
        self.wait(lambda: bool(self.api.get("/api/v1/namespaces/default")), "the API server", 120)
        common = (f"--kubeconfig={self.folder}/kubeconfig", "--leader-elect=false")
        self.start("kube-scheduler", *common)
        volumes = f"--flex-volume-plugin-dir={self.folder}/volumes"
        self.start("kube-controller-manager", *common, volumes)

    def _runtime(self, tree: Path, environment: Mapping[str, str]) -> None:
        plugins = self.folder / "cni"
        plugins.mkdir()
        for name in ("none", "loopback"):
            (plugins / name).write_text(_NO_NETWORK)
            (plugins / name).chmod(0o755)
        network = {"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "none"}]}
        self._write("cni.d/none.conflist", network)
        cri = '[plugins."io.containerd.grpc.v1.cri"'
        said = _run(str(shutil.which("containerd", path=self.path)), "--version")
        knows_cdi = tuple(map(int, said.split()[2].lstrip("v").split(".")[:2])) >= (1, 7)
        (self.folder / "containerd.toml").write_text(
            f'version = 2\nroot = "{self.folder}/containerd"\nstate = "/run/containerd-test"\n'
            f'[grpc]\naddress = "{_CONTAINERD}"\n'
            f'{cri}]\nsandbox_image = "{IMAGE}"\n'
            "restrict_oom_score_adj = true\ndisable_apparmor = true\n"
            + ("enable_cdi = true\n" if knows_cdi else "")
            + f'{cri}.cni]\nbin_dir = "{plugins}"\nconf_dir = "{self.folder}/cni.d"\n'
            f'{cri}.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
        )
        self.start("containerd", f"--config={self.folder}/containerd.toml")
        ctr = str(shutil.which("ctr", path=self.path))
        self.wait(lambda: _answers(ctr, "--address", _CONTAINERD, "version"), "containerd", 30)
        self.load(IMAGE, tree, environment)
        self._write(
            "kubelet.json",
            {
                "kind": "KubeletConfiguration",
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "cgroupDriver": "cgroupfs",
                "failSwapOn": False,
                "makeIPTablesUtilChains": False,
                "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                "authorization": {"mode": "AlwaysAllow"},
                "maxPods": 250,
                "volumePluginDir": str(self.folder / "volumes"),
                # A machine for tests is rarely empty.
                "evictionHard": {"memory.available": "1Mi"},
                "imageGCHighThresholdPercent": 100,
                "nodeStatusUpdateFrequency": "2s",
                "nodeLeaseDurationSeconds": 300,
                "registryPullQPS": 0,
                "eventRecordQPS": 0,
            },
        )

    def _write(self, name: str, document: object) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotReadyError(f"{argv[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _answers(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0
