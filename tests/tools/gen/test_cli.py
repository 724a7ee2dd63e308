"""The manners of the command line: exit statuses, one line on stderr, nothing loaded in vain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gen import cli, extract

REPO = Path(__file__).resolve().parents[3]


def hookgen(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}
    command = [sys.executable, "-m", "gen", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [("dance",), ("extract", "--no-such-option")])
def test_wrong_usage_is_status_2(words: tuple[str, ...]) -> None:
    done = hookgen(*words)

    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    done = hookgen(command, "--help")

    assert done.returncode == 0
    assert f"hookgen {command}" in done.stdout


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("extract", "--nvml-include", "x"), 2, "belongs to --cuda-include"),
        (("extract", "--cuda-include", "/no/such/folder"), 1, "no cuda.h in '/no/such/folder'"),
        (("extract", "--api", "/no/such/folder"), 1, "/no/such/folder/headers.json"),
        (("verify", "--api", "/no/such/folder"), 1, "/no/such/folder/headers.json"),
    ],
)
def test_error_is_one_line_on_stderr(words: tuple[str, ...], status: int, why: str) -> None:
    done = hookgen(*words)

    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("hookgen: ")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


def test_defect_of_our_own_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_args: object) -> int:
        raise IndexError("a slip")

    monkeypatch.setattr(extract, "run", broken)

    assert cli.main(["extract"]) == 1

    assert capsys.readouterr().err.startswith("hookgen: extract failed: IndexError: a slip.")


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_args: object) -> int:
        raise IndexError("a slip")

    monkeypatch.setattr(extract, "run", broken)

    with pytest.raises(IndexError):
        cli.main(["--debug", "extract"])


def test_reading_the_help_loads_neither_clang_nor_jinja2() -> None:
    code = (
        "import sys; from gen import cli\n"
        "try: cli.main(['extract', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(sorted({'clang', 'jinja2', 'lief'} & sys.modules.keys()) or 0)"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}

    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_reader_that_stops_early_sees_no_complaint() -> None:
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}
    command = [sys.executable, "-m", "gen", "explain", "cuMemAlloc"]
    read_end, write_end = os.pipe()
    os.close(read_end)

    done = subprocess.run(
        command, env=env, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)

    assert done.stderr == ""
