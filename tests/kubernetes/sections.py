"""What ci/kubernetes does with a cluster, section by section; each prints a table."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from gpufence.errors import ToolError
from gpufence.node import checkpoint, desk

from .api import ApiError
from .cluster import NotReadyError
from .fenced import AGENT_FOLDER, PROBE, pod
from .found import DIALECTS, GPUS, Found, row
from .installed import chart
from .model import MIB, Asked, Model, percentile
from .steered import annotations

OVER = ("Succeeded", "Failed")


def dialects(found: Found) -> None:
    """Pods of each system, unchanged."""
    row("preset", "the pod asks for", "granted, then CUDA said", "NVIDIA_VISIBLE_DEVICES")
    row(*["---"] * 4)
    for preset, limits in DIALECTS.items():
        fenced = found.agent(preset)
        fenced.start_agent()
        fenced.await_offer(limits)
        fenced.create(pod("train", limits, f"echo VISIBLE $NVIDIA_VISIBLE_DEVICES; {PROBE}"))
        facts = found.await_facts(fenced, "train")
        uid = fenced.pods()["train"]["metadata"]["uid"]
        (seen,) = {s.text for s in fenced.said("train", uid) if s.text.startswith("VISIBLE")}
        asked = ", ".join(f"{name}: {count}" for name, count in limits.items())
        row(preset, asked, f"{facts['granted 0'] / MIB:.0f} MiB, then {facts['refused 0']}",
             seen.removeprefix("VISIBLE "))  # fmt: skip
        if (facts["granted 0"], facts["refused 0"]) != (1024 * MIB, 2):
            found.faults.append(f"{preset}: {facts}")
        found.clear(fenced)
        fenced.end_agent()


def unasked(found: Found) -> None:
    """A container waits for room, and a new kubelet starts it before the agent is back."""
    limits = DIALECTS["hami"]
    fenced = found.agent("hami")
    fenced.start_agent()
    fenced.await_offer(limits)
    big = {**limits, "nvidia.com/gpumem": 3072}
    for number in range(len(GPUS)):
        fenced.create(pod(f"first{number}", big))
    for number in range(len(GPUS)):
        found.await_facts(fenced, f"first{number}")
    # Its program gives up, as most do; one that goes on keeps what its container began with.
    command = "/bin/limit_probe; /bin/sleep 2; exit 1"
    waits = pod("waits", {**limits, "nvidia.com/gpumem": 2048}, command, "Always")
    log = found.cluster.log("agent")
    before = log.stat().st_size
    fenced.create(waits)
    found.cluster.wait(lambda: b"no room" in log.read_bytes()[before:], "word of no room", 60)
    fenced.end_agent(signal.SIGKILL)
    found.cluster.stop_kubelet()
    found.cluster.start_kubelet()
    first: dict[str, Any] = {"init": "it did not start"}
    with suppress(NotReadyError):  # where the runtime reads CDI devices, it misses this one
        first = found.await_facts(fenced, "waits", 45)
    fenced.delete("first0")
    fenced.start_agent()
    fenced.await_offer(limits)
    found.cluster.wait(
        lambda: found.await_facts(fenced, "waits")["init"] == 0, "a start with a limit", 180
    )
    second = found.await_facts(fenced, "waits")
    row("start", "cuInit", "granted MiB", "then CUDA said")
    row(*["---"] * 4)
    for name, each in (("by a kubelet that knew no agent yet", first), ("a later one", second)):
        granted = each.get("granted 0", 0)
        row(name, each["init"], granted // MIB, each.get("refused 0", "-"))
    if first["init"] == 0 or second["granted 0"] != 2048 * MIB:
        found.faults.append(f"unasked: {first}, {second}")
    found.clear(fenced)
    fenced.end_agent()


def calm(found: Found) -> None:
    """From a pod's creation to its limit in force, one pod after another; beside pods without."""
    limits = DIALECTS["hami"]
    fenced = found.agent("hami")
    fenced.start_agent()
    fenced.await_offer(limits)
    row("pods, one after another", "number", "p50 s", "p99 s", "slowest s")
    row(*["---"] * 5)
    for kind, wanted, seconds in (("without a GPU", {}, []), ("fenced", limits, [])):
        for number in range(found.amounts.calm):
            name = f"{'fenced' if wanted else 'plain'}{number}"
            began = time.time()
            fenced.create(pod(name, wanted))
            seconds.append(found.await_facts(fenced, name)["at"] - began)
            fenced.delete(name)
        figures = (percentile(seconds, 50), percentile(seconds, 99), max(seconds))
        row(kind, len(seconds), *(f"{each:.2f}" for each in figures))
    found.clear(fenced)
    fenced.end_agent()


