"""The pages about `gpufence` and its parsers say the same: every option and every variable.

What a page shows of a command line, it must also accept.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.config.sources import Sources, System
from gpufence.errors import ExitCode

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
PAGES = [REPO / "README.md", *sorted(DOCS.glob("*.md"))]
# Commands with a page of their own; the others have a section of docs/gpufence.md.
OWN_PAGE = {"top": "top.md", "export": "export.md", "cdi": "containers.md", "node": "node-agent.md"}

PARSERS = {name: parser for name, (_, parser) in cli.commands().items()}
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
VARIABLE = re.compile(r"\[(GPUFENCE_[A-Z_]+)")
INVOCATION = re.compile(r"\bgpufence (?P<command>[a-z]+)\b(?P<rest>[^\n`|;)]*)")


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option of a parser and of its verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from actions(verb)
        elif action.option_strings and action.dest not in ("help", argparse.SUPPRESS):
            yield action  # all but --help and --version, which every command has


def flags(command: str) -> set[str]:
    """Every spelling of every option."""
    return {name for action in actions(PARSERS[command]) for name in action.option_strings}


def told_flags(command: str) -> set[str]:
    """One spelling of each option, which is what a page has to say."""
    return {action.option_strings[0] for action in actions(PARSERS[command])}


def place(command: str) -> str:
    """The text about one command."""
    if command in OWN_PAGE:
        return (DOCS / OWN_PAGE[command]).read_text("utf-8")
    page = (DOCS / "gpufence.md").read_text("utf-8")
    return page.split(f"\n## gpufence {command}\n", 1)[1].split("\n## ")[0]


@pytest.mark.parametrize("command", PARSERS)
def test_every_option_stands_in_the_commands_page(command: str) -> None:
    assert told_flags(command) - set(FLAG.findall(place(command))) == set()


@pytest.mark.parametrize("command", PARSERS)
def test_synopsis_and_table_tell_of_no_other_option(command: str) -> None:
    synopses = re.findall(rf"^gpufence {command}\b.*(?:\n  .*)*", place(command), re.MULTILINE)
    rows = re.findall(r"^\| (`--[^|]*)", place(command), re.MULTILINE)
    told = set(FLAG.findall("\n".join(synopses + rows)))

    assert synopses or command in OWN_PAGE
    assert told - flags(command) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_line_that_a_page_shows_has_options_of_that_command(page: Path) -> None:
    wrong = []
    for found in INVOCATION.finditer(page.read_text("utf-8")):
        command = found["command"]
        own = found["rest"].split(" -- ")[0] if command == "run" else found["rest"]
        known = flags(command) | {"--help"} if command in PARSERS else set()
        wrong += [f"{command} {flag}" for flag in FLAG.findall(own) if flag not in known]

    assert wrong == []


@pytest.mark.parametrize("command", PARSERS)
def test_the_commands_page_is_found_from_the_table_of_contents(command: str) -> None:
    page = (DOCS / "gpufence.md").read_text("utf-8")
    target = OWN_PAGE.get(command, f"#gpufence-{command}")

    contents = page.split("\n## ")[0]
    assert f"| [`gpufence {command}`]({target}) |" in contents


@pytest.mark.parametrize("command", PARSERS)
def test_the_commands_page_has_a_table_of_exit_statuses(command: str) -> None:
    assert "| status | meaning |" in place(command)


def test_the_table_of_variables_is_what_the_parsers_know() -> None:
    page = (DOCS / "gpufence.md").read_text("utf-8")
    section = page.split("\n## Variables\n", 1)[1].split("\n## ")[0]

    told = re.findall(r"^\| `([a-z]+)` \| `(--[a-z-]+)` \| `(GPUFENCE_[A-Z_]+)` \|", section, re.M)

    assert told == [
        (command, action.option_strings[0], found[1])
        for command, parser in PARSERS.items()
        for action in actions(parser)
        if (found := VARIABLE.search(action.help or ""))
    ]


def test_a_variable_of_a_flag_is_no_typo_to_the_library() -> None:
    page = (DOCS / "gpufence.md").read_text("utf-8")
    section = page.split("\n## Variables\n", 1)[1].split("\n## ")[0]
    names = re.findall(r"`(GPUFENCE_[A-Z_]+)`", section)

    assert names
    Sources.of(System("/nowhere", tuple(f"{name}=x" for name in names)))


@pytest.mark.parametrize("command", PARSERS)
def test_help_tells_the_same_either_way(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked, named = said(capsys, "help", command), said(capsys, command, "--help")

    own = {name for action in PARSERS[command]._actions for name in action.option_strings}
    assert asked == named
    assert asked[0] == 0
    assert (told_flags(command) & own) - set(FLAG.findall(asked[1])) == set()


def test_help_without_a_command_lists_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, complaint = said(capsys, "help")

    assert (status, complaint) == (0, "")
    assert all(f"\n  {command} " in printed for command in PARSERS)


def test_the_version_is_the_projects(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = (REPO / "pyproject.toml").read_text("utf-8")
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    installed = said(capsys, "--version")
    monkeypatch.setattr(metadata, "version", missing)

    assert version
    assert installed == (0, f"gpufence {version[1]}\n", "")
    assert said(capsys, "--version")[1] == "gpufence, from a checkout that is not installed\n"


@pytest.mark.parametrize("words", [*((name,) for name in PARSERS), ("cdi", "list")], ids=" ".join)
def test_every_command_tells_its_version_and_its_exit_statuses(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    version, explained = said(capsys, *words, "--version"), said(capsys, *words, "--help")

    assert version == said(capsys, "--version")
    listed = explained[1].split("exit status:\n")[1].splitlines()
    statuses = [int(line.split()[0]) for line in listed]
    rows = [int(row) for row in re.findall(r"^\| (\d+) \| .*\|$", table(words[0]), re.MULTILINE)]
    assert statuses == [row for row in rows if row in statuses]
    assert len(words) > 1 or statuses == rows
    assert all(len(line) <= 80 for line in listed)


def table(command: str) -> str:
    """The rows of a page's table of exit statuses."""
    return place(command).split("| status | meaning |\n", 1)[1].split("\n\n")[0] + "\n"


