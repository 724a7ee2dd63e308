"""`gpufence completion`: each shell, asked itself, offers what the parsers know, no more."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.commands import completion
from gpufence.commands.completion_scripts import SHELLS, Takes

from .gpufence_command import gpufence

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


def test_every_command_and_option_is_described() -> None:
    described = {command.path: command for command in completion.describe()}

    assert {path[0] for path in described} == set(cli.commands())
    for name, (_, parser) in cli.commands().items():
        names = {name for action in parser._actions for name in action.option_strings}
        assert {name for option in described[(name,)].options for name in option.names} == names
    (sort,) = (o for o in described[("top",)].options if "--sort" in o.names)
    (folder,) = (o for o in described[("top",)].options if "--state-dir" in o.names)
    assert (sort.takes, "cores" in sort.values, folder.takes) == (Takes.WORD, True, Takes.FILE)
    assert described[("run",)].program


@needs("bash")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash_offers_what_fits(line: str, offered: set[str]) -> None:
    assert bash(line) == offered


@needs("bash")
def test_bash_offers_programs_behind_run_and_files_where_files_belong(tmp_path: Path) -> None:
    (tmp_path / "regions").mkdir()

    assert "true" in bash("gpufence run --memory 4g -- tru")
    assert "true" in bash("gpufence run tru")
    assert bash("gpufence run --me") == {"--memory"}
    assert bash(f"gpufence top --state-dir {tmp_path}/reg") == {f"{tmp_path}/regions"}
    assert bash("gpufence top --filter re") == set()


@needs("bash")
@pytest.mark.parametrize("command", ["status", "set", "freeze", "resume", "rm"])
def test_bash_offers_containers_names(command: str, tmp_path: Path) -> None:
    teller = tmp_path / "gpufence"
    teller.write_text('#!/bin/sh\n[ "$*" = "completion names" ] && echo train-1 && echo serve\n')
    teller.chmod(0o755)

    assert bash(f"gpufence {command} tr", tmp_path) == {"train-1"}
    assert bash(f"gpufence {command} --state-d", tmp_path) == {"--state-dir"}


def test_every_shell_asks_for_names_where_a_container_is_named() -> None:
    named = {command.path for command in completion.describe() if command.containers}

    assert named == {("status",), ("set",), ("freeze",), ("resume",), ("rm",)}
    for shell in SHELLS:
        assert script(shell).count("gpufence completion names") == len(named)


@needs("fish")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish_offers_what_fits(line: str, offered: set[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("fish"), encoding="utf-8")
    asked = f"source {tmp_path}/script; complete -C '{line}'"

    done = subprocess.run(
        ["fish", "--no-config", "-c", asked], capture_output=True, text=True, check=True
    )

    assert {told.split("\t")[0] for told in done.stdout.splitlines()} == offered
    assert done.stderr == ""


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
    ],
)
def test_zsh_completes_what_fits(typed: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("zsh"), encoding="utf-8")
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(tmp_path)},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    try:
        start = f"autoload -U compinit; compinit -u -D; source {tmp_path}/script; PS1='ready'; echo"
        os.write(master, f"{start} set\n".encode())
        until(master, b"ready")
        os.write(master, f"{typed}\t".encode())
        until(master, shown.encode())
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
        os.close(slave)


def until(terminal: int, text: bytes) -> None:
    """Read until the text comes."""
    seen, end = b"", time.monotonic() + 30
    while text not in seen:
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096)


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_the_script_is_the_same_every_time(shell: str) -> None:
    assert script(shell) == script(shell) != ""
