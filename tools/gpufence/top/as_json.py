"""`gpufence top --json`: one look as one object, schema 1 (docs/schemas/top.json).

Bytes, nanoseconds and counts are integers; what is not known is null. Must not know the command.
"""

from __future__ import annotations

from gpufence.state.region import Activity

from .history import History
from .watch import Container, Gpu, Look, Process


def as_dict(look: Look, history: History) -> dict[str, object]:
    """The whole look; shares are over the time since the look before."""
    return {
        "schema": 1,
        "monotonic_ns": look.moment_ns,
        "gpus": [_gpu(gpu, history) for gpu in look.gpus],
        "problems": [problem.as_dict() for problem in look.problems],
    }


def _gpu(gpu: Gpu, history: History) -> dict[str, object]:
    reading = gpu.reading
    return {
        "uuid": gpu.uuid,
        "index": reading.index if reading else None,
        "name": reading.name if reading else None,
        "memory_total_bytes": reading.memory_total_bytes if reading else None,
        "memory_used_bytes": reading.memory_used_bytes if reading else None,
        "busy_ratio": reading.busy if reading else None,
        "temperature_celsius": reading.temperature if reading else None,
        "containers": [_container(gpu.uuid, container, history) for container in gpu.containers],
    }


def _container(uuid: str, container: Container, history: History) -> dict[str, object]:
    rates = history.rates(uuid, container.name)
    shares, pod = container.shares, container.pod
    return {
        "name": container.name,
        "pod": pod.name or None,
        "namespace": pod.namespace or None,
        "pod_container": pod.container or None,
        "alive": container.alive,
        "frozen": container.frozen,
        "memory_known": container.memory_known,
        "memory_limit_known": container.limit_known,
        "memory_limit_bytes": container.limit_bytes,
        "memory_used_bytes": container.used_bytes if container.memory_known else None,
        "memory_oversold": container.oversold if container.memory_known else None,
        "memory_unified_bytes": container.unified_bytes if container.memory_known else None,
        "memory_share_bytes": container.share_bytes,
        "memory_orphan_bytes": container.orphan_bytes if container.memory_known else None,
        "core_limit_known": container.shares_known,
        "core_limit_ratio": shares.hard / 100_000 if shares else None,
        "core_soft_limit_ratio": shares.soft / 100_000 if shares else None,
        "core_share_ratio": rates.share if rates else None,
        "gpu_time_ns": container.charged_ns,
        "has_turn": container.has_turn if shares else None,
        "priority": container.priority.word if container.priority is not None else None,
        **_activity(container.activity),
        "launches_wait_ratio": rates.wait if rates and container.memory_known else None,
        "launches_wait_mean_ns": rates.wait_mean_ns if rates else None,
        "processes": [_process(process) for process in container.processes],
    }


def _process(process: Process) -> dict[str, object]:
    return {
        "pid": process.pid,
        "pid_is_foreign": process.foreign,
        "user": process.user,
        "command": process.command,
        "alive": process.alive,
        "memory_used_bytes": process.used_bytes,
        "memory_unified_bytes": process.unified_bytes,
        "memory_overhead_bytes": process.overhead_bytes,
        "memory_limit_bytes": process.limit_bytes,
        **_activity(process.activity),
    }


def _activity(activity: Activity) -> dict[str, object]:
    return {
        "refusals": activity.refusals,
        "launches_held": activity.launches_held,
        "launches_held_ns": activity.held_ns,
    }