def test_a_status_means_the_same_in_every_command() -> None:
    told = {ExitCode(status) for name in PARSERS for status in statuses_of(name)}

    assert told == set(ExitCode)
    for name in PARSERS:
        low = {status for status in statuses_of(name) if status < ExitCode.WRAPPER_FAILED}
        # The low ones are those of the program that `run` becomes.
        assert (low == set()) == (name == "run")


def statuses_of(command: str) -> dict[int, str]:
    """As the module declares them."""
    return dict(cli._module(command).STATUSES)


@pytest.mark.parametrize("words", [(), ("cdi",), ("node",)], ids=["gpufence", "cdi", "node"])
def test_a_bare_command_prints_its_help(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, *words) == said(capsys, *words, "--help")
    assert said(capsys, *words)[0] == 0


@pytest.mark.parametrize(
    "words",
    [("status", "--nosuch"), ("cdi", "list", "--nosuch"), ("top", "--interval", "x"), ("rm",)],
    ids=" ".join,
)
def test_a_command_line_that_cannot_be_parsed_is_an_object_for_a_script(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    plain, asked = said(capsys, *words), said(capsys, *words, "--json")

    assert (plain[0], plain[1]) == (2, "")
    assert (asked[0], asked[2]) == (2, plain[2])
    problem = json.loads(asked[1])["problem"]
    assert problem["what"].startswith(f"gpufence {words[0]}")
    assert problem["why"] in plain[2]
    assert problem["fix"].startswith("See `gpufence ")


def test_help_for_what_is_no_command_is_a_complaint(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, complaint = said(capsys, "help", "nosuch")

    assert (status, printed) == (2, "")
    assert complaint.count("\n") == 1


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Status, output and complaint of a command line."""
    status = cli.main(words)
    return (status, *capsys.readouterr())
