"""Runs scenes: starts their programs, has them begin together, and collects what they say.

While a scene's programs take the GPU, those of the next one import what they need; nothing of the
next one touches the GPU before. Must not know promises.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .figures import Records, common, common_window, covered_percent
from .mps import MpsDaemon
from .programs import END_S, Program, ProgramError
from .scenes import Scene, Tenant
from .ways import BARE, Machine, Way, environment

START_S = 120.0  # imports, on a busy machine
PREPARE_S = 90.0
SETTLE_S = 0.4  # from "ready" to "go": what warming up owes is paid for, and clocks are up
LATE_TIMES, LATE_S = 3.0, 30.0  # how far beyond its seconds a run may go
LOAD = re.compile(r"--load \S+")
UNEVEN = ("serve", "bursts")  # take longer to tell what they make alone
BENCH = Path(__file__).resolve().parents[1] / "colocation.py"
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled programs of kernels, and the steps of work in a nanosecond here."""

    program: Path
    one: float
    full: float


@dataclass(frozen=True, slots=True)
class Line:
    """One scene in one way: a line of the table."""

    scene: Scene
    way: Way
    seconds: float


@dataclass(slots=True)
class Cast:
    """The programs of a line, by tenant, and the folder of their files."""

    line: Line
    folder: Path
    programs: list[list[Program]] = field(default_factory=list)

    def everyone(self) -> list[Program]:
        """All processes."""
        return [one for programs in self.programs for one in programs]

    def records(self, place: int) -> Path:
        """Where a tenant's kernels write when they ran."""
        return self.folder / f"records{place}"


