"""Looks as metrics in Prometheus's text format: our own names, and those of HAMi and Alnair.

Base units (bytes, seconds, ratios), labels as dcgm-exporter has them. Owns names and labels, and
asks prometheus_client for the format; must not know who asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpufence import packages
from gpufence.top.history import History
from gpufence.top.watch import Container, Gpu, Look

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name; `kind` is gauge or counter."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class _Registry:
    """What prometheus_client asks for a collection; nothing but what was given is in it."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        """As a Collector of prometheus_client does."""
        return self.metrics


def require() -> None:
    """Say at once that the format cannot be written.

    Raises:
        ToolError: exit 1, without the package that does.
    """
    with packages.needed("prometheus-client", "no metrics"):
        import prometheus_client  # noqa: F401


def text(families: Iterable[Family]) -> str:
    """The format's version 0.0.4; families without a sample are left out.

    Raises:
        ToolError: exit 1, without the package that writes it.
    """
    with packages.needed("prometheus-client", "no metrics"):
        from prometheus_client import Metric, generate_latest

    metrics = []
    for family in families:
        if family.samples:
            metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for labels, value in family.samples:
                metric.add_sample(family.name, dict(labels), value)
            metrics.append(metric)
    return generate_latest(_Registry(tuple(metrics))).decode()


# ---- what there is to tell ----


@dataclass(frozen=True, slots=True)
class _Place:
    """A container on a GPU, and its share of GPU time since the look before (None: not known)."""

    gpu: Gpu
    container: Container
    share: float | None


def _places(look: Look, history: History) -> list[_Place]:
    places = []
    for gpu in look.gpus:
        for container in gpu.containers:
            rates = history.rates(gpu.uuid, container.name)
            places.append(_Place(gpu, container, rates.share if rates else None))
    return places


Of = Callable[[_Place], float | None]
OfGpu = Callable[[Gpu], float | None]


def _samples(items: Iterable, labels: Callable, of: Callable) -> tuple[Sample, ...]:  # type: ignore[type-arg]
    values = ((labels(item), of(item)) for item in items)
    return tuple((names, value) for names, value in values if value is not None)


def _merged(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """One sample for each set of labels: several regions may be of one container of a pod."""
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in samples:
        key = tuple(labels.items())
        sums[key] = sums.get(key, 0) + value
    return tuple((dict(key), value) for key, value in sums.items())


# ---- our own names ----


def own(look: Look, history: History) -> Iterator[Family]:
    """gpufence_*: everything."""
    places = _places(look, history)
    for name, kind, meaning, of in _OWN:
        yield Family(f"gpufence_{name}", kind, meaning, _samples(places, _own_labels, of))
    for name, meaning, of_gpu in _OWN_GPU:
        yield Family(
            f"gpufence_gpu_{name}", "gauge", meaning, _samples(look.gpus, _gpu_labels, of_gpu)
        )
    unreadable: Sample = ({}, len(look.problems))
    yield Family("gpufence_unreadable_files", "gauge", "Files that hide containers.", (unreadable,))


def _memory(of: Callable[[Container], float | None]) -> Of:
    return lambda place: of(place.container) if place.container.memory_known else None


def _of(of: Callable[[Container], float | None]) -> Of:
    return lambda place: of(place.container)


def _ratio(thousandths: int) -> float:
    return thousandths / 100_000


_OWN: tuple[tuple[str, str, str, Of], ...] = (
    ("memory_limit_known", "gauge", "0 where nobody can tell whether a memory limit holds, else 1.",
     _of(lambda c: int(c.limit_known))),
    ("memory_limit_bytes", "gauge", "Memory limit; absent without one.",
     _memory(lambda c: c.limit_bytes)),
    ("memory_used_bytes", "gauge", "Memory that counts against the limit.",
     _memory(lambda c: c.used_bytes)),
    ("memory_unified_bytes", "gauge", "The part of it on the host; absent where not oversold.",
     _memory(lambda c: c.unified_bytes if c.oversold else None)),
    ("memory_orphan_bytes", "gauge", "The part of it that no living process is charged for.",
     _memory(lambda c: c.orphan_bytes)),
    ("memory_refusals_total", "counter", "Requests for memory that the limit refused.",
     _memory(lambda c: c.activity.refusals)),
    ("core_limit_known", "gauge", "0 where nobody can tell whether a core limit holds, else 1.",
     _of(lambda c: int(c.shares_known))),
    ("core_limit_ratio", "gauge", "Share of GPU time allowed; absent without a limit.",
     _of(lambda c: _ratio(c.shares.hard) if c.shares else None)),
    ("core_soft_limit_ratio", "gauge", "Share allowed while nobody else wants the GPU.",
     _of(lambda c: _ratio(c.shares.soft) if c.shares else None)),
    ("gpu_time_seconds_total", "counter", "GPU time charged; absent without a core limit.",
     _of(lambda c: c.charged_ns / 1e9 if c.charged_ns is not None else None)),
    ("launches_held_total", "counter", "Launches that had to wait.",
     _memory(lambda c: c.activity.launches_held)),
    ("launches_held_seconds_total", "counter", "Time that launches waited, all together.",
     _memory(lambda c: c.activity.held_ns / 1e9)),
    ("processes", "gauge", "Living processes on the GPU.",
     _of(lambda c: sum(process.alive for process in c.processes))),
)  # fmt: skip

_OWN_GPU: tuple[tuple[str, str, OfGpu], ...] = (
    ("memory_total_bytes", "Memory of the GPU.",
     lambda gpu: gpu.reading.memory_total_bytes if gpu.reading else None),
    ("memory_used_bytes", "Memory in use, by whomever.",
     lambda gpu: gpu.reading.memory_used_bytes if gpu.reading else None),
    ("busy_ratio", "Part of NVML's last sample in which a kernel ran.",
     lambda gpu: gpu.reading.busy if gpu.reading else None),
    ("temperature_celsius", "Temperature of the GPU.",
     lambda gpu: gpu.reading.temperature if gpu.reading else None),
)  # fmt: skip


def _gpu_labels(gpu: Gpu) -> dict[str, str]:
    reading = gpu.reading
    index, name = (str(reading.index), reading.name or "") if reading else ("", "")
    return {"gpu": index, "UUID": gpu.uuid, "modelName": name}


def _own_labels(place: _Place) -> dict[str, str]:
    pod = place.container.pod
    names = {"namespace": pod.namespace, "pod": pod.name, "container": pod.container}
    return {**_gpu_labels(place.gpu), **names, "region": place.container.name}


# ---- HAMi's names ----


def hami(look: Look, history: History) -> Iterator[Family]:
    """hami_*, as its monitor has them since 2.10; utilization is 0 to 100 there."""
    yield from _hami(look, history, _HAMI, _hami_labels, _hami_gpu_labels)


def hami_legacy(look: Look, history: History) -> Iterator[Family]:
    """The names of HAMi's monitor before 2.10."""
    yield from _hami(look, history, _HAMI_LEGACY, _legacy_labels, _legacy_gpu_labels)


