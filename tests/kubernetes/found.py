"""What sections of ci/kubernetes share: the cluster, its GPUs, agents, and what is to be told.

Must not know any section.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufence.node.gpus import Gpu

from .cluster import Cluster
from .fenced import AGENT_FOLDER, Fenced
from .model import MIB

GPUS = tuple(
    Gpu(f"GPU-00000000-0000-0000-0000-00000000000{number}", 4096 * MIB) for number in range(8)
)
# A pod's program sees eight small GPUs, of which a context takes nothing: limits come out even.
SIMULATED = {
    "GPUFENCE_SIM_GPUS": "8",
    "GPUFENCE_SIM_MEMORY": "4g",
    "GPUFENCE_SIM_CONTEXT_BYTES": "0",
    "GPUFENCE_SIM_STREAM_BYTES": "0",
}
# As a user of each system writes it: 1 GiB, and 30 % of the time where that is counted in percent.
DIALECTS: Mapping[str, Mapping[str, int]] = {
    "hami": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1024, "nvidia.com/gpucores": 30},
    "vgpu-manager": {
        "nvidia.com/vgpu-number": 1,
        "nvidia.com/vgpu-memory": 1024,
        "nvidia.com/vgpu-cores": 30,
    },
    "volcano": {
        "volcano.sh/vgpu-number": 1,
        "volcano.sh/vgpu-memory": 1024,
        "volcano.sh/vgpu-cores": 30,
    },
    "alnair": {"alnair/vgpu-memory": 1, "alnair/vgpu-compute": 30},
    "gpufence": {"gpufence.io/gpu": 1, "gpufence.io/memory-mib": 1024, "gpufence.io/cores": 30},
}


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is done."""

    pods: int
    at_once: int
    kills: int
    calm: int
    minutes: int
    seed: int


@dataclass(slots=True)
class Found:
    """What a section leaves: whether something was not held."""

    cluster: Cluster
    library: Path
    build: Path
    amounts: Amounts
    faults: list[str] = field(default_factory=list)

    def agent(self, preset: str, **more: Any) -> Fenced:  # noqa: ANN401 - keys of a configuration
        """An agent that was never there before; it does not run yet."""
        shutil.rmtree(AGENT_FOLDER, ignore_errors=True)
        gpus = [{"uuid": gpu.uuid, "memory": str(gpu.memory_bytes)} for gpu in GPUS]
        return Fenced(self.cluster, self.library, {"preset": preset, "gpus": gpus, **more})

    def facts(self, fenced: Fenced, name: str, uid: str) -> list[dict[str, Any]]:
        """What the probe said, at each of its starts, with the moment as `at`."""
        return [
            {**json.loads(line.text), "at": line.at.timestamp()}
            for line in fenced.said(name, uid)
            if line.text.startswith("{")
        ]

    def await_facts(self, fenced: Fenced, name: str, seconds: float = 180) -> dict[str, Any]:
        """Of the last start of a pod, once there was one."""
        uid = fenced.pods()[name]["metadata"]["uid"]
        self.cluster.wait(lambda: bool(self.facts(fenced, name, uid)), f"word of {name}", seconds)
        return self.facts(fenced, name, uid)[-1]

    def skip(self, why: str) -> None:
        """Say that a section is not for this cluster, or this machine."""
        print(f"skipped: {why}", flush=True)

    def clear(self, fenced: Fenced) -> None:
        """Remove every pod, and wait until it is gone."""
        for name in fenced.pods():
            fenced.delete(name)
        self.cluster.wait(lambda: not fenced.pods(), "the end of all pods", 120)


def row(*cells: object) -> None:
    """A row of a table of Markdown."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
