"""A kubelet as device plugins meet it: sockets, units, admission, container starts.

Gives units out as the real one does: one resource after another in any order, only units that no
container has; an admission that fails leaves nothing behind. What it knows is the model that
the agent is measured against. ci/kubernetes has the real one.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from gpufence.node import messages, wire

from .conftest import SECONDS


class FullError(Exception):
    """The scheduler would not have sent the pod here."""


@dataclass(slots=True)
class Container:
    """One that was admitted: units by resource, what Allocate answered for each."""

    owner: str
    units: dict[str, list[str]]
    answers: dict[str, Any]
    started: bool = False


@dataclass(slots=True)
class Kubelet:
    """A kubelet in a folder; `dice` decides every order that the real one leaves open."""

    folder: Path
    dice: random.Random
    containers: dict[str, Container] = field(default_factory=dict)
    registered: dict[str, Any] = field(default_factory=dict)
    refused: int = 0  # so many registrations from now on
    # One of 1.20 always asks for preferred units, others only where there is a choice.
    always_asks: bool = False
    # A plugin's units are watched for as long as it is registered; `watches` counts them.
    watches: dict[str, int] = field(default_factory=dict)
    _channels: list[grpc.Channel] = field(default_factory=list)
    _servers: list[grpc.Server] = field(default_factory=list)
    _came: threading.Condition = field(default_factory=threading.Condition)

    @property
    def pods_socket(self) -> Path:
        """Where it lists its pods."""
        return self.folder / "pods.sock"

    def start(self) -> None:
        """As when its process starts: whatever is in the folder of plugins is removed."""
        for path in self.folder.glob("*.sock"):
            path.unlink()
        self.registered.clear()
        serve = wire.serve
        self._servers = [
            serve(self.pods_socket, {messages.POD_RESOURCES: {"List": self._list}}),
            serve(
                self.folder / "kubelet.sock", {messages.REGISTRATION: {"Register": self._register}}
            ),
        ]

    def stop(self) -> None:
        """Its process ends; its containers run on."""
        self.drop_watches()
        for server in self._servers:
            server.stop(grace=None).wait()

    def drop_watches(self) -> None:
        """Its connections to plugins break; it takes that for their end, and tells nobody."""
        while self._channels:
            self._channels.pop().close()

    def restart(self) -> None:
        """Its process is replaced."""
        self.stop()
        self.start()

    def forget(self) -> None:
        """Wait for registrations that come from now on."""
        self.registered.clear()

    def await_plugins(self, resources: list[str]) -> None:
        """Until each of them is registered and lists its units."""
        with self._came:
            there = self._came.wait_for(lambda: set(resources) <= set(self.registered), SECONDS)
        assert there, f"only {sorted(self.registered)} came"

    def units(self, resource: str) -> list[str]:
        """What the plugin lists."""
        known = messages.load("v1beta1")
        with self._channel(resource) as channel:
            stream = channel.unary_stream(
                f"/{messages.DEVICE_PLUGIN}/ListAndWatch",
                request_serializer=known["Empty"].SerializeToString,
                response_deserializer=known["ListAndWatchResponse"].FromString,
            )(known["Empty"](), timeout=SECONDS)
            first = next(stream)
            stream.cancel()
        assert {device.health for device in first.devices} == {"Healthy"}
        return [device.ID for device in first.devices]

    def admit(self, owner: str, wanted: Mapping[str, int]) -> Container:
        """Give a container its units.

        Raises:
            FullError: too few units are left.
            grpc.RpcError: the plugin refused or died; the container is not admitted.
        """
        assert owner not in self.containers
        container = Container(owner, {}, {})
        resources = list(wanted)
        self.dice.shuffle(resources)
        for resource in resources:
            taken = {
                unit for each in self.containers.values() for unit in each.units.get(resource, ())
            }
            free = [unit for unit in self.units(resource) if unit not in taken]
            if len(free) < wanted[resource]:
                raise FullError(resource)
            self.dice.shuffle(free)  # sets of Go have no order
            if self.always_asks or len(free) > wanted[resource]:
                free = self._preferred(resource, free, wanted[resource])
            assert len(set(free)) == wanted[resource]
            container.answers[resource] = self.allocate(resource, free)
            container.units[resource] = free
        self.containers[owner] = container
        return container

    def allocate(self, resource: str, units: list[str]) -> Any:  # noqa: ANN401
        """What the plugin answers for a container with these units."""
        asked = [{"devices_ids": units}]
        answer = self._call(resource, "Allocate", "AllocateRequest", container_requests=asked)
        (told,) = answer.container_responses
        return told

    def begin(self, owner: str) -> None:
        """Start an admitted container, or start it again.

        A kubelet that is new asks no plugin that has not registered with it yet: the container
        starts with what was answered before. The runtime makes folders where mounts lack a source.

        Raises:
            grpc.RpcError: the plugin refused or died; the kubelet would try again.
        """
        container = self.containers[owner]
        resources = [resource for resource in container.units if resource in self.registered]
        self.dice.shuffle(resources)
        for resource in resources:
            units = list(container.units[resource])
            self.dice.shuffle(units)
            self._call(resource, "PreStartContainer", "PreStartContainerRequest", devices_ids=units)
        for answer in container.answers.values():
            for mount in answer.mounts:
                if not os.path.exists(mount.host_path):
                    os.makedirs(mount.host_path)
        container.started = True

    def end(self, owner: str) -> None:
        """The container is over and its units are free."""
        del self.containers[owner]

    def _preferred(self, resource: str, free: list[str], size: int) -> list[str]:
        asked = {"available_deviceIDs": free, "must_include_deviceIDs": [], "allocation_size": size}
        answer = self._call(
            resource,
            "GetPreferredAllocation",
            "PreferredAllocationRequest",
            container_requests=[asked],
        )
        (chosen,) = answer.container_responses
        assert set(chosen.deviceIDs) <= set(free)
        return list(chosen.deviceIDs)

    def _call(self, resource: str, name: str, message: str, **fields: Any) -> Any:  # noqa: ANN401
        known = messages.load("v1beta1")
        _, returned = messages.CALLS[messages.DEVICE_PLUGIN][name]
        with self._channel(resource) as channel:
            method = channel.unary_unary(
                f"/{messages.DEVICE_PLUGIN}/{name}",
                request_serializer=known[message].SerializeToString,
                response_deserializer=known[returned].FromString,
            )
            return method(known[message](**fields), timeout=SECONDS)

    def _channel(self, resource: str) -> grpc.Channel:
        return self._channel_to(self.registered[resource].endpoint)

    def _channel_to(self, endpoint: str) -> grpc.Channel:
        # As Go's clients have it: 4 MiB, and an authority that is no path.
        options = [
            ("grpc.max_receive_message_length", 4 << 20),
            ("grpc.default_authority", "localhost"),
        ]
        return grpc.insecure_channel(f"unix:{self.folder / endpoint}", options=options)

    def _register(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        if self.refused:
            self.refused -= 1
            raise OSError("not now")
        # The answer comes first: whether the plugin can be reached, it is never told.
        threading.Thread(target=self._watch, args=(request,), daemon=True).start()
        return messages.load("v1beta1")["Empty"]()

    def _watch(self, request: Any) -> None:  # noqa: ANN401
        known = messages.load("v1beta1")
        name = request.resource_name
        channel = self._channel_to(request.endpoint)
        self._channels.append(channel)
        stream = channel.unary_stream(
            f"/{messages.DEVICE_PLUGIN}/ListAndWatch",
            request_serializer=known["Empty"].SerializeToString,
            response_deserializer=known["ListAndWatchResponse"].FromString,
        )(known["Empty"](), wait_for_ready=True)
        with suppress(grpc.RpcError, ValueError):
            for _ in stream:
                with self._came:
                    self.registered[name] = request
                    self.watches[name] = self.watches.get(name, 0) + 1
                    self._came.notify_all()

    def _list(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        answer = messages.load("v1")["ListPodResourcesResponse"]()
        for container in self.containers.values():
            namespace, pod, name = container.owner.split("/")
            there = answer.pod_resources.add(namespace=namespace, name=pod).containers.add(
                name=name
            )
            for resource, units in container.units.items():
                # The real one says them in several parts, one for each NUMA node.
                there.devices.add(resource_name=resource, device_ids=units[:1])
                there.devices.add(resource_name=resource, device_ids=units[1:])
        # It lists every pod of the node, also those without units and those that are over.
        answer.pod_resources.add(namespace="kube-system", name="proxy").containers.add(name="proxy")
        return answer


def held(folder: Path, cdi: Path, container: Container) -> tuple[tuple[str, ...], int, int]:
    """What a started container really has: GPUs, bytes and percent, from the files it is given."""
    (device,) = {each.name for answer in container.answers.values() for each in answer.cdi_devices}
    key = device.removeprefix("gpufence.io/container=")
    document = json.loads((cdi / f"gpufence-container-{key}.json").read_text())
    (edits,) = [each["containerEdits"] for each in document["devices"] if each["name"] == key]
    env = dict(text.split("=", 1) for text in edits["env"])
    told = (folder / "containers" / key / "gpufence.conf").read_text()
    memory = re.search(r"^memory_limit = (\d+)$", told, re.M)
    cores = re.search(r"^core_limit = (\d+)$", told, re.M)
    assert memory is not None
    assert env["GPUFENCE_MEMORY_LIMIT"] == memory[1]
    assert env.get("GPUFENCE_CORE_LIMIT") == (cores[1] if cores else None)
    gpus = tuple(env["NVIDIA_VISIBLE_DEVICES"].split(","))
    return gpus, int(memory[1]), int(cores[1]) if cores else 0


def wait_for(condition: Any, what: str) -> None:  # noqa: ANN401
    """Until it, any callable, is true."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what
        os.sched_yield()
        time.sleep(0.01)
