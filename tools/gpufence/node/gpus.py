"""The GPUs that an agent gives out: what NVML shows, or a list.

Must not know who has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufence.errors import ExitCode, ToolError
from gpufence.machine.gpus import Nvml


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; all of its memory can be given out."""

    uuid: str
    memory_bytes: int


def of_machine() -> tuple[Gpu, ...]:
    """Every GPU that NVML shows, in its order.

    Raises:
        ToolError: exit 3, when there is no driver or no GPU, or one does not tell its size.
    """
    nvml = Nvml.open()
    readings = nvml.read() if nvml else ()
    if not readings:
        raise ToolError(
            what="no GPU to give out",
            why="NVML shows none" if nvml else "there is no NVML, or no driver behind it",
            fix="Run the agent where `nvidia-smi -L` lists the node's GPUs",
            status=ExitCode.NO_DRIVER,
        )
    found = []
    for each in readings:
        if not each.memory_total_bytes:
            raise ToolError(
                what=f"GPU {each.uuid} refused",
                why="NVML does not report how much memory it has",
                fix="Name the GPUs and their memory in the configuration, as `gpus`",
                status=ExitCode.NO_DRIVER,
            )
        found.append(Gpu(each.uuid, each.memory_total_bytes))
    return tuple(found)
