"""What a scene's figures are worth: in percent of references, and whether promises are kept.

Pure, over the JSON values that a session writes. Must not run anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .own_time import Span, overlaps_itself, spans
from .scenes import WHOLE, Promise, Scene, Tenant

Figures = dict[str, Any]
ALONE = "alone: "
WHOLE_GPU = 100.0  # the need of a program that does not tell how much of its time the GPU works


@dataclass(frozen=True, slots=True)
class Verdict:
    """A promise held against a line; `met` is None where a reference is missing.

    A verdict by time has a span of it, and `met` is None where that does not decide.
    """

    promise: Promise
    tenant: int  # or WHOLE
    value: float
    bound: float
    met: bool | None
    time: Span | None = None

    def told(self) -> str:
        """For people, on a line."""
        who = "sum of " if self.tenant == WHOLE else f"tenant {self.tenant}: "
        if self.time is not None:
            span = f"{self.time.least:.4g} to {self.time.most:.4g} against {self.bound:.4g}"
            word = {True: "kept", False: "BROKEN", None: "undecided"}[self.met]
            return f"{who}{self.promise.told('time')}: {span}, {word}"
        if self.met is None:
            return f"{who}{self.promise.told()}: not measured"
        word = "kept" if self.met else "BROKEN"
        return f"{who}{self.promise.told()}: {self.value:.4g} against {self.bound:.4g}, {word}"


class Results:
    """A session's lines, found by scene and way."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self._lines = {
            (str(line["scene"]), str(line["way"])): line for line in lines if "tenants" in line
        }

    def tenants(self, scene: Scene, way: str) -> list[Figures] | None:
        """What each tenant made; None where that was not measured.

        A scene of one tenant is the tenant alone, under the bare driver.
        """
        if way == "bare" and len(scene.tenants) == 1:
            figures = self.alone(scene.tenants[0])
            return None if figures is None else [figures]
        line = self._lines.get((scene.name, way))
        return None if line is None else list(line["tenants"])

    def alone(self, tenant: Tenant) -> Figures | None:
        """What its program makes without neighbours and limit."""
        line = self._lines.get((ALONE + tenant.reference, "bare"))
        return None if line is None else dict(line["tenants"][0])


def number(figures: Mapping[str, Any] | None, name: str) -> float:
    """A figure; nan where there is none."""
    value = math.nan if figures is None else figures.get(name, math.nan)
    return float(value)


def need(alone: Mapping[str, Any] | None) -> float:
    """Percent of the GPU's time that a program takes alone."""
    told = number(alone, "busy")
    return WHOLE_GPU if math.isnan(told) else told


def with_shares(figures: Figures, alone: Figures | None) -> Figures:
    """With of_alone, in percent of what it makes alone, and share, of the GPU's time."""
    of_alone = ratio(number(figures, "rate"), number(alone, "rate"))
    share = need(alone) * of_alone / 100
    more = {"of_alone": of_alone, "share": share, "need": need(alone)}
    if figures.get("by_second"):
        scale = need(alone) / number(alone, "rate")
        more["second_most"] = scale * max(figures["by_second"])
        more["second_least"] = scale * min(figures["by_second"])
    return {**figures, **more}


def ratio(value: float, reference: float) -> float:
    """Percent of a reference; nan without one."""
    return 100 * value / reference if reference else math.nan