def storm(found: Found) -> None:
    """Many pods, while agent and kubelet are killed at random moments; none after --minutes."""
    made = Storm(found, random.Random(found.amounts.seed))
    made.run()
    amounts, model = found.amounts, made.model
    rows = {
        "pods that ran to their end": made.done,
        **{f"pods that never began ({why}), made anew": n for why, n in made.refused.items()},
        **{f"pods that a kubelet ended ({why}), made anew": n for why, n in made.ended.items()},
        "most pods at once": made.most,
        "agent killed (-9)": made.kills["agent"],
        "kubelet killed (-9), its sockets made anew": made.kills["kubelet"],
        "looks at all grants": model.looks,
        "programs that were refused at their limit": made.programs,
        "programs that saw no GPU, started before the agent was back": len(model.without_gpu),
        "wrong limits": len(model.wrong),
        "lost grants": len(model.lost),
        "given out twice": len(model.double),
        "creation to limit in force, p50, p99": ", ".join(
            f"{percentile(made.seconds, percent):.1f} s" for percent in (50, 99)
        ),
        "seed": amounts.seed,
    }
    row("what", "how often")
    row("---", "---")
    for what, count in rows.items():
        row(what, count)
    found.faults += sorted([*model.wrong, *model.lost, *model.double])
    if made.done < amounts.pods:
        found.faults.append(f"only {made.done} pods of {amounts.pods} ran")


SECTIONS = {
    "dialects": dialects,
    "annotations": annotations,
    "chart": chart,
    "unasked": unasked,
    "calm": calm,
    "storm": storm,
}


