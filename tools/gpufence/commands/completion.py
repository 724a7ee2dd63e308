"""Print the completion of this command for a shell: bash, zsh or fish.

Made from the commands' own parsers, so there is no second list of options. To use it:
  bash   source <(gpufence completion bash)
  zsh    source <(gpufence completion zsh), behind compinit
  fish   gpufence completion fish | source
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

from gpufence import cli, packages
from gpufence.errors import ExitCode

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "printed",
    1: "the package shtab, which writes the scripts, is not installed",
    2: "wrong usage",
}

SHELLS = ("bash", "fish", "zsh")
_NAMES = "names"
_WORD = re.compile(r"[A-Za-z0-9._/-]+")
# What a value is, by the name that the parsers give it.
_FILES = frozenset(("PATH", "FILE"))
_FOLDERS = frozenset(("FOLDER", "DIR"))

# What the shells ask for containers' names, and whom they ask for what stands behind `run`. Names
# are plain words, so a shell may split them.
_ASK = "$(gpufence completion names 2>/dev/null)"
_CONTAINER = {
    "bash": "_gpufence_names",
    "zsh": "_gpufence_names",
    "fish": "(gpufence completion names 2>/dev/null)",
    "preamble": {
        "bash": f'_gpufence_names() {{ compgen -W "{_ASK}" -- "$1"; }}',
        "zsh": f"_gpufence_names() {{ compadd -- {_ASK}; }}",
    },
}
_PROGRAM = {
    "bash": "_gpufence_no_words",
    "zsh": "_normal -p gpufence",
    "fish": "(__fish_complete_subcommand --fcs-skip=2)",
    "preamble": {"bash": "_gpufence_no_words() { :; }"},
}

# shtab takes options of a program behind `run` for our own, in bash.
_BASH_RUN = """
# What follows `run` and its options is another command, with a completion of its own.
_gpufence() {
  local i=2 option takes
  [[ ${COMP_WORDS[1]} == run ]] || { _shtab_gpufence; return; }
  while ((i < COMP_CWORD)) && [[ ${COMP_WORDS[i]} == -?* && ${COMP_WORDS[i]} != -- ]]; do
    option=${COMP_WORDS[i]//[^[:word:]]/_} takes=_shtab_gpufence_run_${option}_nargs
    [[ ${COMP_WORDS[i+1]} == = ]] && ((i++))  # bash parts --memory=4g at '='
    ((i += 1 + ${!takes-1}))
  done
  ((i == COMP_CWORD)) || [[ ${COMP_WORDS[i]} != -- ]] || ((i++))
  if ((i > COMP_CWORD)) || [[ $i -eq $COMP_CWORD && ${COMP_WORDS[i]} == -* ]]; then _shtab_gpufence
  elif declare -F _comp_command_offset >/dev/null; then _comp_command_offset $i
  elif declare -F _command_offset >/dev/null; then _command_offset $i
  elif ((i == COMP_CWORD)); then COMPREPLY=($(compgen -c -- "${COMP_WORDS[i]}"))
  else COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")); fi
}
complete -o bashdefault -F _gpufence gpufence
"""
# shtab's script takes being sourced for being called, but knows when it is evaluated.
_ZSH = """\
#compdef gpufence
eval {}
[[ $funcstack[1] != _gpufence ]] || _shtab_gpufence "$@"
"""
# A `--` ends options, so that what follows `gpufence run --` is the program.
_ZSH_DASHES = ("_arguments -C -s ", "_arguments -C -s -S ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "shell",
        choices=[*SHELLS, _NAMES],
        help="for which shell; names: the containers' names instead, which the scripts ask for",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Print the script, or the names, to stdout.

    Raises:
        ToolError: exit 1, without the package that writes scripts.
    """
    if args.shell == _NAMES:
        print("".join(f"{name}\n" for name in container_names()), end="")
        return ExitCode.OK
    print(script(args.shell), end="")
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


def script(shell: str) -> str:
    """What the shell is to read.

    Raises:
        ToolError: exit 1, without the package that writes scripts.
    """
    with packages.needed("shtab", "no completion"):
        import shtab

    parser = whole_parser()
    for action in _actions(parser):
        _mark(action, shtab.FILE, shtab.DIRECTORY)
    text = shtab.complete(parser, shell=shell)
    if shell == "zsh":
        return _ZSH.format(shlex.quote(text.replace(*_ZSH_DASHES)))
    return f"{text}\n{_BASH_RUN}" if shell == "bash" else text


def whole_parser() -> argparse.ArgumentParser:
    """One parser with every command as a verb: `gpufence` itself loads only the one it needs."""
    parser = argparse.ArgumentParser(prog="gpufence")
    commands = parser.add_subparsers()
    for name, (purpose, made) in cli.commands().items():
        commands.add_parser(name, help=purpose, parents=[made], add_help=False)
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # argparse has no other way to ask what it knows
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
        else:
            yield action


def _mark(action: argparse.Action, file: object, folder: object) -> None:
    """Say what a shell offers for an argument, where that is no list of words."""
    name = action.metavar
    complete: object = None
    if action.nargs == argparse.REMAINDER:
        complete, action.help = _PROGRAM, "program and its arguments"
    elif name in _FILES:
        complete = file
    elif name in _FOLDERS:
        complete = folder
    elif name == "NAME" and not action.option_strings:
        complete = _CONTAINER
    if complete is not None:
        vars(action)["complete"] = complete
    if isinstance(name, str):
        action.metavar = name.replace(":", " ")  # zsh would run what stands behind a colon
