"""Every parser of limits survives texts that nobody wrote, under AddressSanitizer and UBSan.

Short here; GPUFENCE_TEST_FUZZ_SECONDS makes it longer, GPUFENCE_TEST_FUZZ_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SECONDS = os.environ.get("GPUFENCE_TEST_FUZZ_SECONDS", "4")
SEED = os.environ.get("GPUFENCE_TEST_FUZZ_SEED", "1")


def test_no_text_breaks_a_parser(tmp_path: Path) -> None:
    program = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build")) / "tests" / "config_fuzz"
    if not program.exists():
        pytest.skip(f"{program} is not built: run ci/build --tests first")

    done = subprocess.run(
        [str(program), str(tmp_path), SECONDS, SEED],
        env={},
        capture_output=True,
        text=True,
        timeout=int(SECONDS) + 60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    rounds = json.loads(done.stdout)
    assert list(rounds) == ["grammars", "json", "yaml", "vgpu_config", "everything"]
    assert min(rounds.values()) > 100
