"""The cluster's API server, as far as the agent needs it: claims, slices and pods as JSON.

Owns the connection and its credentials (a service account's, in a pod); must not know what the
objects mean. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from gpufence.errors import ExitCode, ToolError, one_line

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BASE = "/apis/resource.k8s.io/v1"
_SECONDS = 10.0
_MOST_BYTES = 8 << 20
_NOT_FOUND = 404
_JSON = "application/json"
_TYPES = {"PATCH": "application/merge-patch+json"}


class _NotFound(Exception):
    """Nothing stands at the path."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API server by its address; `account` holds a token and a certificate."""

    address: str
    account: Path = _ACCOUNT

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A ResourceClaim; None where there is none.

        Raises:
            ToolError: exit 1, the server cannot be asked.
        """
        return self._ask(
            "GET", f"{_BASE}/namespaces/{quote(namespace, '')}/resourceclaims/{quote(name, '')}"
        )

    def slices(self, driver: str, node: str) -> list[dict[str, Any]]:
        """The ResourceSlices that a driver has published of a node.

        Raises:
            ToolError: exit 1, the server cannot be asked.
        """
        chosen = quote(f"spec.driver={driver},spec.nodeName={node}", "")
        found = self.get(f"{_BASE}/resourceslices?fieldSelector={chosen}").get("items") or []
        return [each for each in found if isinstance(each, dict)]

    def publish(self, made: dict[str, Any]) -> None:
        """Have a ResourceSlice be as it is made; what is so already stays.

        Raises:
            ToolError: exit 1.
        """
        path = f"{_BASE}/resourceslices/{quote(made['metadata']['name'], '')}"
        known = self._ask("GET", path)
        if known is None:
            self._ask("POST", f"{_BASE}/resourceslices", made)
        elif not _has(known.get("spec"), made["spec"]):
            version = known.get("metadata", {}).get("resourceVersion", "")
            metadata = {**made["metadata"], "resourceVersion": version}
            pool = dict(made["spec"]["pool"])
            pool["generation"] = known.get("spec", {}).get("pool", {}).get("generation", 0) + 1
            spec = {**made["spec"], "pool": pool}
            self._ask("PUT", path, {**made, "metadata": metadata, "spec": spec})

    def get(self, path: str) -> dict[str, Any]:
        """What stands at a path; an empty object where nothing does.

        Raises:
            ToolError: exit 1, the server cannot be asked.
        """
        return self._ask("GET", path) or {}

    def post(self, path: str, made: dict[str, Any]) -> None:
        """Have an object made.

        Raises:
            ToolError: exit 1.
        """
        self._ask("POST", path, made)

    def bearer(self, token: str) -> dict[str, Any]:
        """Whose token it is: the status of a TokenReview.

        Raises:
            ToolError: exit 1, the server cannot be asked.
        """
        made = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        found = self._ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", made) or {}
        status = found.get("status")
        return status if isinstance(status, dict) else {}

    def patch(self, path: str, changes: dict[str, Any]) -> None:
        """Have an object changed where `changes` names something (RFC 7386).

        Raises:
            ToolError: exit 1.
        """
        self._ask("PATCH", path, changes)

    def watch(self, path: str, seconds: float) -> Iterator[dict[str, Any]]:
        """Events of a watch, until the server ends it.

        Args:
            path: of a list, with its `watch=1`.
            seconds: for which the server may be silent.

        Raises:
            ToolError: exit 1, the server cannot be asked, or the connection breaks.
        """
        with self._opened("GET", path, None, seconds + _SECONDS) as answer:
            while line := answer.readline(_MOST_BYTES):
                event = json.loads(line)
                if not isinstance(event, dict):
                    raise self._failed("GET", path, "it answered no event")
                yield event

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        try:
            with self._opened(method, path, body, _SECONDS) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
        except _NotFound:
            return None
        if not isinstance(found, dict):
            raise self._failed(method, path, "it answered no object")
        return found

    @contextlib.contextmanager
    def _opened(
        self, method: str, path: str, body: object, seconds: float
    ) -> Iterator[Any]:  # an open answer
        request = urllib.request.Request(
            f"{self.address}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": "application/json", "Content-Type": _TYPES.get(method, _JSON)},
        )
        try:
            context = None
            if self.address.startswith("https:"):
                token = (self.account / "token").read_text(encoding="ascii").strip()
                request.add_header("Authorization", f"Bearer {token}")
                context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
            # No proxy: a cluster's own server is reached directly.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            with opener.open(request, timeout=seconds) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOT_FOUND and method == "GET":
                raise _NotFound from None
            raise self._failed(method, path, f"it answered {error.code}") from None
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            raise self._failed(method, path, one_line(str(error))) from None

    def _failed(self, method: str, path: str, why: str) -> ToolError:
        return ToolError(
            what=f"{method} {self.address}{path} failed",
            why=why,
            fix="See that the agent's service account may do this (docs/node-agent.md)",
        )


def connect(address: str) -> Api:
    """The server at the address; "" is the cluster's own.

    Raises:
        ToolError: exit 2, there is none, or one that would be asked in the clear.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not address and host:
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        address = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    parts = urlsplit(address)
    clear = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")
    if not parts.hostname or not (parts.scheme == "https" or clear):
        raise ToolError(
            what=f"api_server '{address}' refused" if address else "no API server",
            why="it is neither https nor on this machine" if address else "this is no pod",
            fix="Run the agent in the cluster, or set api_server to where `kubectl proxy` listens",
            status=ExitCode.USAGE,
        )
    return Api(address.rstrip("/"))


def _has(known: object, wanted: object) -> bool:
    """Whether all that is wanted is so; a server adds defaults, and the pool's number grows."""
    if isinstance(wanted, dict):
        return isinstance(known, dict) and all(
            key == "generation" or _has(known.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(known, list) and len(known) == len(wanted) and all(map(_has, known, wanted))
        )
    return known == wanted
