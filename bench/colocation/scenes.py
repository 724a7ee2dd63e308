"""Which tenants meet, and what each is promised: data, and how a scene is found by its name.

Must not know how programs are run or judged. A new scene is an entry of SCENES.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

# Plans of kernels.cpp; all else runs over PyTorch.
KERNELS = ("saturate", "bursts", "pieces", "random")
OURS = "ours"  # any build of the library
OVER_MPS = "ours+mps"
BY_THREADS = "ours+mps-threads"  # in mode mps: the memory limit is ours, threads are MPS's
WHOLE = -1  # a promise about all tenants' sum


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container: its program, and the settings that it has where the library is preloaded."""

    program: str  # and its options
    limit: int  # percent
    soft: int | None = None
    priority: str | None = None
    weight: int | None = None
    delay_s: float = 0.0  # behind the others

    @property
    def kind(self) -> str:
        """The program without its options."""
        return self.program.split()[0]

    @property
    def reference(self) -> str:
        """The program that is measured alone for it: pauses make that longer, not different."""
        return re.sub(r" --pause \S+", "", self.program)

    @property
    def on_kernels(self) -> bool:
        """Whether it is a plan of kernels.cpp, which also runs over the simulated driver."""
        return self.kind in KERNELS


@dataclass(frozen=True, slots=True)
class Promise:
    """A figure of one tenant, or of all in sum, against ratio * reference + plus.

    References: bare and mps (the same figure in the same scene there), alone (without neighbours
    and limit), limit (the tenant's), fair (the least of limit and need), allowed (what it makes
    beside the same neighbours under the bare driver, or as much of what it makes alone as its limit
    allows, whichever is less), and none: the number itself.

    With `by_time`, a rate or share of a tenant whose work overlaps itself is one of the GPU's time
    (own_time.py): how much of it is done at once depends on the neighbour.
    """

    figure: str
    relation: str  # most, least, near
    reference: str = ""
    ratio: float = 1.0
    plus: float = 0.0  # near: how far off it may be
    tenant: int | None = None  # None: each one; WHOLE: their sum
    way: str = OURS
    by_time: bool = False

    def told(self, figure: str = "") -> str:
        """For people; of another figure than its own, where that one is judged instead."""
        figure = figure or self.figure
        number = f"{self.ratio:g} x {self.reference}" if self.reference else ""
        if self.ratio == 1 and self.reference:
            number = self.reference
        if self.relation == "near":
            return f"{figure} within {self.plus:g} of {number}"
        if self.plus:
            number = f"{number} + {self.plus:g}" if number else f"{self.plus:g}"
        return f"{figure} at {self.relation} {number}"


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run, in seconds from its begin, whose shares are told for themselves."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Scene:
    """Tenants that begin together."""

    name: str
    tenants: tuple[Tenant, ...]
    promises: tuple[Promise, ...] = ()
    times: float = 1.0  # the seconds of the session
    seconds: float | None = None  # instead
    phases: tuple[Phase, ...] = ()
    gpus: int = 1

    def lasts_s(self, session_s: float) -> float:
        """Seconds of a run."""
        return self.seconds if self.seconds is not None else self.times * session_s


def same_as_bare(by_time: bool = False) -> Promise:
    """It makes 97 % of what it may."""
    return Promise("rate", "least", "allowed", ratio=0.97, by_time=by_time)


def pair(first: str, second: str, *limits: int) -> tuple[Tenant, ...]:
    """Two tenants."""
    return Tenant(first, limits[0]), Tenant(second, limits[1])


REQUESTS = (
    Promise("p99_ms", "most", "bare", plus=3.0, tenant=0),
    Promise("rate", "least", "allowed", ratio=0.97, tenant=1),
    Promise("ran", "near", "limit", plus=2.0, tenant=1),
)
SHARES = (
    Promise("share", "near", "limit", plus=2.0),
    Promise("of_alone", "least", plus=99.0, tenant=WHOLE),
)
FAIR = (
    Promise("share", "near", "fair", plus=2.0),
    Promise("second_most", "most", "limit", plus=5.0),
)
# Of a program that tells its kernels' own time: power limits the clock of a GPU that is busy, so
# steps are no measure of it.
RAN = (Promise("ran", "near", "fair", plus=2.0),)
SATURATING = ((30, 70), (50, 50), (25, 25, 25, 25))
LENGTHS_US = (500, 5_000, 25_000)

