"""Whether NVIDIA's driver limits the process's GPU memory by itself, and who refuses first.

From branch 615 on the driver can limit a cgroup. Judges what gpu_probe.py was told, beside what was
written for gpufence; must not know how NVML is asked, nor how findings are printed (doctor.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufence.config import figures, limits, sizes
from gpufence.config.limits import Claims, Device, Kind

from .finding import Collected, Finding

_WHO_REFUSES = {
    "driver": "the driver refuses first",
    "gpufence": "gpufence refuses first",
    "unknown": "who refuses first is unknown",
    None: "the driver refuses nothing",
}


def check(told: Mapping[str, Any] | None, claims: Claims | None) -> Finding:
    """A line for each GPU that the driver limits.

    Args:
        told: what gpu_probe.py prints, or a "problem" alone; None: no NVML is open.
        claims: what the process is limited to; None: gpufence holds nothing there.
    """
    found = Collected("native")
    rows: list[object] = []
    found.facts |= {"gpus": rows, "problem": None}
    if told is None:
        found.told.append("not asked: NVML is not open")
    elif "problem" in told:
        found.facts["problem"] = told["problem"]
        found.told.append(f"unknown: {told['problem']}")
    else:
        gpus = told["gpus"]
        rows += [_judge(gpu, index, len(gpus), claims, found) for index, gpu in enumerate(gpus)]
        if not found.told:
            found.told.append("none")
    return found.done()


def _judge(
    gpu: Mapping[str, Any], index: int, count: int, claims: Claims | None, found: Collected
) -> dict[str, object]:
    native = gpu.get("native")
    empty = {"soft_bytes": None, "hard_bytes": None, "used_bytes": None, "refuses_first": None}
    facts = {"uuid": gpu["uuid"], "state": "none", "problem": None, **empty}
    if native is None:
        return facts
    if "problem" in native:
        found.told.append(f"{gpu['uuid']}: unknown: {native['problem']}")
        return facts | {"state": "unknown", "problem": native["problem"]}
    soft, hard = native["soft"], native["hard"]
    first = None
    if hard is not None:
        # The driver reports a GPU of the size of its limit, so a part of the GPU is one of that.
        uuid = sizes.parse_uuid(gpu["uuid"])
        # CUDA alone knows its ordinal, which can be any.
        places = [Device(uuid, ordinal, index, hard) for ordinal in range(count)]
        first = _first(places, claims) if claims else "driver"
    text = "none" if hard is None else figures.exact(hard)
    found.told.append(
        f"{gpu['uuid']}: soft {figures.exact(soft)}, hard {text}; {_WHO_REFUSES[first]}"
    )
    return facts | {
        "state": "set",
        "soft_bytes": soft,
        "hard_bytes": hard,
        "used_bytes": native["used"],
        "refuses_first": first,
    }


def _first(places: Sequence[Device], claims: Claims) -> str:
    """Who refuses first on a GPU, which is one of the places; their bytes are the hard limit.

    Equal limits are gpufence's, which is asked before the driver.
    """
    lowest = limits.memory_on(claims.system, places)
    # gpufence then counts each process for itself, or what the driver does not count.
    differs = claims.process_scope or any(
        claim.amount and claim.kind in (Kind.OVERSUBSCRIBE, Kind.SPILL) for claim in claims.claims
    )
    if claims.hypervisor or (differs and any(one is not None for one in lowest)):
        return "unknown"
    ours = {
        one is not None and one <= place.total_bytes
        for one, place in zip(lowest, places, strict=True)
    }
    if len(ours) > 1:
        return "unknown"
    return "gpufence" if ours == {True} else "driver"
