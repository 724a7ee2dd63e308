"""The pods of a node, as the API server tells them: listed once, then watched.

Owns what of a pod counts; must not know what is done with it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gpufence.errors import ToolError

from .api import Api

_AGAIN_SECONDS = 1.0
# The server ends a watch by itself after so long.
_WATCH_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Pod:
    """What counts of a pod; `claims` are the names of its ResourceClaims."""

    owner: str
    qos: str
    annotations: Mapping[str, str]
    claims: tuple[str, ...]


def of(found: Mapping[str, Any]) -> Pod | None:
    """A pod from its object; None where that is none."""
    metadata, status = found.get("metadata"), found.get("status") or {}
    if not isinstance(metadata, dict) or not isinstance(status, dict):
        return None
    namespace, name = metadata.get("namespace"), metadata.get("name")
    noted = metadata.get("annotations") or {}
    if not isinstance(namespace, str) or not isinstance(name, str) or not isinstance(noted, dict):
        return None
    named = (found.get("spec") or {}).get("resourceClaims") or []
    made = status.get("resourceClaimStatuses") or []
    claims = {each.get("resourceClaimName") for each in (*named, *made) if isinstance(each, dict)}
    return Pod(
        owner=f"{namespace}/{name}",
        qos=str(status.get("qosClass", "")),
        annotations={str(key): str(text) for key, text in noted.items()},
        claims=tuple(sorted(f"{namespace}/{each}" for each in claims if each)),
    )


def follow(
    server: Api, node: str, stopped: threading.Event, tell: Callable[[Mapping[str, Pod]], None]
) -> None:
    """Tell the node's pods, by namespace/name, and again at each change, until `stopped` is set.

    While the server cannot be asked, nothing is told, and stderr says so once.
    """
    told = ""
    while not stopped.is_set():
        try:
            _once(server, node, stopped, tell)
            told = ""
        except ToolError as error:
            if str(error) != told:
                print(f"gpufence: {error}", file=sys.stderr, flush=True)
            told = str(error)
        stopped.wait(_AGAIN_SECONDS)


def _once(
    server: Api, node: str, stopped: threading.Event, tell: Callable[[Mapping[str, Pod]], None]
) -> None:
    """One list and the watch behind it, which the server ends."""
    where = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{quote(node, '')}"
    listed = server.get(where)
    items = listed.get("items") or []
    known = {pod.owner: pod for each in items if (pod := of(each))}
    tell(dict(known))
    version = (listed.get("metadata") or {}).get("resourceVersion", "")
    since = f"&watch=1&resourceVersion={quote(str(version), '')}&timeoutSeconds={_WATCH_SECONDS}"
    for event in server.watch(where + since, _WATCH_SECONDS):
        if stopped.is_set() or event.get("type") == "ERROR":
            return  # what it knew is too old: listed anew
        pod = of(event.get("object") or {})
        if pod is None:
            continue
        if event.get("type") == "DELETED":
            known.pop(pod.owner, None)
        else:
            known[pod.owner] = pod
        tell(dict(known))
