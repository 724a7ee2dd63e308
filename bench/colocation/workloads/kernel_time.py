"""How long the GPU works for a step of a program, by the driver's records of its kernels.

Where power limits the GPU's clock, a step takes more time the busier the GPU is: a program that is
held makes more steps than its share of the time. `torch` is handed in, as in layers.py.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ON_GPU = ("kernel", "gpu_memset", "gpu_memcpy")  # categories of a trace


def step_ms(torch: Any, run: Callable[[], int]) -> float:  # noqa: ANN401
    """Milliseconds of the GPU's time that a step takes now; nan without records.

    Args:
        torch: PyTorch, whose profiler asks the driver for the records.
        run: makes steps, at least one, and returns how many.
    """
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        steps = run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return usual_us(events) / steps / 1e3


def usual_us(events: Iterable[Mapping[str, Any]]) -> float:
    """What all kernels of a trace took, each as long as those of its name do in the median.

    A kernel that the driver interrupted for another process lasts while that has the GPU.
    """
    by_name: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ON_GPU:
            by_name[str(event["name"])].append(float(event["dur"]))
    if not by_name:
        return float("nan")
    return sum(len(each) * statistics.median(each) for each in by_name.values())