def _hami(
    look: Look,
    history: History,
    names: Mapping[str, str],
    labels: Callable[[_Place], Labels],
    gpu_labels: Callable[[Gpu], Labels],
) -> Iterator[Family]:
    places = _places(look, history)
    for key, meaning, of in _HAMI_OF:
        if key in names:
            samples = _merged(_samples(places, labels, of))
            yield Family(names[key], "gauge", meaning, samples)
    for key, meaning, of_gpu in _HAMI_OF_GPU:
        yield Family(names[key], "gauge", meaning, _samples(look.gpus, gpu_labels, of_gpu))


def _overhead(container: Container) -> int:
    return sum(process.overhead_bytes or 0 for process in container.processes if process.alive)


_HAMI_OF: tuple[tuple[str, str, Of], ...] = (
    ("used", "vGPU device memory usage in bytes", _memory(lambda c: c.used_bytes)),
    ("limit", "vGPU device memory limit in bytes", _memory(lambda c: c.limit_bytes)),
    ("context", "vGPU device memory of contexts in bytes", _memory(_overhead)),
    ("module", "always 0, as there", _memory(lambda c: 0)),
    ("buffer", "vGPU device memory of buffers in bytes",
     _memory(lambda c: max(0, c.used_bytes - _overhead(c)))),
    ("device", "Container device memory in bytes", _memory(lambda c: c.used_bytes)),
    ("busy", "Container device utilization, 0 to 100",
     lambda place: place.share * 100 if place.share is not None else None),
)  # fmt: skip
_HAMI_OF_GPU: tuple[tuple[str, str, OfGpu], ...] = (
    ("host_used", "GPU device memory usage in bytes",
     lambda gpu: gpu.reading.memory_used_bytes if gpu.reading else None),
    ("host_busy", "GPU core utilization, 0 to 100",
     lambda gpu: gpu.reading.busy * 100 if gpu.reading and gpu.reading.busy is not None else None),
)  # fmt: skip
_HAMI = {
    "used": "hami_vgpu_memory_used_bytes",
    "limit": "hami_vgpu_memory_limit_bytes",
    "context": "hami_vgpu_memory_context_bytes",
    "module": "hami_vgpu_memory_module_bytes",
    "buffer": "hami_vgpu_memory_buffer_bytes",
    "device": "hami_container_device_memory_bytes",
    "busy": "hami_container_device_utilization_ratio",
    "host_used": "hami_host_gpu_memory_used_bytes",
    "host_busy": "hami_host_gpu_utilization_ratio",
}
_HAMI_LEGACY = {
    "used": "vGPU_device_memory_usage_in_bytes",
    "limit": "vGPU_device_memory_limit_in_bytes",
    "busy": "Device_utilization_desc_of_container",
    "host_used": "HostGPUMemoryUsage",
    "host_busy": "HostCoreUtilization",
}


