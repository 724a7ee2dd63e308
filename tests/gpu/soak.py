"""Containers on one GPU for minutes or hours, by a seed: what is lost, passed or grown.

`soak.py --build DIR --seconds S --output FILE [--seed N] [--sim]`. Processes take and give memory,
launch kernels or train with PyTorch; they come, end and are killed; limits are set, containers
frozen and resumed, processes stopped. NVML is asked all the while what each container holds, and at
each roll call everybody's charge is held against it. Three containers stay throughout: of their
processes, and of the state folder, nothing may grow, and each training must learn the same. FILE is
written every half minute. Exit status 0, or 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "soak"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import judging
from colocation.kernels import compile_kernels
from colocation.session import Kernels
from driven import DrivenError
from gpufence.machine.gpus import Nvml
from gpufence.state import region
from gpufence.state.shared_file import Life
from looking import repeated
from node_stage import ASK_UUID
from setup import REPO, import_our_tests
from soak_members import MIB, Container, Launcher, Member, Taker, Trainer, everybody_waits
from soak_watch import LOOK_S, Watch

# What may grow by how much: a driver keeps books of its own, in pages and for each launch.
MOST_MORE = {
    "anonymous KiB": 4096,
    "shared KiB": 4096,
    "descriptors": 4,
    "threads": 2,
    "mappings": 64,
    "files": 0,
    "KiB": 256,
}
MOST_PASSING = 4
MOST_MEMBERS = {"taker": 3, "launcher": 3, "trainer": 1}
PASSING = ("taker", "taker", "launcher", "launcher", "trainer")
MEMORY_MIB, CORES = (2560, 3072, 4096), (10, 20, 30)
EVENTS = 8  # from roll call to roll call
SLACK = 8 * MIB  # between what NVML says and what is charged
COMMAND_S = 60.0
TELL_S = 30.0


class Soak:
    """What runs, and what was seen."""

    def __init__(self, build: Path, folder: Path, seed: int, *, simulated: bool) -> None:
        self.dice = random.Random(seed)
        self.build, self.folder, self.simulated = build, folder, simulated
        self.state, self.node = folder / "state", folder / "turns"
        for each in (self.state, self.node):
            each.mkdir()
            each.chmod(0o1777)
        self.kernels: Kernels = compile_kernels([build], folder, os.environ)
        self.uuid = _uuid()
        nvml = Nvml.open()
        assert nvml is not None
        self.nvml: Nvml = nvml
        self.at_first = self._used()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.farthest = 0  # bytes between NVML and a charge, at any roll call
        self.containers: dict[str, Container] = {}
        self.born = 0
        self.watch = Watch(nvml, self.uuid)

    def run(self, seconds: float, told: Callable[[], None]) -> None:
        """Events until the time is over or something is wrong; `told` is called now and then."""
        end = time.monotonic() + seconds
        next_s = time.monotonic() + TELL_S
        with repeated(self.watch.look, LOOK_S):
            for kind in ("taker", "launcher", "trainer"):
                self.come(kind, f"stays{kind}", resident=True)
            while time.monotonic() < end and not self.problems:
                for _ in range(EVENTS):
                    self.happen()
                    self.work()
                    self.note()
                self.roll_call()
                self.problems += self.watch.problems()
                if time.monotonic() >= next_s:
                    told()
                    next_s += TELL_S

    def end(self) -> None:
        """Everybody ends; then the GPU must have what it had, and the folder nothing."""
        for container in self.containers.values():
            for member in container.members:
                member.kill()
        self.containers.clear()
        self.command("prune", "--all")
        left = [path.name for path in self.state.iterdir() if path.name.startswith("gpufence-")]
        if left:
            self.problems.append(f"left in the state folder: {left}")
        lost = self._lost()
        if lost:
            self.problems.append(f"{lost} bytes are held by nobody, as NVML says")

    # ---- what happens ----

    def happen(self) -> None:
        """One thing, to somebody."""
        passing = [each for each in self.containers.values() if not each.resident]
        if len(passing) < 2 or (len(passing) < MOST_PASSING and self.dice.random() < 0.2):
            self.come(self.dice.choice(PASSING))
            return
        container = self.dice.choice([c for c in self.containers.values() if c.members])
        deeds: list[Callable[[Container], None]] = [self.kill, self.kill, self.set, self.freeze]
        deeds += [] if self.simulated else [self.stop]  # it could have the simulator's lock
        deeds += [] if container.resident else [self.leave]
        self.dice.choice(deeds)(container)

    def come(self, kind: str, name: str = "", *, resident: bool = False) -> None:
        """A container begins."""
        self.born += 1
        limits = self.dice.choice(MEMORY_MIB), self.dice.choice(CORES)
        container = Container(name or f"passes{self.born}", kind, *limits, resident=resident)
        self.containers[container.name] = container
        self.watch.know(container)
        for _ in range(min(self.dice.randint(1, 2), MOST_MEMBERS[kind])):
            self.add(container)
        self.counts["containers"] += 1

    def add(self, container: Container) -> None:
        """One more process, if its neighbours leave it room for a context."""
        env = {
            **os.environ,
            "LD_PRELOAD": str(self.build / "lib" / "libgpufence.so"),
            "GPUFENCE_CONTAINER": container.name,
            "GPUFENCE_STATE_DIR": str(self.state),
            "GPUFENCE_NODE_DIR": str(self.node),
            "GPUFENCE_MEMORY_LIMIT": f"{container.first_mib}MiB",
            "GPUFENCE_CORE_LIMIT": str(container.first_cores),
        }
        member: Member
        if container.kind == "taker":
            found = Taker.start(self.build / "tests" / "charge_addresses", env)
            if found is None:
                self.counts["found no room"] += 1
                return
            member = found
        elif container.kind == "trainer":
            member = Trainer.start(env, simulated=self.simulated)
        else:
            self.counts["launchers"] += 1
            records = self.folder / f"records{self.counts['launchers']}"
            member = Launcher.start(self.kernels, records, env, endless=container.resident)
        container.members.append(member)
        self.counts["processes"] += 1

    def kill(self, container: Container) -> None:
        """One process dies, and another one may come."""
        mortal = container.members[1:] if container.resident else container.members
        if mortal:
            victim = self.dice.choice(mortal)
            victim.kill()
            container.members.remove(victim)
            self.counts["killed"] += 1
        wanted = self.dice.randint(0, MOST_MEMBERS[container.kind])
        if not container.members or len(container.members) < wanted:
            self.add(container)

    def leave(self, container: Container) -> None:
        """It ends, by itself or killed."""
        for member in container.members:
            politely = self.dice.random() < 0.5
            member.leave() if politely else member.kill()
            self.counts["left" if politely else "killed"] += 1
        self.watch.forget(container)
        del self.containers[container.name]

    def set(self, container: Container) -> None:
        """`gpufence set`, of its memory or of its share."""
        if self.dice.random() < 0.5:
            self.command("set", container.name, "--cores", str(self.dice.choice(CORES)))
        else:
            mib = self.dice.choice(MEMORY_MIB)
            with self.watch.changing(container, mib * MIB):
                self.command("set", container.name, "--memory", f"{mib}MiB")
        self.counts["set"] += 1

    def freeze(self, container: Container) -> None:
        """`gpufence freeze`, and `resume` after a moment."""
        self.command("freeze", container.name)
        time.sleep(self.dice.random() * 0.2)
        self.command("resume", container.name)
        self.counts["frozen"] += 1

    def stop(self, container: Container) -> None:
        """SIGSTOP, for a moment."""
        member = self.dice.choice(container.members)
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(self.dice.random() * 0.1)
        member.process.send_signal(signal.SIGCONT)
        self.counts["stopped"] += 1

    def work(self) -> None:
        """Those that take memory or train do some of it; launchers work by themselves."""
        for container in self.containers.values():
            for member in container.members:
                self.counts[member.COUNTED] += member.work(self.dice)

    def command(self, *words: str) -> None:
        """What an operator types; DrivenError when it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "gpufence", *words, "--state-dir", str(self.state)],
            env={**os.environ, "PYTHONPATH": str(REPO / "tools")},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise DrivenError(f"gpufence {words[0]}: {done.stderr.strip()[-200:]}")
        self.counts["commands"] += 1

    # ---- what is seen ----

    def note(self) -> None:
        """What the residents and the folder have of the machine."""
        from tests.soak.node import facts_of

        for container in (each for each in self.containers.values() if each.resident):
            for name, value in facts_of(container.members[0].pid).items():
                self.samples[f"{container.kind}: {name}"].append(value)

    def roll_call(self) -> None:
        """Those that take memory stand still: each is charged what NVML says that it holds."""
        everybody_waits(self.containers.values())
        self.command("prune", "--all")
        self._collect()
        holds = {user.pid: user.used_bytes or 0 for user in self.nvml.users()}
        for container in self.containers.values():
            pids = {member.pid for member in container.members if not member.has_ended()}
            charged = self._charged(container) if pids else {}
            for pid in pids & charged.keys() & holds.keys():
                far = holds[pid] - charged[pid]
                self.farthest = max(self.farthest, abs(far), key=abs)
                if container.kind == "taker" and abs(far) > SLACK:
                    text = f"is charged {charged[pid]} bytes and holds {holds[pid]}"
                    self.problems.append(f"process {pid} of {container.name} {text}")
        names = {path.name.partition(".")[0] for path in self.state.iterdir()}
        known = {f"gpufence-{name}" for name in self.containers}
        self.samples["state folder: files"].append(len(names - known))
        stays = [path for path in self.state.iterdir() if "stays" in path.name]
        self.samples["state folder: KiB"].append(sum(p.stat().st_blocks for p in stays) // 2)
        self.counts["roll calls"] += 1

    def report(self, seed: int, seconds: float, *, ended: bool) -> dict[str, Any]:
        """All figures so far; `problems` are lines for people."""
        grown = []
        for name, samples in self.samples.items():
            found = judging.growth(name, samples, MOST_MORE[name.partition(": ")[2]])
            grown += [found] if found else []
        return {
            "schema": 1,
            "seed": seed,
            "simulated": self.simulated,
            "seconds": round(seconds, 1),
            "ended": ended,
            "counts": dict(sorted({**self.counts, "looks of NVML": self.watch.looks}.items())),
            "fullest": round(self.watch.fullest, 4),
            "farthest_bytes": self.farthest,
            "growth": [{"name": g.name, "early": g.early, "late": g.late} for g in grown],
            "problems": [*self.problems, *(g.problem for g in grown if g.problem)],
        }

    # Implementation.

    def _collect(self) -> None:
        """Launchers whose time is over are no members any more, nor is a container without any."""
        for container in list(self.containers.values()):
            for member in [each for each in container.members if each.has_ended()]:
                member.leave()
                container.members.remove(member)
                self.counts["left"] += 1
            if not container.members:
                self.watch.forget(container)
                del self.containers[container.name]

    def _charged(self, container: Container) -> dict[int, int]:
        found = region.read(self.state / f"gpufence-{container.name}.v5").devices
        uses = [use for device in found for use in device.uses]
        return {use.owner.pid: use.used_bytes for use in uses if use.owner.life is Life.ALIVE}

    def _used(self) -> int:
        """Bytes of our GPU that anybody holds."""
        return sum(u.used_bytes or 0 for u in self.nvml.users() if u.uuid == self.uuid)

    def _lost(self) -> int:
        """What is held more than at first; looked at again, since the driver gives back late."""
        for _ in range(50):
            lost = self._used() - self.at_first
            if lost <= 0:
                return 0
            time.sleep(0.1)
        return lost


def _uuid() -> str:
    done = subprocess.run(
        [sys.executable, "-c", ASK_UUID], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()[0]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="soak.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1200.0, help="how long (1200)")
    parser.add_argument("--seed", type=int, help="of what is drawn; told in the file (any)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--sim", action="store_true", help="the driver is the simulated one")
    args = parser.parse_args()
    import_our_tests()
    seed = random.SystemRandom().getrandbits(32) if args.seed is None else args.seed
    with tempfile.TemporaryDirectory(prefix="gpufence-soak-") as name:
        soak = Soak(args.build.resolve(), Path(name), seed, simulated=args.sim)
        began = time.monotonic()

        def tell(*, ended: bool = False) -> dict[str, Any]:
            """A machine that is taken back before the end leaves what was seen until then."""
            report = soak.report(seed, time.monotonic() - began, ended=ended)
            args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            return report

        try:
            soak.run(args.seconds, tell)
        except (DrivenError, OSError, subprocess.TimeoutExpired) as error:
            soak.problems.append(f"{type(error).__name__}: {error}")
        finally:
            soak.end()
        report = tell(ended=True)
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
