"""Shares of GPU time, held launches and their waiting over time: differences of two looks.

Owns the arithmetic and how much is kept; must not know how it is drawn. Standard library only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .watch import Container, Look

KEPT = 120

Key = tuple[str, str]  # GPU's UUID, container's name


@dataclass(frozen=True, slots=True)
class Rates:
    """Between two looks: GPU time over time (0 to 1), and launches held a second.

    `wait` is the time that launches waited whose wait ended then, all together, over time: more
    than 1 where several threads wait, or where a wait began before. `wait_mean_ns` is that of one
    launch; None where none ended.
    """

    share: float | None
    held_per_s: float
    wait: float
    wait_mean_ns: int | None


@dataclass(slots=True)
class _Track:
    moment_ns: int
    charged_ns: int | None
    launches_held: int
    held_ns: int
    waited: bool = False
    shares: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    latest: Rates | None = None


@dataclass(slots=True)
class History:
    """What became of each container on each GPU; those that are gone are forgotten."""

    _tracks: dict[Key, _Track] = field(default_factory=dict)

    def add(self, look: Look) -> None:
        """Take the differences to the look before."""
        tracks = {}
        for gpu in look.gpus:
            for container in gpu.containers:
                key = (gpu.uuid, container.name)
                track = self._tracks.get(key)
                if track is None:
                    activity = container.activity
                    track = _Track(
                        look.moment_ns,
                        container.charged_ns,
                        activity.launches_held,
                        activity.held_ns,
                    )
                else:
                    _advance(track, container, look.moment_ns)
                tracks[key] = track
        self._tracks = tracks

    def rates(self, uuid: str, container: str) -> Rates | None:
        """Since the last look but one; None after the first."""
        track = self._tracks.get((uuid, container))
        return track.latest if track else None

    def shares(self, uuid: str, container: str) -> tuple[float, ...]:
        """GPU time over time, oldest first."""
        track = self._tracks.get((uuid, container))
        return tuple(track.shares) if track else ()

    @property
    def anybody_waited(self) -> bool:
        """Whether launches of any container that is there waited since it was first seen."""
        return any(track.waited for track in self._tracks.values())


def ceiling(container: Container) -> float | None:
    """The share that it may get at most (0 to 1); None without a core limit."""
    if container.shares is None:
        return None
    return min(max(container.shares.hard, container.shares.soft), 100_000) / 100_000


def _advance(track: _Track, container: Container, moment_ns: int) -> None:
    passed_ns = moment_ns - track.moment_ns
    if passed_ns <= 0:
        return
    share = None
    if container.charged_ns is not None and track.charged_ns is not None:
        # Smaller than before: another container took the place, and began anew.
        share = max(0, container.charged_ns - track.charged_ns) / passed_ns
        track.shares.append(share)
    held = max(0, container.activity.launches_held - track.launches_held)
    wait_ns = max(0, container.activity.held_ns - track.held_ns)
    wait_mean_ns = wait_ns // held if held else None
    track.latest = Rates(share, held * 1e9 / passed_ns, wait_ns / passed_ns, wait_mean_ns)
    track.waited = track.waited or wait_ns > 0
    track.moment_ns = moment_ns
    track.charged_ns = container.charged_ns
    track.launches_held = container.activity.launches_held
    track.held_ns = container.activity.held_ns