SCENES = (
    Scene("serve+train 50/50", pair("serve", "train", 50, 50), REQUESTS, times=2),
    Scene("serve+train 30/70", pair("serve", "train", 30, 70), REQUESTS, times=2),
    Scene(
        "serve+train 50/50, soft 100",
        (Tenant("serve", 50, soft=100), Tenant("train", 50, soft=100)),
        (REQUESTS[0], Promise("rate", "least", "bare", ratio=0.97, tenant=1)),
        times=2,
    ),
    Scene(
        "serve with pauses+train 50/50",
        pair("serve --pause 10", "train", 50, 50),
        (Promise("first_ms", "most", "bare", plus=3.0, tenant=0),),
        seconds=24.0,
    ),
    Scene("serve at 30", (Tenant("serve", 30),), (REQUESTS[0],), times=2),
    Scene("train at 50", (Tenant("train", 50),), RAN, times=2),
    Scene("captured train at 50", (Tenant("train --captured", 50),), RAN, times=2),
    Scene(
        "decoder+decoder 50/50",
        pair("decoder", "decoder", 50, 50),
        (
            Promise("p99_ms", "most", "bare", ratio=1.3),
            Promise("rate", "least", "bare", ratio=0.97, tenant=WHOLE),
            Promise("rate", "least", "mps", ratio=0.95, tenant=WHOLE, way=OVER_MPS),
        ),
    ),
    Scene(
        "decoder at 50",
        (Tenant("decoder", 50),),
        (Promise("p99_ms", "most", plus=4.0), *FAIR[:1]),
    ),
    Scene("generate+generate 50/50", pair("generate", "generate", 50, 50), (same_as_bare(),)),
    Scene("generate+train 50/50", pair("generate", "train", 50, 50), (same_as_bare(),)),
    *(
        Scene(
            f"saturate {'/'.join(map(str, limits))} {length_us / 1000:g} ms",
            tuple(Tenant(f"saturate {length_us}", limit) for limit in limits),
            SHARES,
        )
        for length_us in LENGTHS_US
        for limits in SATURATING
    ),
    Scene(
        "soft 30 to 80, a third comes",
        (
            Tenant("saturate 1000", 30, soft=80),
            Tenant("saturate 1000", 30, soft=80),
            Tenant("saturate 1000", 40, delay_s=3.0),
        ),
        (
            Promise("two", "near", plus=2.0, ratio=50, tenant=0),
            Promise("two", "near", plus=2.0, ratio=50, tenant=1),
            Promise("at once", "least", "limit", plus=-5.0, tenant=2),
            Promise("three", "near", "limit", plus=2.0),
        ),
        seconds=6.0,
        phases=(Phase("two", 1.0, 2.9), Phase("at once", 3.05, 3.4), Phase("three", 3.6, 5.8)),
    ),
    *(
        Scene(
            f"{name} of high priority+{background}",
            (
                Tenant(program, 30, priority="high"),
                Tenant(low, 70, soft=100, priority="low"),
            ),
            (
                Promise("p99_ms", "most", "alone", ratio=1.1, tenant=0),
                Promise("of_alone", "least", plus=75.0, tenant=1),
            ),
            times=2,
        )
        for background, low in (("train", "train"), ("saturate 0.5 ms", "saturate 500"))
        for name, program in (
            ("eager server", "serve --load 20"),
            ("captured server", "serve --load 20 --captured"),
        )
    ),
    *(
        Scene(
            f"long pieces among short ones of high priority+{background}",
            (
                Tenant("pieces 5 10 1000", 60, priority="high"),
                Tenant(low, 40, soft=100, priority="low"),
            ),
            (Promise("share", "near", "fair", plus=2.0, tenant=0),),
        )
        for background, low in (("train", "train"), ("saturate 0.5 ms", "saturate 500"))
    ),
    Scene("generate at 15", (Tenant("generate", 15),), FAIR),
    Scene("generate+generate 15/15", (Tenant("generate", 15), Tenant("generate", 15)), FAIR),
    Scene("bursts 130/130 ms at 30", (Tenant("bursts 5000 130 130", 30),), FAIR, times=2),
    Scene("bursts 90/70 ms at 60", (Tenant("bursts 5000 90 70", 60),), FAIR, times=2),
    Scene("bursts 100/230 ms at 25", (Tenant("bursts 31000 100 230", 25),), FAIR, times=2),
    Scene("bursts 130/130 ms at 60", (Tenant("bursts 5000 130 130", 60),), FAIR, times=2),
    Scene(
        "ddp+ddp 50/50",
        pair("ddp", "ddp", 50, 50),
        (Promise("of_alone", "least", plus=45.0),),
        times=2,
        gpus=2,
    ),
    Scene("ddp at 100", (Tenant("ddp", 100),), (same_as_bare(),), gpus=2),
)

PAIR_LIMITS = (40, 60)
SINGLE_LIMITS = (25, 30, 60)
SEEDED = re.compile(r"(pair|single):(\d+)(?:-(\d+))?")


def random_pair(seed: int) -> Scene:
    """Two programs drawn at random, with limits of 40 and 60 in either order."""
    limits = random.Random(seed).sample(PAIR_LIMITS, 2)
    tenants = pair(f"random {2 * seed}", f"random {2 * seed + 1}", *limits)
    promises = (
        same_as_bare(by_time=True),
        Promise("share", "most", "limit", plus=2.0, by_time=True),
    )
    return Scene(f"pair:{seed}", tenants, promises)


def random_single(seed: int) -> Scene:
    """One program drawn at random, alone, at a limit drawn as well."""
    limit = random.Random(seed).choice(SINGLE_LIMITS)
    # Its seed is far from those of the pairs.
    # By the time in which its kernels ran: alone, nobody's slices are in it, and kernels of several
    # streams at once count once.
    promise = Promise("busy", "near", "fair", plus=2.0)
    return Scene(f"single:{seed}", (Tenant(f"random {10**6 + seed}", limit),), (promise,))


def find(wanted: Iterable[str]) -> list[Scene]:
    """The scenes that the names choose, each once, in the order of the names.

    A name is a scene's, or a part of one that begins it or a word of it; pair:N, pair:N-M, single:N
    and single:N-M are random ones by their seeds.

    Raises:
        ValueError: a name chooses none.
    """
    found: dict[str, Scene] = {}
    for name in wanted:
        chosen = _seeded(name) or _named(name)
        if not chosen:
            raise ValueError(f"no scene is called '{name}'")
        found |= {scene.name: scene for scene in chosen}
    return list(found.values())


def _seeded(name: str) -> list[Scene]:
    match = SEEDED.fullmatch(name)
    if match is None:
        return []
    first, last = int(match[2]), int(match[3] or match[2])
    make = random_pair if match[1] == "pair" else random_single
    return [make(seed) for seed in range(first, last + 1)]


def _named(name: str) -> list[Scene]:
    exact = [scene for scene in SCENES if scene.name == name]
    return exact or [scene for scene in SCENES if name in scene.name]