class Session:
    """One machine, one GPU's time."""

    def __init__(
        self, machine: Machine, kernels: Kernels | None, python: Sequence[str] = ()
    ) -> None:
        """`python` is the command in front of a PyTorch program's words."""
        self.machine, self._kernels = machine, kernels
        self._python = [*python] or [sys.executable, str(BENCH), "work"]
        self.mps = MpsDaemon(machine)
        self._waiting: Cast | None = None
        self._number = 0
        self._rates: dict[str, float] = {}  # requests a second, of programs that chose them

    def why_not(self, line: Line) -> str:
        """Why a line cannot be measured here; empty when it can."""
        if line.way.mps and self.mps.missing:
            return self.mps.missing
        if line.scene.gpus > self.machine.gpus:
            return f"needs {line.scene.gpus} GPUs"
        for tenant in line.scene.tenants:
            if self.machine.sim is not None and not tenant.on_kernels:
                return "needs a GPU"
            if tenant.on_kernels and self._kernels is None:
                return "needs a compiler"
        return ""

    def measure(self, line: Line, following: Line | None) -> Figures:
        """One line's figures, or its error; `following` is begun to be loaded meanwhile."""
        cast: Cast | None = None
        began = time.monotonic()
        try:
            cast = self._loaded(line)
            self.mps.wanted(line.way.mps)
            if line.way.mps and self.mps.missing:
                raise ProgramError(self.mps.missing)
            told = self._run(cast, following)
            self._remember(line, told)
            result: Figures = {"tenants": told}
        except (ProgramError, OSError, ValueError) as error:
            result = {"error": str(error)}
        finally:
            if cast is not None:
                _end(cast, patience_s=0.0)
        if "error" in result and line.way.mps:
            self.mps.end()  # what a killed client leaves behind could meet the next one
        result["took_s"] = _since(began)
        return result

    def measure_in_turns(self, lines: Sequence[Line], rounds: int) -> list[Figures]:
        """The same scene in several ways, whose programs are all loaded once and then run in turns.

        A host's speed changes from minute to minute, and with it everything that is compared.

        Returns:
            For each line the median of each figure, with the figures of each round; or its error.
        """
        began = time.monotonic()
        casts: list[Cast] = []
        told: list[list[list[Figures]]] = [[] for _ in lines]
        try:
            for line in lines:
                self.mps.wanted(line.way.mps)
                casts.append(self._start(line))
            for cast in casts:
                _all(cast, lambda one, deadline: one.expect("loaded", deadline), START_S)
                _prepare(cast)
            time.sleep(SETTLE_S)
            for _ in range(rounds):
                for place, cast in enumerate(casts):
                    told[place].append(_go(cast))
        except (ProgramError, OSError, ValueError) as error:
            return [{"error": str(error), "took_s": _since(began)} for _ in lines]
        finally:
            for cast in casts:
                _end(cast, patience_s=0.0)
        return [
            {"tenants": [in_the_middle(one) for one in zip(*each, strict=True)]}
            | {"took_s": round(_since(began) / len(lines), 2), "rounds": rounds}
            for each in told
        ]

    def close(self) -> None:
        """Ends what still runs."""
        if self._waiting is not None:
            _end(self._waiting, patience_s=0.0)
            self._waiting = None
        self.mps.end()

    def _loaded(self, line: Line) -> Cast:
        """The line's programs; those that were started ahead, if they are for it."""
        cast, self._waiting = self._waiting, None
        if cast is not None and cast.line != line:
            _end(cast, patience_s=0.0)
            cast = None
        return cast or self._start(line)

    def _start(self, line: Line) -> Cast:
        self._number += 1
        folder = self.machine.folder / f"line{self._number}"
        folder.mkdir()
        cast = Cast(line, folder)
        try:
            for place, tenant in enumerate(line.scene.tenants):
                cast.programs.append([])
                env = environment(self.machine, line.way, folder, place, tenant)
                for rank, words in enumerate(self._commands(cast, place, tenant)):
                    name = f"{tenant.program} ({place})"
                    errors = folder / f"stderr{place}.{rank}"
                    cast.programs[-1].append(Program.start(words, env, name, errors))
        except ProgramError:
            _end(cast, patience_s=0.0)
            raise
        return cast

    def _commands(self, cast: Cast, place: int, tenant: Tenant) -> list[list[object]]:
        """The command lines of a tenant's processes."""
        words = self._words(tenant.program)
        if tenant.on_kernels:
            assert self._kernels is not None
            kernels = self._kernels
            turns = [f"{kernels.one:.9f}", f"{kernels.full:.9f}"]
            return [[kernels.program, "work", *turns, cast.records(place), *words]]
        if cast.line.scene.gpus == 1:
            return [[*self._python, *words]]
        ranks, meet = cast.line.scene.gpus, cast.folder / f"meet{place}"
        more = ["--ranks", ranks, "--meet", meet]
        return [[*self._python, *words, *more, "--rank", rank] for rank in range(ranks)]

    def _remember(self, line: Line, told: list[Figures]) -> None:
        """A load is told in requests a second alone, where no neighbour's slices are seen."""
        tenant = line.scene.tenants[0]
        if len(told) == 1 and LOAD.search(tenant.program) and "asked" in told[0]:
            self._rates[tenant.program] = told[0]["asked"]

    def _words(self, program: str) -> list[str]:
        """A program's command line, with the rate that its load was found to be."""
        rate = self._rates.get(program)
        text = program if rate is None else LOAD.sub(f"--rate {rate}", program)
        return text.split()

    def _can_load(self, line: Line) -> bool:
        """Whether all options of its programs are known before the line in front of it ends."""
        loads = [one.program for one in line.scene.tenants if LOAD.search(one.program)]
        return all(program in self._rates for program in loads)

    def _run(self, cast: Cast, following: Line | None) -> list[Figures]:
        _all(cast, lambda one, deadline: one.expect("loaded", deadline), START_S)
        if following is not None and self._can_load(following):
            self._load_ahead(following)
        _prepare(cast)
        if self._waiting is not None:
            self._wait_for_imports(self._waiting)
        time.sleep(SETTLE_S)
        told = _go(cast)
        _end(cast, patience_s=END_S)
        return _with_records(cast, told)

    def _load_ahead(self, line: Line) -> None:
        try:
            self._waiting = self._start(line)
        except (ProgramError, OSError):
            self._waiting = None  # its own turn will tell

    def _wait_for_imports(self, cast: Cast) -> None:
        """Imports take the host, which a program that is measured needs; failures tell later."""
        deadline = time.monotonic() + START_S
        for one in cast.everyone():
            try:
                line = one.line(deadline)
            except ProgramError:
                continue
            one.pending = bytearray(f"{line}\n".encode()) + one.pending


