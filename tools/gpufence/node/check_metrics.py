"""What a check of a node found as metrics: names, labels, meanings. Must not know how it was found.

deploy/monitoring draws and alerts by these names, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpufence.export.metrics import Family

from .bypass import Bypass, Reason, Seen


def families(seen: Sequence[Seen], found: Sequence[Bypass], agent_runs: bool) -> list[Family]:
    """Everything that a check tells.

    Args:
        seen: every process on a GPU.
        found: those of them that go around their limit.
        agent_runs: whether the node's agent does.
    """
    old = {(each.uuid, each.pid): each for each in seen if each.old}
    return [
        Family(
            "gpufence_node_bypass_processes",
            "gauge",
            "Processes that go around their limit.",
            tuple(
                ({"reason": reason.value}, float(sum(each.reason is reason for each in found)))
                for reason in Reason
            ),
        ),
        Family(
            "gpufence_node_bypass_bytes",
            "gauge",
            "GPU memory of a process that goes around its limit; 0 where it is not known.",
            tuple((_labels(each), float(each.seen.used_bytes or 0)) for each in found),
        ),
        Family(
            "gpufence_node_old_library_processes",
            "gauge",
            "Processes on a GPU whose library was replaced since they started.",
            (({}, float(len({pid for _, pid in old}))),),
        ),
        Family(
            "gpufence_node_agent_running",
            "gauge",
            "1 while an agent holds its folder on this node, else 0.",
            (({}, float(agent_runs)),),
        ),
    ]


def _labels(each: Bypass) -> dict[str, str]:
    return {
        "UUID": each.seen.uuid,
        "pid": str(each.seen.pid),
        "command": each.seen.command,
        "container": each.container,
        "reason": each.reason.value,
    }
