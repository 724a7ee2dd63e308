"""Clients beyond the most are hung up on, and who goes makes room."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest
from gpufence.export.bounded_server import BoundedServer

FIRST, OTHER = "127.0.0.1", "127.0.0.2"


class Handler(socketserver.BaseRequestHandler):
    """Greets, and stays until the client goes or says something wrong."""

    def handle(self) -> None:
        """One client."""
        self.request.sendall(b"hello")
        if self.request.recv(1) == b"!":
            raise ValueError("that was wrong")
        if self.request.recv(1) == b"!":
            raise ConnectionResetError


class Server(BoundedServer):
    """Five clients, three of an address."""

    most_clients = 5
    most_of_an_address = 3
    asked = "a greeting"


@pytest.fixture
def port() -> Iterator[int]:
    """A server's, ended behind the test."""
    with Server(socket.AF_INET, (FIRST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


def greeted(port: int, address: str, times: int) -> list[socket.socket]:
    """Clients from an address; those that were hung up on are closed already."""
    clients = []
    for _ in range(times):
        client = socket.create_connection((FIRST, port), 10, (address, 0))
        try:
            heard = client.recv(5)
        except ConnectionResetError:
            heard = b""
        if heard:
            clients.append(client)
        else:
            client.close()
    return clients


def test_an_address_has_no_more_clients_than_it_may(port: int) -> None:
    clients = greeted(port, FIRST, 6)

    assert len(clients) == 3
    assert len(greeted(port, OTHER, 1)) == 1


def test_all_addresses_together_have_no_more_than_they_may(port: int) -> None:
    first, other = greeted(port, FIRST, 3), greeted(port, OTHER, 3)

    assert (len(first), len(other)) == (3, 2)


def test_who_goes_makes_room(port: int) -> None:
    for client in greeted(port, FIRST, 3):
        client.close()

    for _ in range(1000):
        if greeted(port, FIRST, 1):
            return
    pytest.fail("nobody was let in")


@pytest.mark.parametrize(("said", "told"), [(b"!", True), (b".!", False)])
def test_what_fails_is_one_line_and_who_went_is_none(
    port: int, said: bytes, told: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    (client,) = greeted(port, FIRST, 1)
    client.sendall(said)
    assert client.recv(1) == b""

    lines = capfd.readouterr().err.splitlines()
    wanted = ["gpufence: a greeting failed: ValueError('that was wrong')"] if told else []
    assert lines == wanted
