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
class _Progress:
    """How far one of them was told: so many steps, and why the next one failed the last time."""

    steps: int = 0
    failure: str = ""


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
    _told: dict[_Known, _Progress] = field(default_factory=dict)

    def tell(self, found: Sequence[Bypass]) -> None:
        """Tell of those who were not there the last time. Who stops and begins again is told again.

        Where the server cannot be told, a line says so once, and what it was not told yet is tried
        again with the next look.
        """
        now = {(each.reason, each.seen.uuid, each.seen.pid): each for each in found}
        self._told = {known: far for known, far in self._told.items() if known in now}
        for known, each in now.items():
            self._tell(each, self._told.setdefault(known, _Progress()))

    def _tell(self, each: Bypass, far: _Progress) -> None:
        steps = [self._say, self._make_event] + [self._ask_eviction] * self.asks_eviction
        if far.steps == len(steps):
            return
        called = self.called(each.seen.pid)
        try:
            for step in steps[far.steps :]:
                step(each, called)
                far.steps += 1
        except ToolError as error:
            if far.failure != str(error):
                print(f"gpufence: {error}", file=sys.stderr, flush=True)
            far.failure = str(error)

    def _say(self, each: Bypass, called: Called) -> None:
        whose = f" of {called.namespace}/{called.pod}" if called.pod else ""
        print(f"gpufence: {one_line(self.line(each))}{whose}", file=sys.stderr, flush=True)

    def _make_event(self, each: Bypass, called: Called) -> None:
        if self.server is not None and called.pod and called.namespace:
            event = self._event(each, called, self.line(each))
            self.server.post(f"/api/v1/namespaces/{called.namespace}/events", event)

    def _ask_eviction(self, each: Bypass, called: Called) -> None:
        if self.server is not None and called.pod and called.namespace:
            note = {"metadata": {"annotations": {EVICT: each.reason.value}}}
            self.server.patch(f"/api/v1/namespaces/{called.namespace}/pods/{called.pod}", note)

    def _event(self, each: Bypass, called: Called, text: str) -> dict[str, Any]:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        subject = {"namespace": called.namespace, "name": called.pod}
        if called.uid:  # `kubectl describe` shows only Events that name it
            subject["uid"] = called.uid
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
