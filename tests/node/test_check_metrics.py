"""What a check of a node tells Prometheus: who goes around, old libraries, and the agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpufence.errors import ToolError
from gpufence.export import metrics
from gpufence.node import agents, check_metrics
from gpufence.node.bypass import Bypass, Reason, Seen

from .conftest import REPO

HOLDER = """
import sys
from pathlib import Path
from gpufence.node import agents
held = agents.only_one(Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


def told(*seen: Seen, found: tuple[Bypass, ...] = (), runs: bool = True) -> list[str]:
    text = metrics.text(check_metrics.families(seen, found, runs))
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_an_old_library_counts_once_for_each_process() -> None:
    old = [Seen(1, gpu, "a", 5, True, old=True) for gpu in ("GPU-a", "GPU-b")]

    lines = told(*old, Seen(2, "GPU-a", "b", 5, True), Seen(3, "GPU-a", "c", 5, True, old=True))

    assert "gpufence_node_old_library_processes 2.0" in lines


def test_every_reason_is_told_also_where_nobody_has_it() -> None:
    user = Seen(4, "GPU-a", "train", None, False)

    lines = told(user, found=(Bypass(Reason.UNFENCED, user, "", None),))

    assert 'gpufence_node_bypass_processes{reason="unfenced"} 1.0' in lines
    assert 'gpufence_node_bypass_processes{reason="unaccounted"} 0.0' in lines
    assert 'gpufence_node_bypass_processes{reason="beyond"} 0.0' in lines
    assert "gpufence_node_old_library_processes 0.0" in lines


@pytest.mark.parametrize(("runs", "value"), [(True, "1.0"), (False, "0.0")])
def test_whether_the_agent_runs_is_told(runs: bool, value: str) -> None:
    assert f"gpufence_node_agent_running {value}" in told(runs=runs)


def test_an_agent_runs_as_long_as_its_process(tmp_path: Path) -> None:
    before = agents.is_running(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={"PYTHONPATH": str(REPO / "tools")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout
    holder.stdout.readline()
    while_it_runs = agents.is_running(tmp_path)
    other = agents.is_running(tmp_path.parent)
    with pytest.raises(ToolError, match="refused"):
        agents.only_one(tmp_path)
    holder.kill()
    holder.communicate()

    assert (before, while_it_runs, other) == (False, True, False)
    assert not agents.is_running(tmp_path)


def test_to_ask_whether_one_runs_keeps_none_from_starting(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as file:  # only open, as another reader may have it
        assert not agents.is_running(tmp_path)
        agents.only_one(tmp_path).close()
        assert file.read() == ""
