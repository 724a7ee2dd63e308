"""A command forked from a warm interpreter says and returns what one does that starts by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from . import warm_commands


@pytest.mark.parametrize(
    ("module", "words", "text"),
    [
        ("gpufence", ["config", "--json"], ""),
        ("gpufence", ["completion", "bash"], ""),
        ("gpufence", ["run", "--", "sh", "-c", "cat; pwd; env | sort; exit 7"], "given"),
        ("gpufence", ["run", "--", "sh", "-c", "kill -9 $$"], ""),
        ("gpufence", ["status", "\udcff"], ""),
        ("findsyms", ["--driver=580"], ""),
        ("gen", ["explain", "cuMemAloc"], ""),
    ],
    ids=lambda value: "-".join(value)[:20] if isinstance(value, list) else None,
)
def test_a_fork_is_a_command(module: str, words: list[str], text: str, tmp_path: Path) -> None:
    env = {**warm_commands.BARE, "ONE": "1"}
    command = [sys.executable, "-m", module, *words]
    cold = subprocess.run(
        command, env=env, cwd=tmp_path, input=text.encode(), capture_output=True, check=False
    )

    warm = warm_commands.run(module, words, env, text=text.encode(), cwd=tmp_path)

    assert warm.stdout == cold.stdout
    assert warm.stderr == cold.stderr
    assert warm.returncode == cold.returncode
