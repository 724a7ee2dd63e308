"""The stress: many processes and threads at the limit, watched from outside all the while.

Judges that the sum NVML reports never passes the limit and that nothing stays charged.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

from driven import DrivenError, driven
from memory_families import MIB, container, outside
from region_file import charged
from report import Report
from setup import Setup

PROCESSES = 8
THREADS = 8
# At 4 GiB not even eight contexts fit, so they take turns; at 8 GiB all have one and room beside.
LIMITS = {"4GiB": 4096 * MIB, "8GiB": 8192 * MIB}
SECONDS = 10.0


def run_stress(setup: Setup, report: Report, _static: dict[str, Path]) -> None:
    """One stress for each limit, 20 seconds in all."""
    for text, limit in LIMITS.items():
        try:
            _stress(setup, report, text, limit)
        except DrivenError as error:  # noqa: PERF203 - twice is not often
            report.judge("memory", f"stress at {text}", "failed", str(error))


def _stress(setup: Setup, report: Report, limit_text: str, limit: int) -> None:
    with ExitStack() as stack:
        env, state = stack.enter_context(container(setup, limit_text))
        nvml = stack.enter_context(outside(setup))
        program = setup.build / "tests" / "memory_stress"
        workers = [
            stack.enter_context(driven([program, SECONDS, THREADS, seed], env, f"stress {seed}"))
            for seed in range(1, PROCESSES + 1)
        ]
        nvml.say("sample", limit, *(worker.pid for worker in workers))
        for worker in workers:
            worker.say("go")
        counts = [json.loads(worker.line(SECONDS + 60)) for worker in workers]
        seen = json.loads(nvml.tell("stop"))
        left = charged(state)
    total = {
        name: sum(count[name] for count in counts)
        for name in ("grants", "refusals", "contexts", "contexts_refused")
    }
    odd: dict[str, int] = {}
    for count in counts:
        for code, times in count["odd_codes"].items():
            odd[code] = odd.get(code, 0) + times
    complaints = []
    if seen["max_bytes"] > limit:
        complaints.append(
            f"OVER THE LIMIT by {(seen['max_bytes'] - limit) / MIB:.1f} MiB in "
            f"{seen['samples_over']} samples, for {seen['longest_over_ms']} ms at most"
        )
    if left:
        complaints.append(f"{left} bytes stay charged")
    if odd:
        complaints.append(f"other codes: {odd}")
    if min(total["grants"], total["refusals"], seen["samples"]) == 0:
        complaints.append("the limit was not reached")
    text = (
        f"NVML sum at most {seen['max_bytes'] / MIB:.1f} of {limit / MIB:.0f} MiB in "
        f"{seen['samples']} samples ({seen['samples_per_second']} a second, longest gap "
        f"{seen['longest_gap_ms']} ms), {total['grants']} grants, {total['refusals']} refusals, "
        f"{total['contexts']} contexts, {total['contexts_refused']} refused"
    )
    report.judge(
        "memory",
        f"stress at {limit_text}",
        "different" if complaints else "same",
        "; ".join([text, *complaints]),
        limit=limit,
        seen=seen,
        total=total,
        processes=counts,
        odd_codes=odd,
        left_bytes=left,
    )
