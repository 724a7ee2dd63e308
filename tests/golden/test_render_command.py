"""`hookgen render` at its edges: what it writes, when it does not, and how it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gen import cli, model
from gen.outputs import OUTPUTS

from .conftest import API, REPO


def test_unchanged_files_are_left_alone(tmp_path: Path) -> None:
    # Their times stay, so that ninja rebuilds nothing.
    assert cli.main(["render", "--api", str(API), "--out", str(tmp_path)]) == 0
    for path in tmp_path.iterdir():
        os.utime(path, ns=(1, 1))
    (tmp_path / "real.h").write_text("spoilt")

    assert cli.main(["render", "--api", str(API), "--out", str(tmp_path)]) == 0

    written = [path.name for path in tmp_path.iterdir() if path.stat().st_mtime_ns != 1]
    assert written == ["real.h"]


def test_only_the_named_files_are_written(tmp_path: Path) -> None:
    words = ["render", "--api", str(API), "--out", str(tmp_path), "--only", "real.h", "symbols.h"]

    assert cli.main(words) == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["real.h", "symbols.h"]


def test_list_prints_what_a_build_may_expect(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", "--list"]) == 0

    assert capsys.readouterr().out.split() == [output.file for output in OUTPUTS]


def test_depfile_names_every_input(tmp_path: Path) -> None:
    depfile = tmp_path / "a folder" / "render.d"
    words = ["render", "--api", str(API), "--out", str(tmp_path), "--depfile", str(depfile)]

    assert cli.main(words) == 0

    target, _, rest = depfile.read_text(encoding="utf-8").partition(": ")
    inputs = {Path(line.strip().replace("\\ ", " ")) for line in rest.split("\\\n")}
    assert target == str(depfile.with_suffix(".stamp")).replace(" ", "\\ ")
    assert {path.resolve() for path in model.input_files(API)} <= inputs
    assert REPO / "templates" / "real.h.j2" in inputs
    assert REPO / "tools" / "gen" / "filters.py" in inputs


def damaged(tmp_path: Path, file: str, text: str | None) -> Path:
    """A copy of the invented model with one file replaced or, for None, removed."""
    api = tmp_path / "api"
    shutil.copytree(API, api)
    if text is None:
        (api / file).unlink()
    else:
        (api / file).write_text(text, encoding="utf-8")
    return api


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("cuda.json", None, "cuda.json cannot be read: No such file or directory."),
        ("cuda.json", "{", "cuda.json is damaged"),
        ("cuda.json", '{"schema": 1}', "not an API model of schema 2"),
        ("nvml.json", '{"schema": 2}', "malformed API model: KeyError"),
        ("left-to-driver.txt", None, "left-to-driver.txt cannot be read"),
        ("stream-order.txt", None, "stream-order.txt cannot be read"),
        ("stream-order.txt", "cuGadgetFill\n", "line 1 is not 'pattern : reason'"),
        ("symbols/libcuda-470.256.02.txt", None, "no list of that driver"),
    ],
)
def test_damaged_model_is_one_line(
    file: str, text: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = damaged(tmp_path, file, text)
    if file.startswith("symbols/"):
        (api / "symbols" / "libnvidia-ml-470.256.02.txt").unlink()

    status = cli.main(["render", "--api", str(api), "--out", str(tmp_path / "out")])

    said = capsys.readouterr().err
    assert status == 1
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_unknown_output_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", "--out", "never", "--only", "reel.h"]) == 2

    assert "reel.h" in capsys.readouterr().err
    assert not Path("never").exists()


def test_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")

    status = cli.main(["render", "--api", str(API), "--out", str(tmp_path / "file")])

    assert status == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_rendering_works_without_libclang_and_lief(tmp_path: Path) -> None:
    # The build needs jinja2 alone; both others are big and often absent.
    blocker = (
        "import sys\n"
        "for name in ('clang', 'lief'): sys.modules[name] = None\n"
        "from gen.cli import main\n"
        f"sys.exit(main(['render', '--out', {str(tmp_path)!r}]))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}

    done = subprocess.run([sys.executable, "-c", blocker], env=env, check=False)

    assert done.returncode == 0
