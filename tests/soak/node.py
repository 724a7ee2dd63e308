"""The node of the soak: containers on one simulated GPU, what happens to them, and the roll call.

Residents stay for as long as the soak does and are what is measured; everything else comes, goes
and dies around them. Must not know what is a tolerance, nor print.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpufence.state import region
from gpufence.state.shared_file import Life

from tests.support.machine import REPO, Sim

from . import judging, members
from .judging import MIB, Allowance, Share
from .members import LostError, Member
from .quota import Quota

MACHINE = {"MEMORY": "16g", "CONTEXT_BYTES": "2m"}
MOST_PASSING, MOST_MEMBERS = 5, 4
RATIO = 2  # of oversold memory
LEDGER_LOOKS, LEDGER_PAUSE_S = 20, 0.05
_NAME = re.compile(r"gpufence-(?P<name>[a-z]+[0-9]*)\.")


@dataclass(slots=True)
class Container:
    """One container: its limits, and its processes; the first of a resident's never dies."""

    name: str
    kind: str
    memory: Allowance
    share: Share
    resident: bool
    members: list[Member] = field(default_factory=list)
    frozen: bool = False
    is_set: bool = False


@dataclass(slots=True)
class Roll:
    """What a roll call saw."""

    problems: list[str]
    held_mib: int
    most_mib: int  # at any moment since the last one
    allowed_mib: int
    files: dict[str, int]
    residents_kib: int  # of disk, in the state folder


