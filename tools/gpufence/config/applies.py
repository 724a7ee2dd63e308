"""What applies of everything that is claimed, in words.

Must not know where it is shown. Standard library only.
"""

from __future__ import annotations

from .limits import Claim, Claims, Kind, Target
from .terms import GRAMMARS

NOTHING = {
    Kind.MEMORY: "no limit",
    Kind.CORES: "no limit",
    Kind.SOFT_CORES: "as cores",
    Kind.OVERSUBSCRIBE: "off",
    Kind.SPILL: "off",
}


OF_THREADS = "mps: cores are MPS's threads, not GPU time"


def gpu_name(claim: Claim) -> str:
    """The GPU, or all, that a claim is for."""
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
    mode = [("mode", OF_THREADS, claims.mode_source)] if claims.mode_source else []
    return mode + [
        (called, words[called], claims.term_sources[option])
        for option, (called, _) in GRAMMARS.items()
        if called in words
    ]
