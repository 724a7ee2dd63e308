"""What GPUs take beside the time of their kernels, as variables of the simulated driver.

Must not know what is tested on them.
"""

from __future__ import annotations

from collections.abc import Mapping

# An H200 with driver 580, in nanoseconds: docs/core-limiter.md says how each was measured.
H200: Mapping[str, int] = {
    "LAUNCH_GAP_NS": 1_700,
    "STEP_GAP_NS": 950,
    "WIDE_GAP_NS": 950,
    "START_NS": 460,
    "EVENT_NS": 1_540,
    "EVENT_GAP_NS": 960,
    "LAUNCH_NS": 2_500,
}