def _index(gpu: Gpu) -> str:
    return str(gpu.reading.index) if gpu.reading else "0"


def _identity(place: _Place) -> tuple[str, str, str, str, str]:
    """Namespace, pod, container (the region where there is no pod), index and UUID."""
    pod = place.container.pod
    name = pod.container or ("" if pod.name else place.container.name)
    return pod.namespace, pod.name, name, _index(place.gpu), place.gpu.uuid


def _hami_labels(place: _Place) -> Labels:
    names = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
    return dict(zip(names, _identity(place), strict=True))


def _legacy_labels(place: _Place) -> Labels:
    names = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")
    return dict(zip(names, _identity(place), strict=True))


def _kind(gpu: Gpu) -> str:
    return f"NVIDIA-{gpu.reading.name}" if gpu.reading and gpu.reading.name else "NVIDIA"


def _hami_gpu_labels(gpu: Gpu) -> Labels:
    return {"device_index": _index(gpu), "device_uuid": gpu.uuid, "device_type": _kind(gpu)}


def _legacy_gpu_labels(gpu: Gpu) -> Labels:
    return {"deviceidx": _index(gpu), "deviceuuid": gpu.uuid, "devicetype": _kind(gpu)}


# ---- Alnair's names ----


def alnair(look: Look, history: History) -> Iterator[Family]:
    """What a region knows of Alnair's: memory. Launches and tokens are not counted here."""
    node = os.environ.get("NODE_NAME") or os.uname().nodename
    samples: list[Sample] = []
    for place in _places(look, history):
        for process in place.container.processes:
            if process.alive and process.used_bytes is not None:
                pod = place.container.pod
                labels = {
                    "pid": str(process.pid),
                    "pod_name": pod.name or place.container.name,
                    "namespace": pod.namespace,
                    "nodeName": node,
                    "gpu_idx": _index(place.gpu),
                }
                samples.append((labels, process.used_bytes))
    yield Family("alnair_cuda_mem_used", "gauge", "GPU memory in bytes", _merged(samples))


NAMES: dict[str, Callable[[Look, History], Iterator[Family]]] = {
    "gpufence": own,
    "hami": hami,
    "hami-legacy": hami_legacy,
    "alnair": alnair,
}
