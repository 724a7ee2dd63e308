"""The requests that vgpu.rs's limiter, and our library for its pods, send to a hypervisor.

GET /api/v1/pod names the GPUs of the pod whose token comes along; POST /api/v1/process finds a
process of it on the node. Answers for containers of this agent only, to whom the API server calls
their pod. Owns what is answered; must not know sockets (hypervisor_server.py).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpufence.errors import ToolError, one_line

from . import api, homes, hypervisor_server
from .book import Grant
from .boxes import Boxes
from .config import Config
from .hypervisor_server import Answer, Request

_MOST_TOKENS = 1024  # that are remembered
_REMEMBERED_S = 60.0
_MOST_REVIEWS = 10  # a second, of one pod's tokens
_UNKNOWN = "no container of that token's pod has a GPU of this agent"
_EXTRA = "authentication.kubernetes.io/pod-name"
_ACCOUNT = "system:serviceaccount:"


@dataclass(slots=True)
class Hypervisor:
    """Answers for the grants of this moment; `review` is the API server's word on a token."""

    boxes: Boxes
    held: Callable[[], Collection[Grant]]
    review: Callable[[str], Mapping[str, Any]]
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[bytes, tuple[float, str]] = field(default_factory=dict)
    _reviews: dict[str, list[float]] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        """What a request gets: a status of HTTP, and an object or nothing."""
        parts = urlsplit(request.target)
        if (request.method, parts.path) in (("GET", "/healthz"), ("GET", "/readyz")):
            return 200, {}
        work = {
            ("GET", "/api/v1/pod"): self._pod,
            ("POST", "/api/v1/process"): self._process,
        }.get((request.method, parts.path))
        if work is None:
            return 404, None
        scheme, _, token = request.authorization.partition(" ")
        claimed = _claimed(token) if scheme == "Bearer" else ""
        if not claimed:
            return 401, None
        # Whoever has no GPU here costs the API server nothing.
        grants = self._of(claimed)
        try:
            if not grants or self._pod_of(token, claimed) != claimed:
                return 200, _said(None, _UNKNOWN)
        except ToolError as error:
            print(f"gpufence: {one_line(str(error))}", file=sys.stderr, flush=True)
            return 503, None
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        name = query.get("container_name", "")
        chosen = [each for each in grants if name in ("", each.owner.rpartition("/")[2])]
        if not chosen:
            return 200, _said(None, _UNKNOWN)
        return 200, work(claimed, chosen, query)

    def _of(self, pod: str) -> list[Grant]:
        return [each for each in self.held() if each.owner.rpartition("/")[0] == pod]

    def _pod(self, pod: str, grants: list[Grant], query: Mapping[str, str]) -> dict[str, Any]:
        namespace, _, name = pod.partition("/")
        data = {
            "pod_name": name,
            "namespace": namespace,
            "gpu_uuids": list(dict.fromkeys(gpu for each in grants for gpu in each.gpus)),
            "tflops_limit": None,
            "vram_limit": min(each.memory_bytes for each in grants),
            "qos_level": None,
            "compute_shard": False,
            "isolation": "soft",
        }
        return _said(data, "")

    def _process(self, pod: str, grants: list[Grant], query: Mapping[str, str]) -> dict[str, Any]:
        namespace, _, name = pod.partition("/")
        text = query.get("container_pid", "")
        inside = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        folders = {homes.identity(self.boxes.home(each.key)): each for each in grants}
        folders.pop(None, None)
        for pid in _called(inside) if inside else ():
            grant = folders.get(homes.seen_by(pid))
            if grant is not None:
                data = {
                    "host_pid": pid,
                    "container_pid": inside,
                    "container_name": grant.owner.rpartition("/")[2],
                    "pod_name": name,
                    "namespace": namespace,
                }
                return _said(data, "")
        return _said(None, "no container of the pod has this process, as far as the agent sees")

    def _pod_of(self, token: str, claimed: str) -> str:
        """Whose token it is, as the API server says; "" is nobody's.

        Raises:
            ToolError: exit 1, the server cannot be asked, or would be asked too often.
        """
        key = hashlib.sha256(token.encode()).digest()
        now = self.clock()
        with self._lock:
            until, pod = self._known.get(key, (0.0, ""))
            if until > now:
                return pod
            recent = [at for at in self._reviews.get(claimed, ()) if at > now - 1]
            if len(recent) >= _MOST_REVIEWS:
                raise ToolError(
                    what=f"a token of {claimed} not looked at",
                    why=f"more than {_MOST_REVIEWS} others came within a second",
                    fix="See what its programs do; a program that asks again is answered",
                )
            self._reviews[claimed] = [*recent, now]
            if len(self._reviews) > _MOST_TOKENS:
                self._reviews.pop(next(iter(self._reviews)))
        pod = _named(self.review(token))
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = (now + _REMEMBERED_S, pod)
            if len(self._known) > _MOST_TOKENS:
                self._known.pop(next(iter(self._known)))
        return pod


def _claimed(token: str) -> str:
    """Whose token it says that it is, unproven, as namespace/pod; "" is nobody's."""
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        told = payload["kubernetes.io"]
        namespace, name = told["namespace"], told["pod"]["name"]
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        return ""
    fine = isinstance(namespace, str) and isinstance(name, str) and "/" not in namespace + name
    return f"{namespace}/{name}" if fine and namespace and name else ""


def _named(status: Mapping[str, Any]) -> str:
    """The pod of a TokenReview's status, as namespace/pod; "" where it is none's."""
    user = status.get("user") or {}
    if status.get("authenticated") is not True or not isinstance(user, dict):
        return ""
    names = (user.get("extra") or {}).get(_EXTRA) or [""]
    account = str(user.get("username", ""))
    namespace = account.removeprefix(_ACCOUNT).partition(":")[0]
    return f"{namespace}/{names[0]}" if account.startswith(_ACCOUNT) and names[0] else ""


def _said(data: dict[str, Any] | None, message: str) -> dict[str, Any]:
    return {"success": data is not None, "data": data, "message": message}


def _called(inside: int) -> list[int]:
    """Processes of the machine that have this number where they live."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if _number_inside(pid) == inside]


def _number_inside(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    words = next((line.split() for line in text.splitlines() if line.startswith("NSpid:")), ["0"])
    return int(words[-1])


def start(
    config: Config, boxes: Boxes, held: Callable[[], Collection[Grant]], stopped: threading.Event
) -> None:
    """Answer until `stopped` is set; nothing where the configuration names no address.

    Raises:
        ToolError: exit 1 or 2, there is no API server, or the address cannot be had.
    """
    if not config.hypervisor_listen:
        return
    made = Hypervisor(boxes, held, api.connect(config.api_server).bearer)
    hypervisor_server.start(config.hypervisor_listen, made.answer, stopped)
