"""The section `annotations`: how soon what a pod says is in force, while its program runs.

Must not know how the agent sets a limit: the program in the pod says what it sees.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from .cluster import NODE
from .fenced import REPO, Fenced, pod
from .found import DIALECTS, Found, row
from .model import MIB, percentile

_PROMISED_SECONDS = 1.0
_WATCH = "exec /bin/limit_watch"
_PATIENCE = 30.0
# What the pod has by its resources: an annotation gives no more.
_GIVEN_MIB = 1024


def annotations(found: Found) -> None:
    """Limits by annotation, on a pod that runs; then taken back."""
    limits = DIALECTS["hami"]
    found.cluster.run("kubectl", "apply", "-f", str(REPO / "deploy/kustomize/pods/pods.yaml"))
    address = found.cluster.account()
    words = ["memory", "cores", "frozen"]
    fenced = found.agent("hami", api_server=address, node_name=NODE, annotations=words)
    fenced.start_agent()
    fenced.await_offer(limits)
    fenced.create(pod("train", limits, _WATCH))
    uid = fenced.pods()["train"]["metadata"]["uid"]
    watched = Watched(found, fenced, uid)
    watched.await_line(lambda line: line.get("total") == _GIVEN_MIB * MIB, time.time())
    dice = random.Random(found.amounts.seed)
    seconds: dict[str, list[float]] = {"memory": [], "frozen": [], "thawed": [], "taken back": []}
    for _ in range(found.amounts.calm):
        mib = dice.randrange(128, _GIVEN_MIB, 64)
        seconds["memory"].append(watched.say("total", mib * MIB, memory=f"{mib}MiB"))
        seconds["taken back"].append(watched.say("total", _GIVEN_MIB * MIB, memory=None))
        seconds["frozen"].append(watched.say("held", 1, frozen="true"))
        seconds["thawed"].append(watched.say("held", 0, frozen="false"))
        time.sleep(dice.uniform(0.1, 0.6))  # at any moment of the agent's looks
    more = watched.say("total", 512 * MIB, memory="512MiB")
    given = watched.say("total", _GIVEN_MIB * MIB, memory="3GiB")
    row("said while the pod runs", "times", "p50 s", "p99 s", "slowest s")
    row(*["---"] * 5)
    for what, each in seconds.items():
        row(what, len(each), *(f"{percentile(each, p):.2f}" for p in (50, 99, 100)))
        if percentile(each, 99) > _PROMISED_SECONDS:
            found.faults.append(f"annotations: {what} took {max(each):.2f} s")
    row("more memory than was given: what was given", 1, *[f"{max(more, given):.2f}"] * 3)
    found.clear(fenced)
    fenced.end_agent()


class Watched:
    """The program limit_watch in the pod: what it said, and when that was so."""

    def __init__(self, found: Found, fenced: Fenced, uid: str) -> None:
        self._found = found
        self._fenced = fenced
        self._uid = uid

    def say(self, fact: str, value: int, **said: str | None) -> float:
        """Annotate; the seconds until the program sees the fact have the value."""
        began = time.time()
        self._fenced.annotate("train", {f"gpufence.io/{key}": text for key, text in said.items()})
        return self.await_line(lambda line: line.get(fact) == value, began) - began

    def await_line(self, wanted: Callable[[dict[str, Any]], bool], since: float) -> float:
        """The moment of the first such line; what was held has been so for a while."""
        moments: list[float] = []

        def seen() -> bool:
            lines = self._found.facts(self._fenced, "train", self._uid)
            moments.extend(
                line["at"] - line.get("for", 0) / 1000
                for line in lines
                if line["at"] >= since and wanted(line)
            )
            return bool(moments)

        self._found.cluster.wait(seen, f"a word of train since {since:.1f}", _PATIENCE)
        return moments[0]