class Storm:
    """Pods come, run a while and go; between them somebody kills the agent or the kubelet."""

    def __init__(self, found: Found, dice: random.Random) -> None:
        """The agent runs when this returns."""
        self.found = found
        self.dice = dice
        self.fenced = found.agent("hami", settle_seconds=10)
        self.model = Model(GPUS, 10)
        self.kills = {"agent": 0, "kubelet": 0}
        self.done = self.programs = self.most = self.made = 0
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.seconds: list[float] = []
        self._created: dict[str, float] = {}
        self._told: set[str] = set()
        self._running: dict[str, int] = {}
        self._dead: dict[str, float] = {}
        self._next_kill = 0.0
        self.fenced.start_agent()
        self.fenced.await_offer(DIALECTS["hami"])

    def run(self) -> None:
        """Until all pods have run, or nothing goes on any more."""
        amounts = self.found.amounts
        last, ends = -1, time.monotonic() + 600
        late = time.monotonic() + 60 * amounts.minutes
        while self.done < amounts.pods and time.monotonic() < ends:
            if time.monotonic() < late:
                self._come()
                self._kill()
            elif self._created:
                self._revive(True)
            else:
                break
            try:
                self._look()
            except ApiError:
                time.sleep(0.5)
            if self.done != last:
                last, ends = self.done, time.monotonic() + 600
            time.sleep(0.2)
        self._revive(True)
        self.found.clear(self.fenced)
        self.fenced.end_agent()

    def _come(self) -> None:
        amounts = self.found.amounts
        left = amounts.pods - self.done - len(self._created)
        if left <= 0 or len(self._created) >= amounts.at_once:
            return
        if sum(self.kills.values()) < self._due() - 3:
            return  # pods are fast: the kills come to their number as well
        asked = Asked(self.dice.choice((256, 512, 1024, 2048)), self.dice.choice((5, 10, 30)))
        name = f"pod{self.made}"
        self.made += 1
        self.model.asked[name] = asked
        limits = dict(zip(DIALECTS["hami"], (1, asked.memory_mib, asked.cores), strict=True))
        command = f"/bin/limit_probe; /bin/sleep {self.dice.uniform(1, 8):.1f}; echo END"
        self._created[name] = time.time()
        self.fenced.create(pod(name, limits, command))
        self.most = max(self.most, len(self._created))

    def _kill(self) -> None:
        """Spread over the pods: as many as are due by what has run so far."""
        self._revive(False)
        if sum(self.kills.values()) >= self._due() or self._dead:
            return
        if time.monotonic() < self._next_kill:
            return
        who = self.dice.choice(("agent", "agent", "kubelet"))
        if who == "agent":
            self.fenced.end_agent(signal.SIGKILL)
        else:
            self.found.cluster.stop_kubelet()
        self.kills[who] += 1
        self._dead[who] = time.monotonic() + self.dice.uniform(0, 2)

    def _due(self) -> float:
        amounts = self.found.amounts
        return min(amounts.kills, amounts.kills * (self.done + 1) / amounts.pods)

    def _revive(self, all_of_them: bool) -> None:
        for who, until in list(self._dead.items()):
            if all_of_them or time.monotonic() >= until:
                del self._dead[who]
                (self.fenced.start_agent if who == "agent" else self.found.cluster.start_kubelet)()
                self._next_kill = time.monotonic() + self.dice.uniform(0, 6)

    def _look(self) -> None:
        """At the checkpoint between two looks at the pods, and at what programs said."""
        before = self._of_pods()
        try:
            grants = checkpoint.read(AGENT_FOLDER / desk.CHECKPOINT).values()
        except ToolError as error:
            self.model.lost.add(str(error))
            return
        pods = self.fenced.pods()
        # What the API server knows may be old, while the kubelet is dead: a program says its end.
        runs = {
            name
            for name in before & self._told & set(pods)
            if _runs(pods[name])
            and all(s.text != "END" for s in self.fenced.said(name, pods[name]["metadata"]["uid"]))
        }
        self.model.look(list(grants), runs)
        for name in list(self._created):
            if name in pods:
                self._one(name, pods[name])

    def _of_pods(self) -> set[str]:
        return {name for name, each in self.fenced.pods().items() if _runs(each)}

    def _one(self, name: str, seen: dict[str, Any]) -> None:
        facts = self.found.facts(self.fenced, name, seen["metadata"]["uid"])
        if facts and name not in self._told:
            self._told.add(name)
            self.model.program(name, {k: v for k, v in facts[0].items() if k != "at"})
            if name not in self.model.without_gpu:
                self.programs += 1
                self.seconds.append(facts[0]["at"] - self._created[name])
        phase = seen["status"].get("phase")
        if phase not in OVER:
            return
        if not facts:  # no program ran: whoever made the pod makes another
            self.refused[_why(seen)] += 1
        elif why := seen["status"].get("reason"):  # a new kubelet may end what it finds running
            by_itself = any(
                s.text == "END" for s in self.fenced.said(name, seen["metadata"]["uid"])
            )
            self.ended[f"{why}, {'after' if by_itself else 'before'} its program's own end"] += 1
        elif phase != "Succeeded":
            self.model.lost.add(f"{name} ended as {seen['status']}")
        elif name not in self.model.without_gpu:
            self.done += 1
        if phase != "Succeeded":
            print(f"{name}: {facts} {seen['status']}", file=sys.stderr, flush=True)
        self.fenced.delete(name)
        del self._created[name]


def _why(seen: dict[str, Any]) -> str:
    """A pod's reason, else its container's."""
    states = [each["state"] for each in seen["status"].get("containerStatuses", ())]
    of_container = (each["terminated"]["reason"] for each in states if "terminated" in each)
    return str(seen["status"].get("reason") or next(of_container, "none"))


def _runs(seen: dict[str, Any]) -> bool:
    states = seen["status"].get("containerStatuses", ())
    return any("running" in each.get("state", {}) for each in states)
