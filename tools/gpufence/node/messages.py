"""The messages that the kubelet and the agent exchange, described at run time.

Owns their field names and numbers: those of the kubelet's public interfaces (device plugins
v1beta1, pod resources v1, plugin registration v1, DRA v1), as far as the agent needs them.
Imported by wire.py alone and only when the agent runs: protobuf is an extra.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# One message a line: its name, then NAME=NUMBER:TYPE for each field. A '*' in front of the type
# means any number of them, a '%' a map from texts.
_PACKAGES = {
    "v1beta1": """
        Empty
        DevicePluginOptions pre_start_required=1:bool get_preferred_allocation_available=2:bool
        RegisterRequest version=1:string endpoint=2:string resource_name=3:string
            options=4:DevicePluginOptions
        Device ID=1:string health=2:string
        ListAndWatchResponse devices=1:*Device
        ContainerPreferredAllocationRequest available_deviceIDs=1:*string
            must_include_deviceIDs=2:*string allocation_size=3:int32
        PreferredAllocationRequest container_requests=1:*ContainerPreferredAllocationRequest
        ContainerPreferredAllocationResponse deviceIDs=1:*string
        PreferredAllocationResponse container_responses=1:*ContainerPreferredAllocationResponse
        ContainerAllocateRequest devices_ids=1:*string
        AllocateRequest container_requests=1:*ContainerAllocateRequest
        Mount container_path=1:string host_path=2:string read_only=3:bool
        CDIDevice name=1:string
        ContainerAllocateResponse envs=1:%string mounts=2:*Mount annotations=4:%string
            cdi_devices=5:*CDIDevice
        AllocateResponse container_responses=1:*ContainerAllocateResponse
        PreStartContainerRequest devices_ids=1:*string
        PreStartContainerResponse
    """,
    "v1": """
        ListPodResourcesRequest
        ContainerDevices resource_name=1:string device_ids=2:*string
        ContainerResources name=1:string devices=2:*ContainerDevices
        PodResources name=1:string namespace=2:string containers=3:*ContainerResources
        ListPodResourcesResponse pod_resources=1:*PodResources
    """,
    "pluginregistration": """
        InfoRequest
        PluginInfo type=1:string name=2:string endpoint=3:string supported_versions=4:*string
        RegistrationStatus plugin_registered=1:bool error=2:string
        RegistrationStatusResponse
    """,
    "k8s.io.kubelet.pkg.apis.dra.v1": """
        Claim namespace=1:string uid=2:string name=3:string
        Device request_names=1:*string pool_name=2:string device_name=3:string
            cdi_device_ids=4:*string
        NodePrepareResourcesRequest claims=1:*Claim
        NodePrepareResourceResponse devices=1:*Device error=2:string
        NodePrepareResourcesResponse claims=1:%NodePrepareResourceResponse
        NodeUnprepareResourcesRequest claims=1:*Claim
        NodeUnprepareResourceResponse error=1:string
        NodeUnprepareResourcesResponse claims=1:%NodeUnprepareResourceResponse
    """,
}
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
}

# Which message each call takes and returns; None: a stream of them comes back.
DEVICE_PLUGIN = "v1beta1.DevicePlugin"
REGISTRATION = "v1beta1.Registration"
POD_RESOURCES = "v1.PodResourcesLister"
PLUGIN_REGISTRATION = "pluginregistration.Registration"
DRA_PLUGIN = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
CALLS: dict[str, dict[str, tuple[str, str]]] = {
    DEVICE_PLUGIN: {
        "GetDevicePluginOptions": ("Empty", "DevicePluginOptions"),
        "ListAndWatch": ("Empty", "*ListAndWatchResponse"),
        "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse"),
        "Allocate": ("AllocateRequest", "AllocateResponse"),
        "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse"),
    },
    REGISTRATION: {"Register": ("RegisterRequest", "Empty")},
    POD_RESOURCES: {"List": ("ListPodResourcesRequest", "ListPodResourcesResponse")},
    PLUGIN_REGISTRATION: {
        "GetInfo": ("InfoRequest", "PluginInfo"),
        "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse"),
    },
    DRA_PLUGIN: {
        "NodePrepareResources": ("NodePrepareResourcesRequest", "NodePrepareResourcesResponse"),
        "NodeUnprepareResources": (
            "NodeUnprepareResourcesRequest",
            "NodeUnprepareResourcesResponse",
        ),
    },
}


def package_of(service: str) -> str:
    """The part of a service's full name that its messages have, too."""
    return service.rpartition(".")[0]


def load(package: str) -> dict[str, Any]:
    """Every message class of one of the agent's packages, by its name."""
    return described(package, _PACKAGES[package])


@cache
def described(package: str, text: str) -> dict[str, Any]:
    """Every message class of a package, by its name; `text` is written as those above."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for statement in _statements(text):
        _describe(file.message_type.add(), package, statement)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        each.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{each.name}")
        )
        for each in file.message_type
    }


def _statements(text: str) -> list[list[str]]:
    """The words of each message; a line that begins with a field goes on with the one before."""
    found: list[list[str]] = []
    for line in filter(None, map(str.split, text.splitlines())):
        if "=" in line[0]:
            found[-1] += line
        else:
            found.append(line)
    return found


def _describe(message: Any, package: str, words: list[str]) -> None:  # noqa: ANN401 - untyped
    message.name = words[0]
    for word in words[1:]:
        name, _, rest = word.partition("=")
        number, _, kind = rest.partition(":")
        field = message.field.add(name=name, number=int(number))
        field.label = _Field.LABEL_REPEATED if kind[0] in "*%" else _Field.LABEL_OPTIONAL
        if kind.startswith("%"):
            entry = message.nested_type.add(name=_entry_name(name))
            entry.options.map_entry = True
            _describe(entry, package, [entry.name, "key=1:string", f"value=2:{kind[1:]}"])
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{package}.{message.name}.{entry.name}"
        elif (bare := kind.lstrip("*")) in _SCALARS:
            field.type = _SCALARS[bare]
        else:
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{package}.{bare}"


def _entry_name(field: str) -> str:
    """What protobuf calls the message that holds one entry of a map."""
    return "".join(part.capitalize() for part in field.split("_")) + "Entry"
