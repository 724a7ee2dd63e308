"""An API server as its users see it: objects in and out, by a token.

Must not know what they mean.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

_SECONDS = 30.0
_TYPES = {"PATCH": "application/merge-patch+json"}


class ApiError(Exception):
    """The server refused, or did not answer."""

    def __init__(self, status: int, text: str) -> None:
        """`status` is 0 where there was no answer."""
        super().__init__(f"{status} {text}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Api:
    """A server with a certificate of its own making, on this machine."""

    address: str
    token: str

    def get(self, path: str) -> Any:  # noqa: ANN401 - a document
        """An object, or a list of them."""
        return self._ask("GET", path, None)

    def create(self, path: str, document: object) -> Any:  # noqa: ANN401
        """A new object among those at the path."""
        return self._ask("POST", path, document)

    def patch(self, path: str, changes: object) -> Any:  # noqa: ANN401
        """An object, changed where `changes` names something (RFC 7386)."""
        return self._ask("PATCH", path, changes)

    def delete(self, path: str) -> None:
        """Without waiting for what its programs still want to do; what is gone already is fine."""
        try:
            self._ask("DELETE", path, {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    def _ask(self, method: str, path: str, document: object) -> Any:  # noqa: ANN401
        # The connection does not leave the session's own network.
        context = ssl._create_unverified_context()
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if document is None else json.dumps(document).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": _TYPES.get(method, "application/json"),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS, context=context) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read(500).decode(errors="replace")) from None
        except OSError as error:
            raise ApiError(0, str(error)) from None
