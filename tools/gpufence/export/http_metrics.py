"""A web server that can do one thing: answer GET /metrics.

Slow, silent and many clients cost it a bounded time and number of threads. Must not know what it
serves. Standard library only.
"""

from __future__ import annotations

import http.server
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus

from gpufence.errors import ExitCode, ToolError

from .bounded_server import BoundedServer
from .metrics import CONTENT_TYPE

_PATH = "/metrics"
_PATIENCE_S = 5.0


class _Handler(http.server.BaseHTTPRequestHandler):
    server_version = "gpufence"
    sys_version = ""
    timeout = _PATIENCE_S  # of every read from and write to the client
    server: _Server

    def do_GET(self) -> None:
        """The metrics; 404 for anything else."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """What GET would say, without it."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        if self.path.partition("?")[0] != _PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"There is only {_PATH} here.")
            return
        body = self.server.collect().encode("utf-8")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: whoever scrapes knows."""


class _Server(BoundedServer):
    most_clients = 16
    most_of_an_address = 16
    asked = "a scrape"

    def __init__(
        self, family: socket.AddressFamily, address: tuple[str, int], collect: Callable[[], str]
    ) -> None:
        self.collect = collect
        super().__init__(family, address, _Handler)


def serve(listen: str, collect: Callable[[], str]) -> None:
    """Serve until the process is ended.

    Args:
        listen: ADDRESS:PORT, [IPV6]:PORT, or :PORT for every address.
        collect: makes the text; called from several threads.

    Raises:
        ToolError: exit 2 for what is no address, 1 for one that cannot be had.
    """
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = _Server(family, (host, port), collect)
    except (OSError, UnicodeError) as error:
        raise ToolError(
            what=f"cannot listen on {listen}",
            why=(getattr(error, "strerror", None) or "no such address").lower(),
            fix="Choose an address of this machine and a free port",
        ) from None
    with server:
        shown = f"[{host}]" if ":" in host else host or "0.0.0.0"
        print(
            f"gpufence: serving http://{shown}:{server.server_address[1]}{_PATH}", file=sys.stderr
        )
        server.serve_forever()


def parse_listen(text: str) -> tuple[str, int]:
    """Address ("" for every one) and port.

    Raises:
        ToolError: exit 2.
    """
    host, colon, port = text.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]")
    is_port = port.isdigit() and len(port) < 6 and int(port) < 65536
    if text.isascii() and colon and is_port and (in_brackets or ":" not in host):
        return host[1:-1] if in_brackets else host, int(port)
    raise ToolError(
        what=f"listen address '{text}' refused",
        why="it is not ADDRESS:PORT",
        fix="Write 127.0.0.1:9835, [::1]:9835 or :9835",
        status=ExitCode.USAGE,
    )
