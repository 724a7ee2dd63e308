"""gRPC over unix sockets: servers of the agent's services, and calls of the kubelet's.

Must not know what a service does. Imported only when the agent runs: grpcio is an extra.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from gpufence.errors import ToolError, one_line

from . import messages

# The kubelet's list of pods names every unit of every container.
_LONGEST_ANSWER = 256 << 20
_CALL_SECONDS = 10.0
_LONGEST_PATH = 107  # sun_path of <sys/un.h>, less its end
_THREADS = 16

Handler = Callable[[Any, Any], Any]


class CallError(Exception):
    """A call that the other side refused, or did not answer."""


def serve(path: Path, services: Mapping[str, Mapping[str, Handler]]) -> grpc.Server:
    """A server that listens at once.

    Args:
        path: of its socket; what a killed agent left there is replaced.
        services: handlers by service and method; each takes the request and gRPC's context.

    Raises:
        ToolError: exit 1, when there can be no socket.
    """
    server = grpc.server(
        futures.ThreadPoolExecutor(_THREADS),
        options=[
            ("grpc.max_receive_message_length", _LONGEST_ANSWER),
            ("grpc.max_send_message_length", _LONGEST_ANSWER),
        ],
    )
    for service, handlers in services.items():
        methods = {name: _method(service, name, handler) for name, handler in handlers.items()}
        generic = grpc.method_handlers_generic_handler(service, methods)
        server.add_generic_rpc_handlers((generic,))
    problem = "its folder cannot be written to"
    if len(os.fsencode(path)) > _LONGEST_PATH:
        problem = f"a socket's path is not longer than {_LONGEST_PATH} bytes"
    try:
        path.unlink(missing_ok=True)
        bound = server.add_insecure_port(f"unix:{path}")
    except (OSError, RuntimeError) as error:
        bound, problem = 0, getattr(error, "strerror", None) or problem
    if not bound:
        raise ToolError(
            what=f"no socket at '{path}'",
            why=problem.lower(),
            fix="Mount the kubelet's folder there, and run this as root",
        )
    os.chmod(path, 0o600)
    server.start()
    return server


def _method(service: str, name: str, handler: Handler) -> grpc.RpcMethodHandler:
    taken, returned = messages.CALLS[service][name]
    known = messages.load(messages.package_of(service))
    make = grpc.unary_stream_rpc_method_handler
    guarded = _guarded_stream(handler)
    if not returned.startswith("*"):
        make, guarded = grpc.unary_unary_rpc_method_handler, _guarded(handler)
    return make(
        guarded,
        request_deserializer=known[taken].FromString,
        response_serializer=known[returned.lstrip("*")].SerializeToString,
    )


def _guarded(handler: Handler) -> Handler:
    """A handler whose failure is a status and a line: gRPC would print a traceback."""

    def answer(request: Any, context: Any) -> Any:  # noqa: ANN401 - messages are untyped
        try:
            return handler(request, context)
        except Exception as error:
            _refuse(context, error)

    return answer


def _guarded_stream(handler: Handler) -> Handler:
    def answer(request: Any, context: Any) -> Any:  # noqa: ANN401 - messages are untyped
        try:
            yield from handler(request, context)
        except Exception as error:
            _refuse(context, error)

    return answer


def _refuse(context: Any, error: Exception) -> None:  # noqa: ANN401 - gRPC's are untyped
    known = isinstance(error, ToolError | OSError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    print(f"gpufence: {one_line(text)}", file=sys.stderr, flush=True)
    status = grpc.StatusCode.FAILED_PRECONDITION if known else grpc.StatusCode.INTERNAL
    context.abort(status, one_line(text))


def call(path: Path, service: str, name: str, make: Callable[[Mapping[str, Any]], Any]) -> Any:  # noqa: ANN401 - messages are untyped
    """Call a service once.

    Args:
        path: of its socket.
        service: its full name.
        name: of the method.
        make: builds the request from the package's message classes.

    Raises:
        CallError: it refused, or did not answer in ten seconds.
    """
    known = messages.load(messages.package_of(service))
    taken, returned = messages.CALLS[service][name]
    options = [("grpc.max_receive_message_length", _LONGEST_ANSWER)]
    with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
        method = channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=known[taken].SerializeToString,
            response_deserializer=known[returned].FromString,
        )
        try:
            return method(make(known), timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise CallError(f"{error.code().name.lower()}: {error.details()}") from None
