"""Which names a container's processes and its engine have for it, beside that of its files.

Must not know what commands do with a name. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from gpufence.errors import ToolError
from gpufence.machine.people import People, Pod
from gpufence.state import region
from gpufence.state.shared_file import Life

from . import lifetimes


def names(
    container: str, region_path: Path | None, people: People, living: lifetimes.Living
) -> Pod:
    """Of one that has a living process, as far as this user may look; else nothing.

    Args:
        container: what its files are called.
        region_path: None where no program of it has used a GPU.
        people: who finds its processes.
        living: the same, where none of them has a place in the region.
    """
    for pid in _processes(container, region_path, people, living):
        found = people.pod_of(pid)
        if found != Pod():
            return found
    return Pod()


def _processes(
    container: str, region_path: Path | None, people: People, living: lifetimes.Living
) -> list[int]:
    found: list[int | None] = []
    if region_path is not None:
        try:
            owners = region.read(region_path).owners
        except ToolError:
            owners = ()
        found = [people.look_up(each).pid for each in owners if each.life is Life.ALIVE]
    found.append(living.process_of(container))
    return [pid for pid in found if pid is not None]


def label(pod: Pod) -> str:
    """The names in one word, "" where there are none."""
    return "/".join(part for part in (pod.namespace, pod.name, pod.container) if part)


def shown(container: str, pod: Pod) -> str:
    """What people see and may write: the pod's name, an engine's where nobody named it, else its.

    Args:
        container: what its files are called.
        pod: as `names` tells.
    """
    nameless = lifetimes.parse(container) is not None
    return (label(pod) if pod.name or nameless else "") or container


def means(pod: Pod, wanted: str) -> bool:
    """Whether somebody who writes `wanted` means this container."""
    parts = (pod.namespace, pod.name, pod.container)
    whole = {"/".join(part for part in parts[start:] if part) for start in range(3)}
    if pod.name:
        whole |= {pod.name, f"{pod.namespace}/{pod.name}"}
    return bool(wanted) and wanted in whole
