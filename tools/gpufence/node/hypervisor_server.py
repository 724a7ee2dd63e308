"""A server of HTTP for clients that nobody trusts: one short request each, within five seconds.

Bodies are not read. A client beyond the most of its address, or of all, is hung up on. Must not
know what is asked.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from gpufence.errors import ToolError
from gpufence.export.bounded_server import BoundedServer

_PATIENCE_S = 5.0
_MOST_BYTES = 16384  # a token has about 1 KiB


@dataclass(frozen=True, slots=True)
class Request:
    """What counts of a request."""

    method: str
    target: str
    authorization: str


# A status, and the object that is told; None: nothing but the status.
Answer = tuple[int, dict[str, Any] | None]


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        """One request and its answer, or the end of patience."""
        with contextlib.suppress(OSError):
            head = self._head()
            if head:
                self._tell(*self._answered(head))

    def _head(self) -> bytes:
        """The request without a body; nothing from a client that is too slow, or goes."""
        until = time.monotonic() + _PATIENCE_S
        said = b""
        while b"\r\n\r\n" not in said:
            left = until - time.monotonic()
            if left <= 0 or len(said) > _MOST_BYTES:
                return b"" if left <= 0 else said
            self.request.settimeout(left)
            came = self.request.recv(4096)
            if not came:
                return b""
            said += came
        self.request.settimeout(_PATIENCE_S)
        return said

    def _answered(self, head: bytes) -> Answer:
        text, found, _ = head.partition(b"\r\n\r\n")
        if not found or len(text) > _MOST_BYTES:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, None
        first, *lines = text.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return HTTPStatus.BAD_REQUEST, None
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            key = name.lower()
            if not colon or (key in headers and key in ("authorization", "content-length")):
                return HTTPStatus.BAD_REQUEST, None
            headers[key] = value.strip()
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, None
        if not words[1].startswith("/") or words[1].startswith("//"):
            return HTTPStatus.BAD_REQUEST, None
        return self.server.answer(Request(words[0], words[1], headers.get("authorization", "")))

    def _tell(self, status: int, told: dict[str, Any] | None) -> None:
        body = b"" if told is None else json.dumps(told).encode()
        lines = [
            f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        self.request.sendall("\r\n".join([*lines, "", ""]).encode() + body)


class _Server(BoundedServer):
    most_clients = 64
    most_of_an_address = 16
    asked = "a request of vgpu.rs"

    def __init__(
        self, family: int, address: tuple[str, int], answer: Callable[[Request], Answer]
    ) -> None:
        self.answer = answer
        super().__init__(family, address, _Handler)


def start(listen: str, answer: Callable[[Request], Answer], stopped: threading.Event) -> int:
    """Answer in threads of its own until `stopped` is set; the port.

    Args:
        listen: ADDRESS:PORT, [IPV6]:PORT, or :PORT for every address.
        answer: called from several threads.
        stopped: ends it.

    Raises:
        ToolError: exit 1, the address cannot be had.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = _Server(family, (host, int(port)), answer)
    except (OSError, OverflowError) as error:
        raise ToolError(
            what=f"cannot listen on {listen}",
            why=(getattr(error, "strerror", None) or "no such address").lower(),
            fix="Choose an address of this machine and a free port as hypervisor_listen",
        ) from None

    def serve() -> None:
        with server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stopped.wait()
            server.shutdown()

    threading.Thread(target=serve, daemon=True).start()
    print(f"gpufence: vgpu.rs's limiter is answered at {listen}", file=sys.stderr, flush=True)
    return int(server.server_address[1])
