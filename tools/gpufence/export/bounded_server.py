"""A server whose clients cost it a bounded number of threads; who is one too many is hung up on.

For how long a client may be slow is its handler's to say. Must not know what is asked. Standard
library only.
"""

from __future__ import annotations

import socketserver
import sys
import threading
from collections import Counter
from typing import Any, ClassVar


class BoundedServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A thread for each client."""

    daemon_threads = True
    allow_reuse_address = True
    most_clients: ClassVar[int]
    most_of_an_address: ClassVar[int]
    asked: ClassVar[str]  # what a client wants, for people

    def __init__(
        self,
        family: int,
        address: tuple[str, int],
        handler: type[socketserver.BaseRequestHandler],
    ) -> None:
        self.address_family = family
        self.request_queue_size = self.most_clients
        self._lock = threading.Lock()
        self._clients: Counter[str] = Counter()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """One client more, or not."""
        with self._lock:
            full = self._clients.total() >= self.most_clients
            full = full or self._clients[client_address[0]] >= self.most_of_an_address
            if not full:
                self._clients[client_address[0]] += 1
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """The thread of one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._clients[client_address[0]] -= 1
                self._clients += Counter()  # an address without any is forgotten

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no event; anything else is one line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"gpufence: {self.asked} failed: {error!r}", file=sys.stderr, flush=True)
