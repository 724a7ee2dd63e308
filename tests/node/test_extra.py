"""What the agent needs beyond the standard library, and what is said where it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import MISSING, REPO, library_like


def test_the_agents_own_tests_are_run() -> None:
    if MISSING:
        pytest.skip(f"this Python has no {MISSING[0]} (the extra gpufence[node])")


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    for name in ("grpc", "google"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ModuleNotFoundError(name={name!r})")

    done = subprocess.run(
        [sys.executable, "-m", "gpufence", "node", "serve", f"--lib={library_like(tmp_path)}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{REPO / 'tools'}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install grpcio protobuf" in done.stderr
    assert done.stderr.count("\n") == 1