class Judge:
    """Holds the promises of scenes against a session's results."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def figures(self, scene: Scene, way: str) -> list[Figures] | None:
        """A line's figures with shares, and with what they are of bare and mps."""
        told = self._results.tenants(scene, way)
        if told is None:
            return None
        found = []
        for place, (tenant, figures) in enumerate(zip(scene.tenants, told, strict=True)):
            alone = self._results.alone(tenant)
            whole = with_shares(figures, alone)
            for other in ("bare", "mps"):
                beside = self._results.tenants(scene, other)
                rate = number(beside[place] if beside else None, "rate")
                whole[f"of_{other}"] = ratio(number(figures, "rate"), rate)
            whole["overlaps"] = overlaps_itself(alone)
            found.append(whole)
        return found

    def verdicts(self, scene: Scene, way: str, kind: str) -> list[Verdict]:
        """Of all promises that are about such a way."""
        figures = self.figures(scene, way)
        if figures is None:
            return []
        verdicts = []
        for promise in scene.promises:
            if promise.way != kind:
                continue
            one = promise.tenant
            places = [*range(len(figures))] if one is None else [one]
            verdicts += [self._verdict(scene, promise, place, figures) for place in places]
        return verdicts

    def _verdict(
        self, scene: Scene, promise: Promise, place: int, figures: list[Figures]
    ) -> Verdict:
        places = [*range(len(figures))] if place == WHOLE else [place]
        value = sum(number(figures[one], promise.figure) for one in places)
        if promise.reference:
            reference = sum(self._reference(scene, promise, one) for one in places)
            bound = promise.ratio * reference
        else:
            bound = promise.ratio if promise.relation == "near" else 0.0
        verdict = _held(promise, place, value, bound)
        if promise.by_time and place != WHOLE and figures[place]["overlaps"]:
            return self._by_time(scene, verdict, figures)
        return verdict

    def _by_time(self, scene: Scene, by_work: Verdict, figures: list[Figures]) -> Verdict:
        """The verdict about a tenant whose work overlaps itself.

        It has had the least time if it did all its work as much at once as alone. So what it has
        made beside a neighbour may show that it had enough, and too much, but no more than that.
        """
        promise, place = by_work.promise, by_work.tenant
        if by_work.met is None or by_work.met == (promise.relation == "least"):
            return by_work
        times, bare_times = spans(figures), spans(self.figures(scene, "bare") or [])
        if times is None:
            return Verdict(promise, place, by_work.value, by_work.bound, None)
        limit = float(scene.tenants[place].limit)
        if promise.relation == "most":
            return _held_by_time(promise, place, times[place], Span(limit, limit))
        if bare_times is None:
            return Verdict(promise, place, by_work.value, by_work.bound, None)
        alone = self._results.alone(scene.tenants[place])
        return _held_by_time(
            promise, place, times[place], bare_times[place].up_to(min(limit, need(alone)))
        )

    def _reference(self, scene: Scene, promise: Promise, place: int) -> float:
        """What one tenant's figure is held against; nan when it was not measured."""
        tenant = scene.tenants[place]
        alone = self._results.alone(tenant)
        if promise.reference == "limit":
            return float(tenant.limit)
        if promise.reference == "fair":
            return min(tenant.limit, need(alone)) if alone is not None else math.nan
        if promise.reference == "alone":
            return number(alone, promise.figure)
        way = "mps" if promise.reference == "mps" else "bare"
        beside = self._results.tenants(scene, way)
        reference = number(beside[place] if beside else None, promise.figure)
        if promise.reference != "allowed":
            return reference
        part = min(1.0, tenant.limit / need(alone)) if need(alone) else 1.0
        mine = part * number(alone, promise.figure)
        return math.nan if math.isnan(mine) else min(reference, mine)


def _held_by_time(promise: Promise, place: int, time: Span, reference: Span) -> Verdict:
    """A promise of at most or at least, kept or broken wherever in both spans the truth is."""
    low = promise.ratio * reference.least + promise.plus
    high = promise.ratio * reference.most + promise.plus
    if promise.relation == "most":
        met = True if time.most <= low else False if time.least > high else None
        bound = low
    else:
        met = True if time.least >= high else False if time.most < low else None
        bound = high if met is not False else low
    return Verdict(promise, place, time.least, bound, met, time)


def _held(promise: Promise, place: int, value: float, bound: float) -> Verdict:
    if math.isnan(value) or math.isnan(bound):
        return Verdict(promise, place, value, bound, None)
    if promise.relation == "near":
        return Verdict(promise, place, value, bound, abs(value - bound) <= promise.plus)
    bound += promise.plus
    met = value <= bound if promise.relation == "most" else value >= bound
    return Verdict(promise, place, value, bound, met)
