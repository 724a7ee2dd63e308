"""The section `chart`: the chart's manifests on a real API server, and its agent in its own pod.

Must not know what is in the chart: what the cluster then does is looked at.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from . import agent_image
from .cluster import NODE
from .fenced import AGENT_FOLDER, REPO, TURNS, Fenced, pod
from .found import DIALECTS, GPUS, SIMULATED, Found, row
from .model import MIB

_CHART = REPO / "deploy" / "helm" / "gpufence"
_NAMESPACE = "kube-system"
_IMAGE = "localhost/gpufence"
_UNITS = "nvidia.com/gpu"
_OLDEST = 26  # the minor number of the oldest Kubernetes that the chart is for
# Two capabilities, DAC_OVERRIDE and FOWNER, as the manifest has it; none gained; a filter.
_MAY = "CapEff a, NoNewPrivs 1, Seccomp 2"
_VALUES = (f"image.repository={_IMAGE}", "image.pullPolicy=Never", "config.preset=hami")
# What is asked of the server without its doing it: value sets, and the oldest that has the kinds.
_DRY = {
    "privileged, annotations": (("privileged=true", "config.annotations={memory,frozen}"), 0),
    "admission": (("admission.enabled=true", "admission.defaultMemory=1000"), 36),
    "interface dra, admission": (("interface=dra", "admission.enabled=true"), 36),
}


def chart(found: Found) -> None:
    """The chart's manifests are accepted, its agent holds a pod, an upgrade leaves it alone."""
    cluster = found.cluster
    missing = [each for each in ("helm", "kubectl") if not shutil.which(each, path=cluster.path)]
    if missing:
        found.skip(f"{', '.join(missing)} not installed, nor in --tools")
        return
    row("what", "result")
    row("---", "---")
    minor = cluster.minor()
    for what, (values, since) in _DRY.items():
        if minor < since:
            row(what, f"not asked: needs Kubernetes 1.{since}")
            continue
        made = _rendered(found, *values)
        said = cluster.run("kubectl", "apply", "--dry-run=server", "-f", str(made))
        row(what, f"{len(said.splitlines())} objects accepted")
    tree = agent_image.make(cluster.folder / "agent-image", found.build)
    # Its file system is read-only: the simulated machine lies in memory.
    machine = SIMULATED | {"GPUFENCE_SIM_STATE": "/dev/shm/machine"}
    cluster.load(f"{_IMAGE}:{_version()}", tree, machine)
    shutil.rmtree(AGENT_FOLDER, ignore_errors=True)
    label = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
    cluster.api.patch(f"/api/v1/nodes/{NODE}", label)
    _install(found)
    row("installed", "by helm" if minor >= _OLDEST else "by helm, without the chart's kubeVersion")
    _hold_a_pod(found)
    for folder in (AGENT_FOLDER, TURNS):
        shutil.rmtree(folder, ignore_errors=True)


def _hold_a_pod(found: Found) -> None:
    cluster, limits = found.cluster, DIALECTS["hami"]
    cluster.wait(lambda: _ready(found, "gpufence-agent"), "the chart's agent", 180)
    may = _may()
    row("agent ready, as its pod; it may", may)
    if may != _MAY:
        found.faults.append(f"chart: its agent may {may}")
    fenced = Fenced(cluster, found.library, {})  # for the pods: this one's agent does not run
    cluster.wait(lambda: fenced.offered(_UNITS) > 0, "the agent's offer", 60)
    fenced.create(pod("train", limits))
    facts = found.await_facts(fenced, "train")
    row("a pod of 1 GiB", f"{facts['granted 0'] / MIB:.0f} MiB, then {facts['refused 0']}")
    if (facts["granted 0"], facts["refused 0"]) != (1024 * MIB, 2):
        found.faults.append(f"chart: {facts}")
    cluster.wait(lambda: _ready(found, "gpufence-metrics"), "the chart's metrics", 120)
    row("metrics ready", "2 containers")
    before = _files()
    _install(found, "config.slots=5")
    cluster.wait(lambda: fenced.offered(_UNITS) == 5 * len(GPUS), "the upgraded agent's offer", 180)
    after = _files()
    row("upgraded with another configuration", "the pod's files are as they were")
    if before != after or not before:
        found.faults.append("chart: an upgrade changed what a pod has")
    fenced.create(pod("later", limits))
    facts = found.await_facts(fenced, "later")
    row("a pod after that", f"{facts['granted 0'] / MIB:.0f} MiB, then {facts['refused 0']}")
    found.clear(fenced)
    _remove(found)


def _install(found: Found, *more: str) -> None:
    """As its users do, or change its values."""
    words = [f"--set={each}" for each in (*_VALUES, *more)]
    way = ["upgrade", "--install", "gpus", str(_chart(found)), f"--namespace={_NAMESPACE}"]
    if found.cluster.minor() < _OLDEST:  # whose schemas lack a default of a service's ports
        words.append("--server-side=false")
    found.cluster.run("helm", *way, *words)


def _remove(found: Found) -> None:
    found.cluster.run("helm", "uninstall", "gpus", f"--namespace={_NAMESPACE}")
    pods = f"/api/v1/namespaces/{_NAMESPACE}/pods"
    found.cluster.wait(lambda: not found.cluster.api.get(pods)["items"], "the agent's end", 120)


def _rendered(found: Found, *more: str) -> Path:
    """What helm makes of the chart, in a file."""
    values = [f"--set={each}" for each in (*_VALUES, *more)]
    words = ["template", "gpus", str(_chart(found)), f"--namespace={_NAMESPACE}", *values]
    path = found.cluster.folder / "chart.yaml"
    path.write_text(found.cluster.run("helm", *words))
    return path


def _chart(found: Found) -> Path:
    """The chart; for an older server, a copy that does not ask for a newer one."""
    if found.cluster.minor() >= _OLDEST:
        return _CHART
    copy = found.cluster.folder / "chart"
    if not copy.exists():
        shutil.copytree(_CHART, copy)
        about = copy / "Chart.yaml"
        text = about.read_text(encoding="utf-8")
        about.write_text(re.sub(r"(?m)^kubeVersion: .*\n", "", text), encoding="utf-8")
    return copy


def _ready(found: Found, name: str) -> bool:
    status = found.cluster.api.get(f"/apis/apps/v1/namespaces/{_NAMESPACE}/daemonsets/{name}")[
        "status"
    ]
    return bool(status.get("numberReady") == 1 and status.get("updatedNumberScheduled") == 1)


def _may() -> str:
    """What the agent's process may do, by the kernel."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if b"serve" in words and b"node" in words:
            status = path.with_name("status").read_text()
            masks = re.findall(r"^(CapEff|NoNewPrivs|Seccomp):\s*0*(\w+)$", status, re.M)
            return ", ".join(" ".join(each) for each in masks)
    return "no process"


def _files() -> list[str]:
    """What the agent wrote for containers."""
    folder = AGENT_FOLDER / "containers"
    return [f"{path}: {path.read_text()}" for path in sorted(folder.glob("*/gpufence.conf"))]


def _version() -> str:
    text = (_CHART / "Chart.yaml").read_text(encoding="utf-8")
    return re.findall(r"^appVersion: (\S+)$", text, re.M)[0]
