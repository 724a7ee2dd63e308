"""Every family of device memory, by every way of reaching it, filled to the limit and emptied.

Judges three things: the refusal is out-of-memory with nothing written, it does not come early by
more than a context and a block, and afterwards the container is charged what it was before.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from driven import Driven, DrivenError, driven
from region_file import charged
from report import Report
from setup import REPO, Setup

MIB = 1 << 20
LIMIT = 4096 * MIB
LIMIT_TEXT = "4GiB"
OUT_OF_MEMORY = 2
# What a context costs on an H200 by the device's free memory, and a block of a pool.
CONTEXT = 548995072
EARLY_MOST = CONTEXT + 32 * MIB
PIECES = (32 * MIB, 2 * MIB)  # the second tops up what the first leaves

WAYS = ("linked", "dlsym", "address", "address_v2", "per_thread")
NVML = REPO / "tests" / "gpu" / "workloads" / "memory_nvml.py"

# Family: how it is freed, and whether freed memory needs a synchronisation to be gone.
ADDRESSES = {
    "linear": "free",
    "pitch": "free",
    "managed_global": "free",
    "managed_host": "free",
    "async": "free_async",
    "async_ptsz": "free_async_ptsz",
    "pool": "free_async",
    "pool_ptsz": "free_async_ptsz",
}
# The 32-bit forms, which work in contexts of the first version only, and not beside others.
FIRST_ADDRESSES = {"linear_v1": "free_v1", "pitch_v1": "free_v1"}
HANDLES = (
    "vmm",
    "vmm_handle",
    "vmm_mapped",
    "array",
    "array3d",
    "layered",
    "mipmap",
    "graph",
    "capture",
    "module",
    "context",
)
ARRAYS = ("array", "array3d", "mipmap")
RUNTIME = ("malloc", "pitch", "managed", "async", "array", "array3d", "mipmap", "capture")
# Their charge is what the driver takes, which no sum of sizes tells.
UNTOLD_SIZE = {"array", "array3d", "layered", "mipmap", "context", "module"}


@dataclass(frozen=True, slots=True)
class Filled:
    """One family filled to the limit and emptied; bytes throughout."""

    family: str
    code: int
    written: bool
    granted: int
    charged_full: int
    nvml_full: int
    before: int
    after: int
    freed: int  # worst code
    may_write: bool = False  # its maker writes its output whenever the driver refuses

    def early(self) -> int:
        """How far below the limit the refusal came."""
        held = self.nvml_full
        if self.family not in UNTOLD_SIZE:
            held = max(held, self.granted)
        return LIMIT - held

    def complaints(self, block: int) -> list[str]:
        """What is wrong; `block` is the most that one piece may have needed beyond its size."""
        found = []
        if self.code != OUT_OF_MEMORY:
            found.append(f"refused with {self.code}")
        if self.written and not self.may_write:
            found.append("output written")
        if self.early() > EARLY_MOST + block:
            found.append(f"early by {self.early() / MIB:.0f} MiB")
        if self.family not in UNTOLD_SIZE and self.granted > LIMIT:
            found.append(f"granted {self.granted / MIB:.0f} MiB")
        if self.nvml_full > LIMIT:
            found.append(f"NVML says {self.nvml_full / MIB:.1f} MiB")
        if self.freed != 0:
            found.append(f"free fails with {self.freed}")
        if self.after != self.before:
            found.append(f"leaves {self.after - self.before} bytes charged")
        return [f"{self.family}: {text}" for text in found]

    def detail(self) -> dict[str, object]:
        """For the report."""
        return {
            "code": self.code,
            "written": self.written,
            "granted_mib": self.granted / MIB,
            "charged_mib": self.charged_full / MIB,
            "nvml_mib": self.nvml_full / MIB,
            "early_mib": self.early() / MIB,
            "left_bytes": self.after - self.before,
        }


def fill_lines(program: Driven, family: str, piece: int, held: list[int]) -> tuple[int, int, bool]:
    """charge_addresses allocates one piece a line: last code, pieces, whether it wrote."""
    for count in range(100_000):
        code, address, written = program.ask("alloc", family, piece)
        if code != 0:
            return code, count, bool(written)
        held.append(address)
    return 0, len(held), True


def fill_addresses(program: Driven, family: str, used: Callable[[], int], state: Path) -> Filled:
    """Fills and empties a family of charge_addresses."""
    if family.startswith("pool"):
        program.ask("pool", "device")
    door = (ADDRESSES | FIRST_ADDRESSES)[family]

    def give(addresses: list[int]) -> int:
        worst = max([program.ask("free", door, address)[0] for address in addresses], default=0)
        return max(worst, program.ask("sync", "stream")[0])

    code, warm, _ = program.ask("alloc", family, MIB)
    if code != 0:
        return Filled(family, code, False, 0, 0, 0, 0, 0, 0)
    give([warm])
    before = charged(state)
    held: list[int] = []
    granted = 0
    for piece in PIECES:
        code, count, written = fill_lines(program, family, piece, held)
        granted += count * piece
    full, nvml = charged(state), used()
    freed = give(held)
    after = charged(state)
    if family.startswith("pool"):
        program.ask("destroy")
    return Filled(family, code, written, granted, full, nvml, before, after, freed)


def fill_handles(program: Driven, family: str, used: Callable[[], int], state: Path) -> Filled:
    """Fills and empties a family of memory_handles or memory_static."""
    program.ask("fill", family, 1024 * MIB, timeout_s=60)  # what a first use keeps for good
    program.ask("empty", timeout_s=60)
    before = charged(state)
    granted = 0
    for piece in PIECES:
        code, count, written = program.ask("fill", family, piece, timeout_s=60)
        granted += count * piece
    full, nvml = charged(state), used()
    (freed,) = program.ask("empty", timeout_s=60)
    after = charged(state)
    return Filled(family, code, bool(written), granted, full, nvml, before, after, freed)


@contextmanager
def container(setup: Setup, limit: str = LIMIT_TEXT) -> Iterator[tuple[dict[str, str], Path]]:
    """The environment of a container of its own: limit and state folder."""
    with tempfile.TemporaryDirectory(prefix="gpufence-") as name:
        extra = {"GPUFENCE_MEMORY_LIMIT": limit, "GPUFENCE_STATE_DIR": name}
        yield setup.environment(preload=True, extra=extra), Path(name)


@contextmanager
def outside(setup: Setup) -> Iterator[Driven]:
    """NVML asked by a process that the library is not in."""
    command = [sys.executable, NVML]
    with driven(command, setup.environment(preload=False), "memory_nvml") as nvml:
        yield nvml


def _bare_families(setup: Setup, command: list[object], families: Iterable[str]) -> set[str]:
    """The families that this driver grants at all."""
    env = setup.environment(preload=False)
    with driven(command, env, "charge_addresses bare") as bare:
        bare.ask("pool", "device")
        return {family for family in families if bare.ask("alloc", family, MIB)[0] == 0}


def _bare_writers(setup: Setup, program: Path) -> set[str]:
    """Families whose output the runtime itself writes when a driver without a limit has no more."""
    with driven([program], setup.environment(preload=False), f"{program.name} bare") as bare:
        written = set()
        for family in ARRAYS:
            if bare.ask("fill", family, 960 * MIB, timeout_s=60)[2]:
                written.add(family)
            bare.ask("empty", timeout_s=60)
        return written


def _judge(report: Report, name: str, results: list[Filled], skipped: list[str], bad: str) -> None:
    complaints = [text for filled in results for text in filled.complaints(PIECES[0])]
    if bad:
        complaints.append(bad)
    early = [filled.early() / MIB for filled in results] or [0.0]
    most = max([filled.nvml_full / MIB for filled in results], default=0.0)
    text = (
        f"{len(results)} families, refused {min(early):.0f} to {max(early):.0f} MiB early, "
        f"NVML at most {most:.1f} MiB"
    )
    if skipped:
        text += f", not granted bare: {', '.join(skipped)}"
    if complaints:
        text += "; " + "; ".join(complaints)
    report.judge(
        "memory",
        name,
        "different" if complaints else "same",
        text,
        families={filled.family: filled.detail() for filled in results},
    )


def _try_families(
    setup: Setup,
    command: list[object],
    families: list[str],
    fill: Callable[[Driven, str, Callable[[], int], Path], Filled],
    nvml: Driven,
) -> tuple[list[Filled], str]:
    """All families in one process; a program that dies keeps the rest from being tried."""
    results: list[Filled] = []
    with container(setup) as (env, state):
        try:
            with driven(command, env, Path(str(command[0])).name) as program:
                used = lambda: int(nvml.tell("used", program.pid))  # noqa: E731
                # One by one: what was found before the program died counts.
                for family in families:
                    results += [fill(program, family, used, state)]
        except DrivenError as error:
            return results, f"after {len(results)} families: {error}"
    return results, ""


def run_families(setup: Setup, report: Report, static: dict[str, Path]) -> None:
    """Judges every program by every way; `static` are the runtime's programs by name."""
    tests = setup.build / "tests"
    with outside(setup) as nvml:
        for way in WAYS:
            _run_addresses(setup, report, nvml, way)
        for way in WAYS:
            command = [tests / "memory_handles", way]
            results, bad = _try_families(setup, command, list(HANDLES), fill_handles, nvml)
            _judge(report, f"handles {way}", results, [], bad)
        for name, path in static.items():
            results, bad = _try_families(setup, [path], list(RUNTIME), fill_handles, nvml)
            writers = _bare_writers(setup, path)
            results = [replace(one, may_write=one.family in writers) for one in results]
            _judge(report, name, results, [], bad)
        for special in (_deep_launch, _fragments):
            try:
                special(setup, report, nvml)
            except DrivenError as error:  # noqa: PERF203 - twice is not often
                report.judge("memory", special.__name__.strip("_"), "failed", str(error))


