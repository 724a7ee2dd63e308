"""What programs under a core limit will reckon with: which pauses of GPUs are kept, and where.

Must not know how they are measured, nor how findings are printed (doctor.py).
"""

from __future__ import annotations

from pathlib import Path

from gpufence.config.limits import Claims, Kind
from gpufence.state import kept_pauses, places

from .finding import Collected, Finding


def check(claims: Claims | None) -> Finding:
    """Where a core limit is claimed, or something is kept.

    Args:
        claims: the limits of this process; None: it has none, or they are refused.
    """
    found = Collected("pauses")
    named = [claims.node_folder, claims.state_folder] if claims else []
    folders = dict.fromkeys(Path(text) for text in (*filter(None, named), *places.USUAL))
    kept = kept_pauses.read_all(folders)
    found.facts["kept"] = [kept_pauses.as_dict(each) for each in kept]
    found.told += [f"of GPU {each.uuid.hex()[:8]}: {kept_pauses.as_text(each)}" for each in kept]
    limited = claims is not None and any(
        each.kind is Kind.CORES and each.amount for each in claims.claims
    )
    if limited and not kept:
        found.told.append("bounds, until a program or `gpufence calibrate` measures them")
    return found.done()
