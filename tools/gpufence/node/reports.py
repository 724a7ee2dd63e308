"""Who begins to go around a limit is told once: a line, an Event of its pod, an annotation.

Owns what was told already, and the words; must not know how anybody was found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from gpufence.errors import ToolError, one_line
from gpufence.machine.engines import Called

from .api import Api
from .bypass import Bypass, Reason
from .pod_limits import DOMAIN

EVICT = f"{DOMAIN}/evict"
_LONGEST_MESSAGE = 1024  # of an Event

_Known = tuple[Reason, str, int]


@dataclass(slots=True)
class Reports:
    """What is told of whom; without a server only lines are.

    `called` says what the engine calls the container of a process; `asks_eviction` has the pod
    annotated.
    """

    line: Callable[[Bypass], str]
    called: Callable[[int], Called]
    server: Api | None = None
    node: str = ""
    asks_eviction: bool = False
    _told: set[_Known] = field(default_factory=set)

    def tell(self, found: Sequence[Bypass]) -> None:
        """Tell of those who were not there the last time. Who stops and begins again is told again.

        Where the server cannot be told, a line says so, and it is tried again with the next look.
        """
        now = {(each.reason, each.seen.uuid, each.seen.pid): each for each in found}
        self._told &= now.keys()
        for known, each in now.items():
            if known not in self._told and self._tell(each):
                self._told.add(known)

    def _tell(self, each: Bypass) -> bool:
        called = self.called(each.seen.pid)
        whose = f" of {called.namespace}/{called.pod}" if called.pod else ""
        text = self.line(each)
        print(f"gpufence: {one_line(text)}{whose}", file=sys.stderr, flush=True)
        if self.server is None or not (called.pod and called.namespace):
            return True
        try:
            event = self._event(each, called, text)
            self.server.post(f"/api/v1/namespaces/{called.namespace}/events", event)
            if self.asks_eviction:
                note = {"metadata": {"annotations": {EVICT: each.reason.value}}}
                self.server.patch(f"/api/v1/namespaces/{called.namespace}/pods/{called.pod}", note)
        except ToolError as error:
            print(f"gpufence: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _event(self, each: Bypass, called: Called, text: str) -> dict[str, Any]:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        subject = {"namespace": called.namespace, "name": called.pod}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{called.pod[:200]}.", "namespace": called.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **subject},
            "type": "Warning",
            "reason": f"GpuLimit{each.reason.value.capitalize()}",
            "message": one_line(text)[:_LONGEST_MESSAGE],
            "source": {"component": "gpufence", "host": self.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