def _run_addresses(setup: Setup, report: Report, nvml: Driven, way: str) -> None:
    results, skipped, bad = [], [], []
    for kind, wanted in (([], ADDRESSES), (["v1"], FIRST_ADDRESSES)):
        command = [setup.build / "tests" / "charge_addresses", way, *kind]
        granted = _bare_families(setup, command, wanted)
        families = [family for family in wanted if family in granted]
        skipped += [family for family in wanted if family not in granted]
        filled, complaint = _try_families(setup, command, families, fill_addresses, nvml)
        results += filled
        bad += [complaint] if complaint else []
    _judge(report, f"addresses {way}", results, skipped, "; ".join(bad))


def _fragments(setup: Setup, report: Report, nvml: Driven) -> None:
    """Small pieces share chunks, which the driver keeps until the last piece in them is freed."""
    with container(setup) as (env, state):
        command = [setup.build / "tests" / "charge_addresses", "linked"]
        with driven(command, env, "charge_addresses") as program:
            pieces = [program.ask("alloc", "linear", MIB)[1] for _ in range(1024)]
            for address in pieces[::2]:
                program.ask("free", "free", address)
            freed, freed_nvml = charged(state), int(nvml.tell("used", program.pid))
            code, _, _ = fill_lines(program, "linear", 2 * MIB, [])
            full, full_nvml = charged(state), int(nvml.tell("used", program.pid))
    right = code == OUT_OF_MEMORY and full_nvml <= LIMIT
    report.judge(
        "memory",
        "half-freed chunks",
        "same" if right else "different",
        f"code {code}; 512 of 1024 pieces of 1 MiB freed: charged {freed / MIB:.0f}, NVML "
        f"{freed_nvml / MIB:.0f} MiB; filled up: charged {full / MIB:.0f}, NVML "
        f"{full_nvml / MIB:.0f} of {LIMIT / MIB:.0f} MiB",
    )


def _deep_launch(setup: Setup, report: Report, nvml: Driven) -> None:
    """A kernel that needs 16 GiB of local memory is refused at its launch."""
    with container(setup) as (env, state):
        command = [setup.build / "tests" / "memory_handles", "linked"]
        with driven(command, env, "memory_handles") as program:
            code = program.ask("fill", "deep_launch", MIB)[0]
            used = int(nvml.tell("used", program.pid))
            text = f"code {code}, NVML {used / MIB:.1f} MiB, charged {charged(state) / MIB:.1f}"
    right = code == OUT_OF_MEMORY and used <= LIMIT
    report.judge("memory", "deep launch", "same" if right else "different", text)
