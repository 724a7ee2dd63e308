"""`--version` and bare command lines of the tools beside `gpufence`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import warm_commands


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        env=warm_commands.BARE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "words", "name"),
    [("findsyms", (), "findsyms"), ("findsyms", ("check",), "findsyms"), ("gen", (), "hookgen")],
)
def test_every_tool_has_a_version(module: str, words: tuple[str, ...], name: str) -> None:
    done = run(module, *words, "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0].rstrip(",") == name
    assert done.stdout.count("\n") == 1


def test_hookgen_alone_prints_its_help_with_its_exit_statuses() -> None:
    bare = run("gen")

    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == run("gen", "--help").stdout
    assert "\nexit status:\n  0    done\n" in bare.stdout
    assert "\nexit status:\n" in run("gen", "verify", "--help").stdout