class Node:
    """Everything that runs; `counts` says how often what was done."""

    def __init__(self, build: Path, folder: Path, dice: random.Random) -> None:
        """Start the residents."""
        self.sim = Sim(build, folder / "machine").with_env(**MACHINE)
        self.state, self.node = folder / "state", folder / "node"
        for each in (self.state, self.node):
            each.mkdir()
            each.chmod(0o1777)
        self.dice = dice
        self.quota = Quota.made()
        self.counts: Counter[str] = Counter()
        self.containers: dict[str, Container] = {}
        self.allowed = 0  # by all containers together, since the last roll call
        self.born = 0
        self.watcher = self.sim.spawn(sys.executable, REPO / "tests" / "soak" / "watch.py")
        for kind in ("memory", "launch", "oversold"):
            self.come(kind, f"stays{kind}", resident=True)
        # What a first freeze brings (a thread, the turns) is not for the rounds to grow by.
        for container in self.containers.values():
            self.freeze(container)
        self.roll_call()

    # ---- what happens ----

    def come(self, kind: str, name: str = "", *, resident: bool = False) -> None:
        """A new container, with a process or more."""
        self.born += 1
        limit = self._draw_limit(kind)
        percent = self.dice.choice((5, 10, 15, 30)) if kind == "launch" else 0
        container = Container(
            name or f"passes{self.born}",
            kind,
            Allowance(limit // (RATIO if kind == "oversold" else 1)),
            Share(percent, time.monotonic_ns()),
            resident,
        )
        self.containers[container.name] = container
        self._bound()
        first_limits = {"MEMORY_LIMIT": str(limit), "CORE_LIMIT": str(percent)}
        self.add(container, first_limits)
        for _ in range(self.dice.randrange(MOST_MEMBERS - 1)):
            self.add(container, first_limits)

    def add(self, container: Container, limits: dict[str, str] | None = None) -> None:
        """One more process; oversold containers have one, since it is driven step by step."""
        if container.kind == "oversold" and container.members:
            return
        # Whoever is stopped may hold all that there is, and a newcomer needs a context.
        for each in container.members:
            each.go_on()
        wanted = limits or {"MEMORY_LIMIT": str(container.memory.limit), "CORE_LIMIT": "0"}
        if container.kind == "launch":
            wanted["CORE_LIMIT"] = f"{container.share.percent:g}"
        if container.kind == "oversold":
            wanted["OVERSUBSCRIBE"] = str(RATIO)
        named = {f"GPUFENCE_{name}": value for name, value in wanted.items()}
        env = {
            "GPUFENCE_CONTAINER": container.name,
            "GPUFENCE_STATE_DIR": str(self.state),
            "GPUFENCE_NODE_DIR": str(self.node),
        }
        member = members.start(self.sim, container.kind, {**env, **named}, self.dice)
        container.members.append(member)
        self.counts["processes"] += 1

    def leave(self, container: Container) -> None:
        """All of its processes end: by a kill, which one that is held needs, or by themselves."""
        politely = self.dice.random() < 0.5 and not container.frozen
        for each in container.members:
            each.end(politely)
            self.counts["left" if politely else "killed"] += 1
        del self.containers[container.name]
        self.counts["containers ended"] += 1

    def kill(self, container: Container) -> None:
        """One process dies, and mostly there is another one at once."""
        mortal = container.members[1:] if container.resident else container.members
        if container.frozen and len(container.members) == 1:
            return  # those who are held give nothing back: a newcomer might find no room
        if not mortal:
            self.add(container)
            return
        victim = self.dice.choice(mortal)
        victim.end()
        container.members.remove(victim)
        self.counts["killed"] += 1
        if not container.members or (not container.frozen and self.dice.random() < 0.8):
            self.add(container)

    def change(self, container: Container) -> None:
        """`gpufence set`, of memory or of the share."""
        if container.kind == "launch" and self.dice.random() < 0.7:
            percent = self.dice.choice((5, 10, 15, 30))
            # The higher of the two until the command has returned, and the lower one after.
            container.share.change(max(percent, container.share.percent), time.monotonic_ns())
            self._command("set", container.name, "--cores", str(percent))
            container.share.change(percent, time.monotonic_ns())
        else:
            limit = self._draw_limit(container.kind)
            part = limit // (RATIO if container.kind == "oversold" else 1)
            container.memory.change(max(part, container.memory.limit))
            self._command("set", container.name, "--memory", str(limit))
            container.memory.change(part)
            self._bound()
        container.is_set = True
        self.counts["set"] += 1

    def freeze(self, container: Container) -> None:
        """`gpufence freeze`, until the roll call; nothing of it may launch meanwhile."""
        if container.frozen or container.kind == "oversold":
            return
        self._command("freeze", container.name)
        container.frozen = True
        self.counts["frozen"] += 1
        if container.kind != "launch":
            return
        for each in container.members:
            each.go_on()
            launched = int(each.ask("settled")[0])
            each.ask("idle")
            if int(each.ask("ended")[0]) != launched:
                raise LostError(f"process {each.pid} has launches that never ended")

    def disturb(self) -> None:
        """One thing happens to somebody."""
        passing = [each for each in self.containers.values() if not each.resident]
        if len(passing) < 2 or (len(passing) < MOST_PASSING and self.dice.random() < 0.15):
            self.come(self.dice.choice(("memory", "memory", "launch", "oversold")))
            return
        container = self.dice.choice(list(self.containers.values()))
        deed = self.dice.choice(("leave", "kill", "kill", "stop", "throttle", "change", "freeze"))
        if deed == "leave" and not container.resident:
            self.leave(container)
        elif deed in ("kill", "leave"):
            self.kill(container)
        elif deed == "change":
            self.change(container)
        elif deed == "freeze":
            self.freeze(container)
        elif container.kind != "oversold":
            member = self.dice.choice(container.members)
            if member.stopped:
                return
            if deed == "throttle":
                member.throttle(self.sim, self.quota, self.dice.randint(2, 20))
            else:
                member.stopped = self.sim.stop(member.process)
            self.counts["throttled" if deed == "throttle" else "stopped"] += 1

    def pass_time(self, seconds: float) -> None:
        """Everybody works; those who are driven step by step take some steps."""
        end = time.monotonic() + seconds
        for container in self.containers.values():
            if container.kind == "oversold":
                members.wander(container.members[0], self.dice, self.dice.randint(1, 8))
        time.sleep(max(0.0, end - time.monotonic()))

    # ---- the roll call ----

    def roll_call(self) -> Roll:
        """Everybody stands still: the ledger is what the driver holds, and no limit was passed."""
        for container in self.containers.values():
            for each in container.members:
                each.go_on()
            if container.frozen:
                self._command("resume", container.name)
                container.frozen = False
        self._stand("stand")
        problems = [*self._settled_ledger(), *self._shares()]
        most_mib, allowed_mib = self._most() // MIB, self.allowed // MIB
        if most_mib > allowed_mib:
            problems.append(f"{most_mib} MiB were in use at once where {allowed_mib} are allowed")
        self._command("prune", "--all")
        files = self._files()
        problems += [f"'{name}' is left in the state folder" for name in files["left"]]
        if len(files["node"]) > len(self.containers) + 1:  # one is the GPU's
            problems.append(f"{len(files['node'])} files in the node folder")
        held = sum(self._held(self._processes()).values())
        self.allowed = 0
        self._bound()
        counted = {name: len(each) for name, each in files.items()}
        self._stand("go")
        stays = (p for p in self.state.iterdir() if p.name.startswith("gpufence-stays"))
        kib = sum(path.stat().st_blocks for path in stays) // 2
        return Roll(problems, held // MIB, most_mib, allowed_mib, counted, kib)

    def residents(self) -> list[Member]:
        """Who was there from the beginning."""
        return [each.members[0] for each in self.containers.values() if each.resident]

    def end(self) -> None:
        """Kill whatever lives."""
        for container in self.containers.values():
            for each in container.members:
                each.end()
        self.watcher.kill()
        self.watcher.communicate()
        if self.quota is not None:
            self.counts["stopped by the kernel's quota"] = self.quota.times()
            self.quota.end()

    # Implementation.

    def _draw_limit(self, kind: str) -> int:
        """Little enough that it is reached; launches take contexts and streams alone."""
        return (
            self.dice.randrange(32, 65, 8) * MIB
            if kind == "launch"
            else (self.dice.randrange(96, 385, 32) * MIB)
        )

    def _stand(self, word: str) -> None:
        """Tell those who allocate without a pause; their answers say that they stand."""
        told = [e for c in self.containers.values() if c.kind == "memory" for e in c.members]
        for each in told:
            each.say(word)
        for each in told if word == "stand" else ():
            answer = each.hear()
            if answer[:2] != ["holds", "0"]:
                raise LostError(f"process {each.pid} was told {answer[1]} by the driver")
            self.counts["granted"] += int(answer[3])
            self.counts["refused"] += int(answer[4])
        for container in self.containers.values() if word == "stand" else ():
            if container.kind == "memory":
                container.members[0].ask("full")
        for container in self.containers.values() if word == "stand" else ():
            if container.kind == "oversold":
                for _ in range(2):  # what is freed in a stream's order goes with the second
                    container.members[0].ask("sync")

    def _settled_ledger(self) -> list[str]:
        """The same as _ledger(); read again where it differs, for a second.

        Whoever launches does not stand, takes memory with its first launches, and is asked of the
        driver a moment before it is read of the ledger. What is lost stays so.
        """
        for _ in range(LEDGER_LOOKS):
            problems = self._ledger()
            if not problems:
                break
            self.counts["ledgers read again"] += 1
            time.sleep(LEDGER_PAUSE_S)
        return problems

    def _ledger(self) -> list[str]:
        """What is wrong between the ledgers, the limits and the driver."""
        problems = []
        processes = self._processes()
        holds = self._held(processes)
        charged = {}
        for container in self.containers.values():
            devices = region.read(self.state / f"gpufence-{container.name}.v5").devices
            uses = [use for use in devices[0].uses if use.used_bytes > 0]
            # A killed process is charged until somebody needs room: so "full", above.
            dead = [use.owner.pid for use in uses if use.owner.life is not Life.ALIVE]
            if dead and container.kind == "memory":
                problems.append(f"'{container.name}' is charged for the dead: {dead}")
            uses = [use for use in uses if use.owner.life is Life.ALIVE]
            oversold = container.kind == "oversold"
            of_it = {u.owner.pid: u.resident_bytes if oversold else u.used_bytes for u in uses}
            charged |= of_it
            problem = container.memory.settle(sum(of_it.values()))
            problems += [f"'{container.name}' {problem}"] if problem else []
        return [*problems, *judging.ledger(charged, holds)]

    def _shares(self) -> list[str]:
        problems = []
        for container in self.containers.values():
            if container.kind != "launch":
                continue
            took = sum(members.kernels_ns(each) for each in container.members)
            allowed = container.share
            problem = allowed.settle(took, time.monotonic_ns())
            problems += [f"'{container.name}' {problem}"] if problem else []
            self.counts["kernel ms"] += took // 1_000_000
            if any(int(each.ask("wrong")[0]) for each in container.members):
                problems.append(f"'{container.name}' has kernels that ended out of order")
        return problems

    def _processes(self) -> set[int]:
        return {each.pid for c in self.containers.values() for each in c.members}

    def _held(self, processes: set[int]) -> dict[int, int]:
        """What NVML says without the library, by process."""
        told = self.sim.run("nvml_query", "processes", 0, 64).facts["v3"]
        if told["rc"] != 0 or told["count"] > len(processes):
            raise LostError(f"NVML lists {told['count']} processes of {len(processes)}")
        return {each["pid"]: each["bytes"] for each in told["list"]}

    def _most(self) -> int:
        """The most that was in use at once since the last roll call."""
        assert self.watcher.stdin
        assert self.watcher.stdout
        self.watcher.stdin.write("\n")
        self.watcher.stdin.flush()
        return int(self.watcher.stdout.readline())

    def _bound(self) -> None:
        """Those who left may have been there with the newcomers: the highest sum counts."""
        together = sum(each.memory.most for each in self.containers.values())
        self.allowed = max(self.allowed, together)

    def _files(self) -> dict[str, list[str]]:
        """Names in the folders; `left` are those of containers that ended."""
        names = sorted(path.name for path in self.state.iterdir())
        owners = {name: found["name"] for name in names if (found := _NAME.match(name))}
        return {
            "nobody's": [name for name in names if name not in owners],
            "left": [name for name, owner in owners.items() if owner not in self.containers],
            "node": [path.name for path in self.node.iterdir()],
        }

    def _command(self, *words: str) -> None:
        """A command of an operator, which must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "gpufence", *words, "--state-dir", str(self.state)],
            capture_output=True,
            text=True,
            timeout=members.PATIENCE_S,
            check=False,
        )
        if done.returncode != 0:
            raise LostError(f"gpufence {' '.join(words)}: {done.stderr.strip()}")
        self.counts["commands"] += 1


def facts_of(pid: int) -> dict[str, int]:
    """What a long-lived process has of the machine."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.findall(r"^(Rss\w+|Threads):\s+(\d+)", status, re.MULTILINE)
    kib = {name: int(value) for name, value in found}
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").count("\n")
    # One for each neighbour that launches, who come and go.
    descriptors = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            descriptors += "/gpufence-turns" not in str(path.readlink())
    return {
        "anonymous KiB": kib["RssAnon"],
        "shared KiB": kib["RssShmem"] + kib["RssFile"],
        "descriptors": descriptors,
        "threads": kib["Threads"],
        "mappings": maps,
    }
