"""The rendered text of the invented API is exactly what was reviewed.

After a deliberate change: `pytest tests/golden --update-golden`, then read the diff.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gen import codec, model
from gen.outputs import OUTPUTS
from gen.written import write_if_changed

GOLDEN = Path(__file__).parent / "rendered"
API = Path(__file__).parent / "api"
REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", [output.file for output in OUTPUTS])
def test_output_is_what_was_reviewed(
    name: str, rendered: dict[str, str], request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / name
    if request.config.getoption("--update-golden"):
        write_if_changed(path, rendered[name])

    reviewed = path.read_text(encoding="utf-8") if path.is_file() else ""

    difference = difflib.unified_diff(
        reviewed.splitlines(),
        rendered[name].splitlines(),
        f"reviewed/{name}",
        f"now/{name}",
        "",
        "",
        2,
        "",
    )
    assert reviewed == rendered[name], "\n".join(difference)


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(o.file for o in OUTPUTS)


@pytest.mark.parametrize("library", model.LIBRARIES)
def test_invented_model_is_canonical(library: str) -> None:
    text = (API / f"{library}.json").read_text(encoding="utf-8")

    assert codec.dumps(codec.loads(text)) == text


def test_rendering_depends_on_nothing_but_its_inputs(tmp_path: Path) -> None:
    # Another hash seed reorders sets and dicts of sets; another folder and time zone may leak.
    written = []
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        folder = tmp_path / seed
        env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": str(REPO / "tools")}
        command = [sys.executable, "-m", "gen", "render", "--out", str(folder)]
        subprocess.run(command, env=env, check=True, cwd=tmp_path)
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})

    assert written[0] == written[1]
    assert not any(str(REPO).encode() in content for content in written[0].values())


def test_committed_model_renders_every_output(real_texts: dict[str, str]) -> None:
    assert list(real_texts) == [output.file for output in OUTPUTS]
    assert all(text.endswith("\n") for text in real_texts.values())
