"""Print the completion of this command for a shell: bash, zsh or fish.

Made from the commands' own parsers, so there is no second list of options. To use it:
  bash   source <(gpufence completion bash)
  zsh    source <(gpufence completion zsh), behind compinit
  fish   gpufence completion fish | source
"""

from __future__ import annotations

import argparse

from gpufence import cli
from gpufence.errors import ExitCode

from . import completion_scripts
from .completion_scripts import Command, Option, Takes

USAGE_STATUS = ExitCode.USAGE

# What a value is, by the name that the parsers give it.
_FILES = frozenset(("PATH", "FILE", "FOLDER", "DIR"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=sorted(completion_scripts.SHELLS), help="for which shell")


def run(args: argparse.Namespace) -> ExitCode:
    """Print the script to stdout."""
    print(completion_scripts.SHELLS[args.shell](describe()), end="")
    return ExitCode.OK


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
    program = files = False
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            help_of = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for verb, inner in action.choices.items():
                verbs += _describe((*path, verb), help_of.get(verb, ""), inner)
        elif not action.option_strings:
            words += [str(choice) for choice in action.choices or ()]
            program = program or action.nargs == argparse.REMAINDER
            files = files or _is_file(action)
    own = Command(path, purpose, tuple(options), tuple(words), program, files)
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
