"""containerd whose containers get the limit from an NRI plugin: nobody names a device.

Owns the plugin: ttrpc over one socket, and the field names and numbers of NRI v1alpha1
(github.com/containerd/nri), as far as the tests need them. Must not know what is tested.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gpufence.node import messages

from .cri import Cri
from .engine import DEVICE, edits

_RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
_CREATE_CONTAINER = 1 << 3  # of Event, of which a mask has bit NUMBER - 1
# Two connections share the socket: calls to the plugin, and its own calls.
_TO_PLUGIN, _FROM_PLUGIN = 1, 2
_REQUEST, _RESPONSE = 1, 2
_MUX, _TTRPC = struct.Struct(">II"), struct.Struct(">IIBB")
# Requests and responses of ttrpc differ in the type of their payload alone.
_MESSAGES = """
    RegisterPluginRequest plugin_name=1:string plugin_idx=2:string
    Register service=1:string method=2:string payload=3:RegisterPluginRequest
    Call service=1:string method=2:string
    ConfigureResponse events=2:int32
    Configured payload=2:ConfigureResponse
    Mount destination=1:string type=2:string source=3:string options=4:*string
    KeyValue key=1:string value=2:string
    CDIDevice name=1:string
    ContainerAdjustment mounts=3:*Mount env=4:*KeyValue CDI_devices=8:*CDIDevice
    CreateContainerResponse adjust=1:ContainerAdjustment
    Created payload=2:CreateContainerResponse
"""
_SETTINGS = """\
[plugins."io.containerd.nri.v1.nri"]
disable = false
disable_connections = false
socket_path = "{own}/nri.sock"
plugin_path = "{own}/plugins"
plugin_config_path = "{own}/plugins"
"""


class Plugin(threading.Thread):
    """Gives every container the same; ends when containerd does."""

    def __init__(self, path: Path, adjustment: Mapping[str, Any]) -> None:
        """Not connected yet; `adjustment` has the fields of a ContainerAdjustment."""
        super().__init__(daemon=True)
        self.asked = threading.Event()  # containerd has heard which events it wants
        self._adjustment = adjustment
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._known = messages.described("nri", _MESSAGES)

    def run(self) -> None:
        """Register, and answer until the socket closes."""
        who = {"plugin_name": "gpufence-test", "plugin_idx": "10"}
        request = self._known["Register"](service=_RUNTIME, method="RegisterPlugin", payload=who)
        self._send(_FROM_PLUGIN, 1, _REQUEST, request)
        for stream, call in self._calls():
            self._send(_TO_PLUGIN, stream, _RESPONSE, self._answer(call.method))
            if call.method == "Synchronize":
                self.asked.set()

    def _answer(self, method: str) -> Any:  # noqa: ANN401 - messages are untyped
        if method == "Configure":
            return self._known["Configured"](payload={"events": _CREATE_CONTAINER})
        if method == "CreateContainer":
            return self._known["Created"](payload={"adjust": self._adjustment})
        return self._known["Created"]()  # an empty payload is any message without fields

    def _send(self, connection: int, stream: int, kind: int, message: Any) -> None:  # noqa: ANN401
        text = message.SerializeToString()
        frame = _TTRPC.pack(len(text), stream, kind, 0) + text
        self._socket.sendall(_MUX.pack(connection, len(frame)) + frame)

    def _calls(self) -> Iterator[tuple[int, Any]]:
        """Each call's number and what is asked."""
        held = b""
        while head := self._read(_MUX.size):
            connection, size = _MUX.unpack(head)
            part = self._read(size)
            if connection != _TO_PLUGIN:
                continue  # the answer to our own call
            held += part
            while len(held) >= _TTRPC.size:
                length, stream, _, _ = _TTRPC.unpack_from(held)
                if len(held) < _TTRPC.size + length:
                    break
                text, held = held[_TTRPC.size :][:length], held[_TTRPC.size + length :]
                yield stream, self._known["Call"].FromString(text)

    def _read(self, size: int) -> bytes:
        """So many bytes; none where the other side is gone."""
        found = b""
        while len(found) < size:
            try:
                part = self._socket.recv(size - len(found))
            except OSError:
                return b""
            if not part:
                return b""
            found += part
        return found


@dataclass(slots=True)
class Nri(Cri):
    """From 2.1 on the plugin names the CDI device; before, it gives the device's edits."""

    adjustment: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "NRI of containerd"

    def begin(self) -> None:
        self.settings = _SETTINGS.format(own=self._own)
        Cri.begin(self)
        self.adjustment = self._adjust()
        plugin = Plugin(self._own / "nri.sock", self.adjustment)
        plugin.start()
        if not plugin.asked.wait(20):
            raise OSError("containerd does not answer its NRI plugin")

    def version(self) -> str:
        how = "CDI" if "CDI_devices" in self.adjustment else "mounts and variables"
        return f"{self._version()} ({how})"

    def _devices(self) -> list[str]:
        return []

    def _adjust(self) -> dict[str, Any]:
        match = re.match(r"(\d+)\.(\d+)", self._version())
        if match and (int(match[1]), int(match[2])) >= (2, 1):
            return {"CDI_devices": [{"name": DEVICE}]}
        given = edits(self.host)
        pairs = [text.partition("=") for text in given.variables]
        return {
            "env": [{"key": key, "value": value} for key, _, value in pairs],
            "mounts": [
                {"destination": there, "type": "bind", "source": here, "options": [*how, "rbind"]}
                for here, there, how in given.mounts
                if there != "/sim"
            ],
        }
