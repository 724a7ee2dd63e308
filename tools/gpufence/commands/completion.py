"""Print the completion of this command for a shell: bash, zsh or fish.

Made from the commands' own parsers, so there is no second list of options. To use it:
  bash   source <(gpufence completion bash)
  zsh    source <(gpufence completion zsh), behind compinit
  fish   gpufence completion fish | source
"""

from __future__ import annotations

import argparse
import re

from gpufence import cli
from gpufence.errors import ExitCode

from . import completion_scripts
from .completion_scripts import Command, Option, Takes

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "printed",
    2: "wrong usage",
}

# What a value is, by the name that the parsers give it.
_NAMES = "names"
_WORD = re.compile(r"[A-Za-z0-9._/-]+")
_FILES = frozenset(("PATH", "FILE", "FOLDER", "DIR"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "shell",
        choices=[*sorted(completion_scripts.SHELLS), _NAMES],
        help="for which shell; names: the containers' names instead, which the scripts ask for",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Print the script, or the names, to stdout."""
    if args.shell == _NAMES:
        print("".join(f"{name}\n" for name in container_names()), end="")
        return ExitCode.OK
    print(completion_scripts.SHELLS[args.shell](describe()), end="")
    return ExitCode.OK


def container_names() -> list[str]:
    """What `status` calls the containers; none that a shell would take for more than a word."""
    from gpufence.container import called, containers, lifetimes
    from gpufence.machine.people import People

    people, living = People(), lifetimes.Living()
    names = {
        called.shown(each.name, called.names(each.name, each.region, people, living))
        for each in containers.find(None)
    }
    return sorted(name for name in names if _WORD.fullmatch(name))


def describe() -> tuple[Command, ...]:
    """Every command and verb as its parser has it, outer ones first."""
    found: list[Command] = []
    for name, (purpose, parser) in cli.commands().items():
        found += _describe((name,), purpose, parser)
    return tuple(found)


def _describe(
    path: tuple[str, ...], purpose: str, parser: argparse.ArgumentParser
) -> list[Command]:
    actions = parser._actions  # argparse has no other way to ask what it knows
    options = [_option(action) for action in actions if action.option_strings]
    verbs: list[Command] = []
    words: list[str] = []
    program = files = containers = False
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            help_of = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for verb, inner in action.choices.items():
                verbs += _describe((*path, verb), help_of.get(verb, ""), inner)
        elif not action.option_strings:
            words += [str(choice) for choice in action.choices or ()]
            program = program or action.nargs == argparse.REMAINDER
            files = files or _is_file(action)
            containers = containers or action.metavar == "NAME"
    own = Command(path, purpose, tuple(options), tuple(words), program, files, containers)
    return [own, *verbs]


def _option(action: argparse.Action) -> Option:
    values: tuple[str, ...] = ()
    if action.nargs == 0:
        takes = Takes.NOTHING
    elif action.choices is not None:
        takes, values = Takes.WORD, tuple(str(choice) for choice in action.choices)
    else:
        takes = Takes.FILE if _is_file(action) else Takes.TEXT
    return Option(tuple(action.option_strings), _one_line(action.help), takes, values)


def _is_file(action: argparse.Action) -> bool:
    return isinstance(action.metavar, str) and action.metavar in _FILES


def _one_line(text: str | None) -> str:
    """A help text as one short line; what argparse fills in is left out."""
    return " ".join((text or "").replace("%(default)s", "").replace("%%", "%").split())
