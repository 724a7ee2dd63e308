"""`gpufence completion`: each shell, asked itself, offers what the parsers know, no more."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.commands import completion
from gpufence.console import parsers

from .gpufence_command import bare, gpufence

CASES = [
    ("gpufence to", {"top"}),
    ("gpufence top --so", {"--sort"}),
    ("gpufence top --sort re", {"refused"}),
    ("gpufence export --names hami", {"hami", "hami-legacy"}),
    ("gpufence completion z", {"zsh"}),
    ("gpufence cdi li", {"list"}),
    ("gpufence cdi list --j", {"--json"}),
    ("gpufence top --interval 1 --onc", {"--once"}),
]


def script(shell: str) -> str:
    """What the command prints."""
    done = gpufence("completion", shell)
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def bash(line: str, first: Path = Path("/nonexistent")) -> set[str]:
    """What bash would offer behind the line; `first` is a folder in front of PATH."""
    words = line.split(" ")
    asked = f"""
{script("bash")}
COMP_WORDS=({" ".join(f"'{word}'" for word in words)})
COMP_CWORD={len(words) - 1}
_gpufence
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = {**os.environ, "PATH": f"{first}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", asked], env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@needs("bash")
def test_bash_offers_every_command_and_every_option_of_each() -> None:
    verbs = {f"gpufence {name}": parser for name, (_, parser) in cli.commands().items()}
    for name, parser in tuple(verbs.items()):
        verbs |= {f"{name} {verb}": inner for verb, inner in parsers.verbs(parser).items()}

    assert bash("gpufence ") == set(cli.commands())
    for line, parser in verbs.items():
        names = {name for action in parser._actions for name in action.option_strings}
        assert bash(f"{line} -") == names, line


@needs("bash")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash_offers_what_fits(line: str, offered: set[str]) -> None:
    assert bash(line) == offered


@needs("bash")
def test_bash_offers_programs_behind_run_and_files_where_files_belong(tmp_path: Path) -> None:
    (tmp_path / "regions").mkdir()

    assert "true" in bash("gpufence run --memory 4g -- tru")
    assert "true" in bash("gpufence run tru")
    assert "true" in bash("gpufence run --sim --cores = 30 tru")
    assert bash("gpufence run --me") == {"--memory"}
    assert bash("gpufence run true --me") == bash("gpufence run -- true --memory x --me") == set()
    assert bash(f"gpufence top --state-dir {tmp_path}/reg") == {f"{tmp_path}/regions"}
    assert bash("gpufence top --filter re") == set()


def tell(folder: Path) -> None:
    """Put a `gpufence` into the folder that knows two containers."""
    teller = folder / "gpufence"
    teller.write_text('#!/bin/sh\n[ "$*" = "completion names" ] && echo train-1 && echo serve\n')
    teller.chmod(0o755)


@needs("bash")
@pytest.mark.parametrize("command", ["status", "set", "freeze", "resume", "rm"])
def test_bash_offers_containers_names(command: str, tmp_path: Path) -> None:
    tell(tmp_path)

    assert bash(f"gpufence {command} tr", tmp_path) == {"train-1"}
    assert bash(f"gpufence {command} --state-d", tmp_path) == {"--state-dir"}


@needs("fish")
@pytest.mark.parametrize(
    ("line", "offered"), [*CASES, ("gpufence set tr", {"train-1"}), ("gpufence top tr", set())]
)
def test_fish_offers_what_fits(line: str, offered: set[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("fish"), encoding="utf-8")
    tell(tmp_path)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    asked = f"source {tmp_path}/script; complete -C '{line}'"

    done = subprocess.run(
        ["fish", "--no-config", "-c", asked], env=env, capture_output=True, text=True, check=True
    )

    assert {told.split("\t")[0] for told in done.stdout.splitlines()} == offered
    assert done.stderr == ""


@contextmanager
def zsh(folder: Path, start: str, first: Path = Path("/nonexistent")) -> Iterator[int]:
    """A terminal with a zsh that was told the completion; `first` is a folder in front of PATH."""
    path = f"{first}:{os.environ['PATH']}"
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        env={"PATH": path, "TERM": "dumb", "HOME": str(folder)},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    try:
        os.write(master, f"{start}; PS1='ready'; echo set\n".encode())
        until(master, b"ready")
        yield master
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
        os.close(slave)


@needs("zsh")
@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("gpufence to", "gpufence top "),
        ("gpufence top --so", "gpufence top --sort "),
        ("gpufence top --sort re", "gpufence top --sort refused "),
        ("gpufence cdi li", "gpufence cdi list "),
        ("gpufence cdi list --j", "gpufence cdi list --json "),
        ("gpufence completion z", "gpufence completion zsh "),
        ("gpufence status tr", "gpufence status train-1 "),
        ("gpufence run --memory 4g -- gpufence to", "-- gpufence top "),
        ("gpufence run gpufence to", "run gpufence top "),
        ("gpufence export --listen :80 --onc", "--listen :80 --once "),
    ],
)
def test_zsh_completes_what_fits(typed: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("zsh"), encoding="utf-8")
    tell(tmp_path)
    start = f"autoload -U compinit; compinit -u -D; source {tmp_path}/script"
    with zsh(tmp_path, start, tmp_path) as terminal:
        os.write(terminal, f"{typed}\t".encode())
        until(terminal, shown.encode())


def test_zsh_knows_that_dashes_end_options() -> None:
    assert "_arguments -C -s -S " in script("zsh")


@needs("zsh")
def test_zsh_loads_the_script_from_its_path_of_functions(tmp_path: Path) -> None:
    (tmp_path / "_gpufence").write_text(script("zsh"), encoding="utf-8")
    start = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D"
    with zsh(tmp_path, start) as terminal:
        for typed, shown in (("gpufence to", "gpufence top "), ("--so", "--sort ")):
            os.write(terminal, f"{typed}\t".encode())
            until(terminal, shown.encode())


def until(terminal: int, text: bytes) -> None:
    """Read until the text comes."""
    seen, end = b"", time.monotonic() + 30
    while text not in seen:
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096)


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_is_the_same_every_time(shell: str) -> None:
    assert script(shell) == script(shell) != ""


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_without_the_package_that_writes_scripts_one_line_says_so(shell: str) -> None:
    done = bare("completion", shell)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "gpufence: no completion: the Python package shtab is not installed."
        " Run `pip install shtab`.\n"
    )


def test_names_need_no_package(tmp_path: Path) -> None:
    done = bare("completion", "names", GPUFENCE_STATE_DIR=str(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
