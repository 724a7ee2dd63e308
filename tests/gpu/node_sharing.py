"""Three containers of a node at work for some seconds, with what their pods say meanwhile.

Runs and measures; must not know what the shares should be. Programs and records of kernels are
those of bench/colocation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from colocation.figures import Records
from colocation.kernels import NoKernels, compile_kernels
from colocation.programs import Program, ProgramError
from looking import repeated
from node_series import of_charges, of_records, requests_ms
from node_stage import Box, Stage, StageError, wait_until
from setup import Setup

if TYPE_CHECKING:
    from gpufence.top.watch import Watcher

SECONDS = 14.0
# Of the run: when the third begins and for how long, when the first is frozen, and resumed.
THIRD_S, THIRD_LASTS_S, FROZEN_S, RESUMED_S = 3.5, 4.0, 9.6, 11.5
LOOK_S = 0.05
PLANS = {"a": "saturate 1000", "b": "saturate 1000", "c": "bursts 1000 20 60"}
SAID = {
    "a": {"weight": "3", "soft_cores": "100"},
    "b": {"weight": "1", "soft_cores": "100"},
    "c": {"priority": "high"},
}
START_S, END_S = 20.0, 20.0


@dataclass(slots=True)
class Shared:
    """Percent of the GPU's time by pod, in steps, by the GPU's clock and as the library charged."""

    clock: dict[str, list[float]]
    charged: dict[str, list[float]]
    events: dict[str, float]
    kernels: dict[str, int]  # that each pod's program launched
    requests: dict[str, float]


@dataclass(slots=True)
class Looks:
    """What an operator sees, looked at all the time: nanoseconds charged to each container."""

    watcher: Watcher
    names: Mapping[str, str]  # pods by what the library calls their containers
    samples: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def look(self) -> None:
        """Once."""
        look = self.watcher.look()
        for container in (one for gpu in look.gpus for one in gpu.containers):
            pod = self.names.get(container.name)
            if pod is not None and container.charged_ns is not None:
                self.samples.setdefault(pod, []).append((look.moment_ns, container.charged_ns))


def said_is_set(box: Box, said: Mapping[str, str]) -> bool:
    """Whether what the pod says is in force in its container."""
    from gpufence.node import pod_limits
    from gpufence.state import limits_file
    from gpufence.state.limits_bytes import EVERY_GPU

    found = limits_file.read(limits_file.path_of(box.state, box.name), None)
    named = {name.replace("_", "-"): text for name, text in said.items()}
    return found is not None and found.entries.get(EVERY_GPU) == pod_limits.amounts(named)


def share(setup: Setup, node: Stage, boxes: Mapping[str, Box], folder: Path) -> Shared:
    """Runs them.

    Raises:
        StageError: a program ended or was late, or what a pod says never came into force.
    """
    with ExitStack() as stack:
        try:
            kernels = compile_kernels([setup.build], folder, node.environment())
            programs = {}
            for pod, box in boxes.items():
                words = [kernels.program, "work", f"{kernels.one:.9f}", f"{kernels.full:.9f}"]
                words += [folder / f"records-{pod}", *PLANS[pod].split()]
                errors = folder / f"errors-{pod}"
                command, env = box.command(words), node.environment(box)
                programs[pod] = Program.start(command, env, f"the job of {pod}", errors)
                stack.callback(programs[pod].end, 0.0)
            _prepare(node, boxes, programs)
            return _run(node, boxes, programs, folder)
        except (ProgramError, NoKernels) as error:
            raise StageError(str(error)) from None


def _prepare(node: Stage, boxes: Mapping[str, Box], programs: Mapping[str, Program]) -> None:
    deadline = time.monotonic() + START_S
    for word, answer in (("", "loaded"), ("prepare", "ready")):
        for program in programs.values():
            if word:
                program.say(word)
        for program in programs.values():
            program.expect(answer, deadline)
    for pod, said in SAID.items():
        node.annotate(pod, **said)
    for pod, said in SAID.items():
        wait_until(lambda p=pod, s=said: said_is_set(boxes[p], s), f"what pod {pod} says")  # type: ignore[misc]


def _run(
    node: Stage, boxes: Mapping[str, Box], programs: Mapping[str, Program], folder: Path
) -> Shared:
    from gpufence.top.watch import Watcher

    events: dict[str, float] = {}
    # As `gpufence export` on the node: each container's own files, by what it has mapped.
    watcher = Watcher({}, agent=str(node.agent))
    looks = Looks(watcher, {box.name: pod for pod, box in boxes.items()})
    with repeated(looks.look, LOOK_S):
        time.sleep(2 * LOOK_S)
        begin_ns = time.monotonic_ns()

        def at(moment_s: float, what: str) -> None:
            time.sleep(max(0.0, moment_s - (time.monotonic_ns() - begin_ns) / 1e9))
            events[what] = round((time.monotonic_ns() - begin_ns) / 1e9, 3)

        for pod in ("a", "b"):
            programs[pod].say(f"go {SECONDS} 0")
        at(THIRD_S, "the third begins")
        programs["c"].say(f"go {THIRD_LASTS_S} 0")
        at(FROZEN_S, "the first is told to be frozen")
        node.annotate("a", **SAID["a"], frozen="true")
        at(RESUMED_S, "and to go on")
        node.annotate("a", **SAID["a"])
        answers = {pod: json.loads(_last(program)) for pod, program in programs.items()}
    for program in programs.values():
        program.end()
    records = {pod: Records.read(folder / f"records-{pod}") for pod in boxes}
    # The first kernel of all begins with the run: that is where both clocks meet.
    firsts = [one.kernels[0][0] for one in records.values() if one.kernels]
    zero_ns = min(firsts, default=0)
    return Shared(
        clock={pod: of_records(one, zero_ns, SECONDS) for pod, one in records.items()},
        charged={pod: _charged(looks, pod, begin_ns) for pod in boxes},
        events=events,
        kernels={pod: int(one["kernels"]) for pod, one in answers.items()},
        requests=requests_ms(records["c"]),
    )


def _last(program: Program) -> str:
    return program.line(time.monotonic() + SECONDS + END_S)


def _charged(looks: Looks, pod: str, begin_ns: int) -> list[float]:
    samples = [((at - begin_ns) / 1e9, charged) for at, charged in looks.samples.get(pod, [])]
    return of_charges(samples, SECONDS)