def _all(cast: Cast, ask: Callable[[Program, float], None], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    for one in cast.everyone():
        ask(one, deadline)


def _prepare(cast: Cast) -> None:
    """Takes the GPU and warms up."""
    for one in cast.everyone():
        one.say("prepare")
    _all(cast, lambda one, deadline: one.expect("ready", deadline), PREPARE_S)


def _go(cast: Cast) -> list[Figures]:
    """Runs once, all tenants from the same moment on."""
    seconds = cast.line.seconds
    for tenant, programs in zip(cast.line.scene.tenants, cast.programs, strict=True):
        for one in programs:
            one.say(f"go {seconds} {tenant.delay_s}")
    deadline = time.monotonic() + LATE_TIMES * seconds + LATE_S
    answers = [[one.line(deadline) for one in programs] for programs in cast.programs]
    return [json.loads(lines[0]) for lines in answers]


def _since(began: float) -> float:
    return round(time.monotonic() - began, 2)


def in_the_middle(rounds: Sequence[Figures]) -> Figures:
    """A tenant's figures of several rounds as one: the median of each; numbers alone."""
    numbers = [name for name, value in rounds[0].items() if isinstance(value, (int, float))]
    middle: Figures = {name: median(one[name] for one in rounds) for name in numbers}
    return {**middle, "by_round": list(rounds)}


def turns_of(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines that can be run in turns together, in order: one scene's, without MPS and kernels."""
    groups: list[list[Line]] = []
    for line in lines:
        alone = line.way.mps or any(one.on_kernels for one in line.scene.tenants)
        last = groups[-1][-1] if groups else None
        if not alone and last is not None and last.scene == line.scene and not last.way.mps:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _end(cast: Cast, patience_s: float) -> None:
    for one in cast.everyone():
        one.end(patience_s)
    # Records of a run are some MiB.
    for place in range(len(cast.programs)):
        if patience_s == 0.0:
            cast.records(place).unlink(missing_ok=True)


def _with_records(cast: Cast, told: list[Figures]) -> list[Figures]:
    """What programs told, with what their kernels' records say in the time that all share."""
    scene = cast.line.scene
    records = [
        Records.read(cast.records(place)) if tenant.on_kernels else Records.of([])
        for place, tenant in enumerate(scene.tenants)
    ]
    kernels_only = all(tenant.on_kernels for tenant in scene.tenants)
    starts = [one.busy[0][0] for one in records if one.busy]
    window = common_window(records)
    for tenant, one, figures in zip(scene.tenants, records, told, strict=True):
        if tenant.on_kernels:
            figures["busy"] = min(100.0, figures["rate"])  # of kernels one after the other
        if not one.busy or window is None:
            continue
        figures["told_rate"] = figures["rate"]
        if kernels_only and not scene.phases:
            figures["rate"] = one.work_percent(window)
            figures["busy"] = covered_percent(one.busy, window)
            figures["in_flight"] = one.in_flight(window)
            if len(records) == 2:
                figures["shared"] = covered_percent(
                    common(*(each.busy for each in records)), window
                )
            figures["window_s"] = (window[1] - window[0]) / 1e9
            figures["by_second"] = one.seconds(window)
        for phase in scene.phases:
            begin = min(starts) + int(phase.begin_s * 1e9)
            figures[phase.name] = one.work_percent((begin, min(starts) + int(phase.end_s * 1e9)))
    return told


def alone(tenant: Tenant, gpus: int) -> Scene:
    """The scene in which a tenant's program has the GPU for itself."""
    times = 2.0 if tenant.kind in UNEVEN else 1.0
    return Scene(
        f"alone: {tenant.reference}", (Tenant(tenant.reference, 100),), (), times, gpus=gpus
    )


def lines_of(scenes: Sequence[Scene], ways: Sequence[Way], seconds: float) -> list[Line]:
    """What to measure, in order: what each program makes alone just before its first scene.

    A scene of one tenant is not measured under the bare driver, since that is the program alone,
    nor under MPS, which has nobody to share with.
    """
    lines: list[Line] = []
    known: set[str] = set()
    for scene in scenes:
        for tenant in scene.tenants:
            if tenant.reference not in known:
                known.add(tenant.reference)
                reference = alone(tenant, scene.gpus)
                lines.append(Line(reference, BARE, reference.lasts_s(seconds)))
        shared = len(scene.tenants) > 1
        lines += [
            Line(scene, way, scene.lasts_s(seconds)) for way in ways if shared or way.kind == "ours"
        ]
    return lines
