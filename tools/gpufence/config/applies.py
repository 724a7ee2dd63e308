"""What applies of everything that is claimed, for each GPU, and how an amount reads.

Must not know where it is shown. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufence.errors import ExitCode, ToolError

from . import limits
from .limits import Chosen, Claim, Claims, Device, Kind
from .options import Dialect
from .sources import ConfigError, Target
from .terms import GRAMMARS

NOTHING = {
    Kind.MEMORY: "no limit",
    Kind.CORES: "no limit",
    Kind.SOFT_CORES: "as cores",
    Kind.OVERSUBSCRIBE: "off",
    Kind.SPILL: "off",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU, or all, and what is claimed for it.

    `applies` is None where no limit is the answer, or where parts and bytes cannot be compared
    without the GPU; `depends` tells the latter.
    """

    kind: Kind
    gpu: str
    applies: Claim | None
    depends: bool
    overruled: tuple[Claim, ...]

    @property
    def nothing(self) -> str:
        """The source that says "no limit", where one does; the first of several."""
        return next((claim.source for claim in self.overruled if not claim.amount), "")


def refused(error: ConfigError, status: ExitCode) -> ToolError:
    """The library's line "what why. fix" as a failure of this tool."""
    head, _, fix = str(error).rpartition(". ")
    return ToolError(what="limits refused", why=head, fix=fix, status=status)


def rows_of(claims: Claims) -> list[Row]:
    """What applies, for all GPUs and for each that is named."""
    rows = []
    for kind in Kind:
        mine = [claim for claim in claims.claims if claim.kind is kind]
        hard = [claim for claim in claims.claims if claim.kind is Kind.CORES]
        # A soft share depends on the hard one, which may be another GPU by GPU.
        naming = [*mine, *hard] if mine and kind is Kind.SOFT_CORES else mine
        named = {_identity(claim): claim for claim in naming}
        for _, example in sorted(named.items(), key=lambda each: each[0]):
            gpu = _device(example)
            said = limits.of_dialects(mine, gpu)
            bounds = limits.of_dialects(hard, gpu) if kind is Kind.SOFT_CORES else None
            concerned = [claim for claim in mine if claim.concerns(gpu)]
            rows.append(_row(kind, _gpu_name(example), concerned, said, bounds))
    return rows


def _identity(claim: Claim) -> tuple[int, int, bytes]:
    index = claim.index if claim.target in (Target.ORDINAL, Target.NVML_INDEX) else 0
    return claim.target, index, claim.uuid


def _device(example: Claim) -> Device:
    """The GPU that a claim names; nothing else is known of it."""
    ordinal = example.index if example.target is Target.ORDINAL else -1
    nvml_index = example.index if example.target is Target.NVML_INDEX else None
    uuid = example.uuid if example.target is Target.UUID else b""
    return Device(uuid, ordinal, nvml_index, 0)


def _row(
    kind: Kind,
    gpu: str,
    mine: list[Claim],
    said: dict[Dialect, Chosen],
    bounds: dict[Dialect, Chosen] | None,
) -> Row:
    """One row.

    Args:
        kind: of the claims.
        gpu: its name.
        mine: all claims of the kind for it.
        said: what each dialect says.
        bounds: for soft shares what each dialect says of the hard one.
    """
    named = [one.claim for one in said.values() if one.claim.amount]
    depends = len(named) > 1 and any(claim.percent_of_device for claim in named)
    if bounds is None:
        chosen = None if depends else limits.lowest(said)
    else:
        hard, chosen = limits.lowest(bounds), limits.lowest(limits.ceilings(bounds, said))
        if not hard or not chosen or chosen.amount <= hard.amount:
            chosen = None
    applies = chosen.claim if chosen else None
    return Row(kind, gpu, applies, depends, tuple(claim for claim in mine if claim is not applies))


def _gpu_name(claim: Claim) -> str:
    if claim.target is Target.EVERY:
        return "every GPU"
    if claim.target is Target.UUID:
        text = claim.uuid.hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return "GPU-" + "-".join(parts)
    return f"GPU {claim.index}" + (" of NVML" if claim.target is Target.NVML_INDEX else "")


def amount_text(claim: Claim) -> str:
    """The amount for people: "4 GiB", "30 %", "ratio 1.5"."""
    if not claim.amount:
        return NOTHING[claim.kind]
    if claim.kind in (Kind.OVERSUBSCRIBE, Kind.SPILL):
        return "on" if claim.amount == 1 else f"ratio {claim.amount / 1000:g}"
    if claim.kind is not Kind.MEMORY:
        return f"{claim.amount / 1000:g} %"
    if claim.percent_of_device:
        return f"{claim.amount / 10**9:.12g} % of the GPU"
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if claim.amount % 1024**power == 0:
            return f"{claim.amount // 1024**power} {unit}"
    return f"{claim.amount} bytes"


def terms_of(claims: Claims) -> list[tuple[str, str, str]]:
    """What holds beside the shares: what it is called, what it is, and where that stands."""
    words = claims.terms.words()
    return [
        (called, words[called], claims.term_sources[option])
        for option, (called, _) in GRAMMARS.items()
        if called in words
    ]
