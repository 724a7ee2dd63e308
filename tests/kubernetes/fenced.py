"""An agent on the cluster's node, and pods that use its GPUs: what each of them was held to.

Must not know which pods, nor in which order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from .cluster import IMAGE, Cluster

REPO = Path(__file__).resolve().parents[2]
AGENT_FOLDER = Path("/var/lib/gpufence/node")
TURNS = Path("/run/gpufence-node")
_PODS = "/api/v1/namespaces/default/pods"
PROBE = "/bin/limit_probe; exec /bin/sleep 100000"


def pod(
    name: str, limits: Mapping[str, int], command: str = PROBE, restart: str = "Never"
) -> dict[str, Any]:
    """A pod of one container, as its user would write it."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["/bin/sh", "-c", command],
        "resources": {"limits": {key: str(count) for key, count in limits.items()}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }


@dataclass(frozen=True, slots=True)
class Said:
    """A line that a container wrote, and when."""

    at: datetime
    text: str


@dataclass(slots=True)
class Fenced:
    """The agent's process and configuration; pods by the API server."""

    cluster: Cluster
    library: Path
    config: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None)
    said_before: int = 0

    def start_agent(self) -> None:
        """Start it and wait for nothing."""
        TURNS.mkdir(exist_ok=True)
        TURNS.chmod(0o1777)
        path = self.cluster.folder / "node.json"
        path.write_text(json.dumps(self.config))
        log_file = self.cluster.log("agent")
        self.said_before = log_file.stat().st_size if log_file.exists() else 0
        words = [sys.executable, "-m", "gpufence", "node", "serve", f"--config={path}"]
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*words, f"--lib={self.library}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
            )

    def end_agent(self, number: signal.Signals = signal.SIGTERM) -> int:
        """By a signal; its exit status."""
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(30)

    def offered(self, resource: str) -> int:
        """How much of a resource the node has, as the API server knows."""
        return int(self.cluster.node()["status"]["allocatable"].get(resource, 0))

    def await_offer(self, resources: Mapping[str, int], seconds: float = 60) -> None:
        """Until pods that ask for so much can be scheduled.

        The node's object may still tell what an agent before this one had registered.
        """
        log = self.cluster.log("agent")
        self.cluster.wait(
            lambda: (
                b"registered" in log.read_bytes()[self.said_before :]
                and all(self.offered(name) >= count for name, count in resources.items())
            ),
            f"an offer of {', '.join(resources)}",
            seconds,
        )

    def create(self, made: dict[str, Any]) -> None:
        """Ask for a pod."""
        self.cluster.api.create(_PODS, made)

    def delete(self, name: str) -> None:
        """Have a pod removed."""
        self.cluster.api.delete(f"{_PODS}/{name}")

    def annotate(self, name: str, said: Mapping[str, str | None]) -> None:
        """Have a pod say more; None takes a word back."""
        self.cluster.api.patch(f"{_PODS}/{name}", {"metadata": {"annotations": dict(said)}})

    def pods(self) -> dict[str, Any]:
        """Every pod by its name."""
        found = self.cluster.api.get(_PODS)["items"]
        return {each["metadata"]["name"]: each for each in found}

    def said(self, name: str, uid: str) -> list[Said]:
        """What a pod's container wrote to its log, over all of its starts."""
        folder = Path(f"/var/log/pods/default_{name}_{uid}/main")
        lines: list[Said] = []
        for path in sorted(folder.glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                moment, _, rest = line.partition(" ")
                lines.append(Said(moment_of(moment), rest.split(" ", 2)[-1]))
        return lines


def moment_of(text: str) -> datetime:
    """A moment of a container's log: as many digits of a second as there are to say, up to nine."""
    whole, _, digits = text.rstrip("Z").partition(".")
    at = datetime.fromisoformat(f"{whole}+00:00")
    return at.replace(microsecond=int(digits[:6].ljust(6, "0")))
