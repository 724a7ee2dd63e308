"""The messages on the wire, byte by byte: field numbers are the kubelet's, not only our own."""

from __future__ import annotations

from gpufence.node import messages


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def test_a_registration_is_what_the_kubelet_reads() -> None:
    known = messages.load("v1beta1")
    options = known["DevicePluginOptions"](
        pre_start_required=True, get_preferred_allocation_available=True
    )

    sent = known["RegisterRequest"](
        version="v1beta1", endpoint="a.sock", resource_name="x/y", options=options
    ).SerializeToString()

    assert sent == (
        field(1, b"v1beta1") + field(2, b"a.sock") + field(3, b"x/y") + field(4, b"\x08\1\x10\1")
    )


def test_an_allocation_is_what_the_kubelet_reads() -> None:
    known = messages.load("v1beta1")
    answer = known["AllocateResponse"]()
    told = answer.container_responses.add()
    told.envs["A"] = "b"
    told.mounts.add(container_path="/c", host_path="/h", read_only=True)
    told.cdi_devices.add(name="v/c=n")

    sent = answer.SerializeToString()

    env = field(1, field(1, b"A") + field(2, b"b"))
    mount = field(2, field(1, b"/c") + field(2, b"/h") + b"\x18\1")
    assert sent == field(1, env + mount + field(5, field(1, b"v/c=n")))


def test_units_preferences_and_starts_are_what_the_kubelet_sends() -> None:
    known = messages.load("v1beta1")
    preferred = field(1, field(1, b"g0") + field(1, b"g1") + field(2, b"g1") + b"\x18\2")
    (asked,) = known["PreferredAllocationRequest"].FromString(preferred).container_requests
    started = known["PreStartContainerRequest"].FromString(field(1, b"g0"))
    (allocated,) = known["AllocateRequest"].FromString(field(1, field(1, b"g0"))).container_requests
    listed = known["ListAndWatchResponse"](devices=[{"ID": "g0", "health": "Healthy"}])

    assert list(asked.available_deviceIDs) == ["g0", "g1"]
    assert (list(asked.must_include_deviceIDs), asked.allocation_size) == (["g1"], 2)
    assert (list(started.devices_ids), list(allocated.devices_ids)) == (["g0"], ["g0"])
    assert listed.SerializeToString() == field(1, field(1, b"g0") + field(2, b"Healthy"))


def test_pods_are_what_the_kubelet_lists() -> None:
    devices = field(2, field(1, b"x/y") + field(2, b"g0") + field(2, b"g1") + field(3, b""))
    container = field(3, field(1, b"main") + devices + b"\x18\7")
    sent = field(1, field(1, b"train") + field(2, b"ml") + container)

    (pod,) = messages.load("v1")["ListPodResourcesResponse"].FromString(sent).pod_resources

    (there,) = pod.containers
    assert (pod.namespace, pod.name, there.name) == ("ml", "train", "main")
    assert list(there.devices[0].device_ids) == ["g0", "g1"]
    assert there.devices[0].resource_name == "x/y"
