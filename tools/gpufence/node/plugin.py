"""The device plugin of one resource: the kubelet's messages to the desk, and back.

Must not know sockets or files.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from . import messages
from .boxes import ANNOTATION
from .desk import Desk, Listed
from .wire import Handler

VERSION = "v1beta1"
# Everything is decided as the container starts, and the kubelet says what has become free.
OPTIONS = {"pre_start_required": True, "get_preferred_allocation_available": True}


class Plugin:
    """Answers for one kind of resource until `stopped` is set."""

    def __init__(self, desk: Desk, kind: str, stopped: threading.Event) -> None:
        self._desk = desk
        self._kind = kind
        self._stopped = stopped
        self._watchers = 0
        self._lock = threading.Lock()
        self._known = messages.load(messages.package_of(messages.DEVICE_PLUGIN))

    def handlers(self) -> dict[str, Handler]:
        """By method."""
        return {
            "GetDevicePluginOptions": self._options,
            "ListAndWatch": self._list,
            "GetPreferredAllocation": self._preferred,
            "Allocate": self._allocate,
            "PreStartContainer": self._start,
        }

    @property
    def is_watched(self) -> bool:
        """Whether a kubelet follows the list of units now: who does not takes us for gone."""
        return self._watchers > 0

    def _options(self, request: Any, context: Any) -> Any:  # noqa: ANN401 - messages are untyped
        return self._known["DevicePluginOptions"](**OPTIONS)

    def _list(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: ANN401
        device = self._known["Device"]
        units = [device(ID=name, health="Healthy") for name in self._desk.units(self._kind)]
        yield self._known["ListAndWatchResponse"](devices=units)
        self._count(1)
        try:
            # The kubelet takes the end of the stream for the end of the plugin.
            while context.is_active() and not self._stopped.wait(1):
                pass
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._watchers += change

    def _preferred(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        answer = self._known["PreferredAllocationResponse"]()
        for each in request.container_requests:
            names = self._desk.preferred(
                self._kind,
                each.available_deviceIDs,
                each.must_include_deviceIDs,
                each.allocation_size,
            )
            answer.container_responses.add(deviceIDs=names)
        return answer

    def _allocate(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        answer = self._known["AllocateResponse"]()
        boxes = self._desk.boxes
        for each in request.container_requests:
            key = self._desk.allocated(self._kind, each.devices_ids)
            told = answer.container_responses.add()
            if not key:
                continue  # the resource that every container asks for brings everything
            for inside, outside, read_only in boxes.mounts(key):
                told.mounts.add(container_path=inside, host_path=outside, read_only=read_only)
            told.cdi_devices.add(name=boxes.device(key))
            # Kubelets before 1.28 pass by that field; a runtime that is told twice does it once.
            told.annotations[ANNOTATION] = boxes.device(key)
            # An image may ask for every GPU, which the CDI device sets right. Where nobody reads
            # CDI files, the container has none.
            told.envs["NVIDIA_VISIBLE_DEVICES"] = "void"
        return answer

    def _start(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        self._desk.start(self._kind, request.devices_ids)
        return self._known["PreStartContainerResponse"]()


def listed(answer: Any, resources: Collection[str]) -> Sequence[Listed]:  # noqa: ANN401
    """Containers that have units of ours, from the kubelet's list of pods.

    Args:
        answer: a ListPodResourcesResponse.
        resources: our names.
    """
    found = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            units: dict[str, set[str]] = {}
            for devices in container.devices:  # several of a resource: one for each NUMA node
                if devices.resource_name in resources:
                    units.setdefault(devices.resource_name, set()).update(devices.device_ids)
            if units:
                owner = f"{pod.namespace}/{pod.name}/{container.name}"
                ordered = {
                    name: tuple(sorted(each, key=lambda unit: (len(unit), unit)))
                    for name, each in sorted(units.items())
                }
                found.append(Listed(owner, ordered))
    return found
