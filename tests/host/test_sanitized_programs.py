"""Programs built with a sanitizer start under the library, whose runtime looks names up first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import Sim

SOURCE = "int main(void) { return 7; }\n"


@pytest.mark.parametrize("sanitizer", ["thread", "undefined"])
def test_the_program_starts(sim: Sim, tmp_path: Path, sanitizer: str) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    source = tmp_path / "program.c"
    source.write_text(SOURCE, encoding="utf-8")
    program = tmp_path / "program"
    command = [compiler, f"-fsanitize={sanitizer}", str(source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0 and "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    assert built.returncode == 0, built.stderr

    assert sim.run(program, preload=True).returncode == 7
