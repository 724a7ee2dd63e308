"""Completion scripts for bash, zsh and fish, from what commands take.

Owns the three shells' words for it; must not know argparse or any command by name.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PROGRAM = "gpufence"


class Takes(enum.Enum):
    """What follows an option."""

    NOTHING = 0
    WORD = 1  # one of its values
    FILE = 2
    TEXT = 3  # nothing that could be guessed


@dataclass(frozen=True, slots=True)
class Option:
    """One option under all its names."""

    names: tuple[str, ...]
    help: str
    takes: Takes
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command or a verb of one: `path` is what is typed behind the program's name.

    `words` may stand in its place behind the options; `program` says that a whole other command
    follows; `files` that files do, `containers` that the name of one does.
    """

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    program: bool
    files: bool
    containers: bool


# Names are plain words (completion.py), so a shell may split them.
_NAMES = f"$({PROGRAM} completion names 2>/dev/null)"


def verbs(commands: Sequence[Command], path: tuple[str, ...]) -> list[Command]:
    """The commands one word longer than `path`."""
    return [c for c in commands if len(c.path) == len(path) + 1 and c.path[:-1] == path]


# ---- bash ----

_BASH = """\
# bash completion of {program}; made by `{program} completion bash`.
_{program}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path= skip= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ -n $skip ]]; then skip=; continue; fi
    case "$path ${{COMP_WORDS[i]}}" in
{descend}
    esac
  done
  case "$path $previous" in
{values}
  esac
  case "$path" in
{words}
  esac
}}
complete -F _{program} {program}
"""


def bash(commands: Sequence[Command]) -> str:
    """For `source <(...)`, or a file of bash-completion's folder."""
    descend, values = [], []
    for command in commands:
        typed = " ".join(command.path)
        outer = " ".join(command.path[:-1])
        descend.append(f"      {_quoted(f'{outer} {command.path[-1]}')}) path={_quoted(typed)} ;;")
        for option in command.options:
            if option.takes is Takes.NOTHING:
                continue
            patterns = "|".join(_quoted(f"{typed} {name}") for name in option.names)
            descend.append(f"      {patterns}) skip=1 ;;")
            values.append(f"    {patterns}) {_bash_values(option)} return ;;")
        if command.program:
            descend.append(
                f"      {_quoted(typed + ' --')}) _{PROGRAM}_program $((i + 1)); return ;;"
            )
            descend.append(f"      {_quoted(typed + ' -')}*) ;;")
            descend.append(f"      {_quoted(typed + ' ')}*) _{PROGRAM}_program $i; return ;;")
    places = [(), *(command.path for command in commands)]
    words = [f"    {_quoted(' '.join(path))}) {_bash_words(commands, path)} ;;" for path in places]
    script = _BASH.format(
        program=PROGRAM,
        descend="\n".join(descend),
        values="\n".join(values),
        words="\n".join(words),
    )
    return script + _BASH_PROGRAM.format(program=PROGRAM)


_BASH_PROGRAM = """\
# What follows is another command, with a completion of its own if there is one.
_{program}_program() {{
  if declare -F _comp_command_offset >/dev/null; then _comp_command_offset "$1"
  elif declare -F _command_offset >/dev/null; then _command_offset "$1"
  elif ((COMP_CWORD == $1)); then COMPREPLY=($(compgen -c -- "$current"))
  else COMPREPLY=($(compgen -f -- "$current")); fi
}}
"""


def _bash_values(option: Option) -> str:
    if option.takes is Takes.WORD:
        return f'COMPREPLY=($(compgen -W {_quoted(" ".join(option.values))} -- "$current"));'
    return _BASH_FILES if option.takes is Takes.FILE else ""


_BASH_FILES = 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current"));'


def _bash_words(commands: Sequence[Command], path: tuple[str, ...]) -> str:
    candidates = [command.path[-1] for command in verbs(commands, path)]
    rest = ""
    for command in commands:
        if command.path == path:
            candidates += [name for option in command.options for name in option.names]
            candidates += command.words
            if command.program:
                rest = f" [[ $current == -* ]] || _{PROGRAM}_program $COMP_CWORD;"
            if command.files:
                rest = " " + _BASH_FILES.replace("COMPREPLY=(", "COMPREPLY+=(")
            if command.containers:
                rest = f' COMPREPLY+=($(compgen -W "{_NAMES}" -- "$current"));'
    return f'COMPREPLY=($(compgen -W {_quoted(" ".join(candidates))} -- "$current"));{rest}'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---- zsh ----


def zsh(commands: Sequence[Command]) -> str:
    """For `source <(...)` behind compinit, or a file _gpufence of fpath."""
    parts = [f"#compdef {PROGRAM}\n# Made by `{PROGRAM} completion zsh`.\n"]
    parts += [_zsh_function(commands, command.path, command) for command in commands]
    parts.append(_zsh_function(commands, (), None))
    parts.append(
        f'if [ "$funcstack[1]" = _{PROGRAM} ]; then _{PROGRAM} "$@"; '
        f"else compdef _{PROGRAM} {PROGRAM}; fi\n"
    )
    return "".join(parts)


def _zsh_function(
    commands: Sequence[Command], path: tuple[str, ...], command: Command | None
) -> str:
    name = "_".join(("", PROGRAM, *path)).replace("-", "_")
    inner = verbs(commands, path)
    specs = [_zsh_option(each) for each in (command.options if command else ())]
    if inner:
        specs += ["'1: :->verb'", "'*:: :->rest'"]
    elif command and command.program:
        specs.append("'*:: :_normal -p gpufence'")
    elif command and command.words:
        specs.append(f"'1: :({' '.join(command.words)})'")
    elif command and command.files:
        specs.append("'*: :_files'")
    elif command and command.containers:
        specs.append(f"'1: :{{compadd -- {_NAMES}}}'")
    lines = [f"{name}() {{", "  local state line curcontext=$curcontext"]
    lines.append("  _arguments -C -s -S \\\n    " + " \\\n    ".join(specs or ["''"]))
    if inner:
        told = " ".join(_quoted(f"{each.path[-1]}:{each.help}") for each in inner)
        lines += [
            "  case $state in",
            f"    verb) local -a verbs=({told}); _describe command verbs ;;",
            "    rest) case $line[1] in",
            *(
                f"      {each.path[-1]}) {name}_{each.path[-1].replace('-', '_')} ;;"
                for each in inner
            ),
            "    esac ;;",
            "  esac",
        ]
    return "\n".join([*lines, "}"]) + "\n"


def _zsh_option(option: Option) -> str:
    explained = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    explained = explained.replace(":", "\\:")
    names = f"{{{','.join(option.names)}}}" if len(option.names) > 1 else option.names[0]
    value = {
        Takes.NOTHING: "",
        Takes.WORD: f": :({' '.join(option.values)})",
        Takes.FILE: ": :_files",
        Takes.TEXT: ": : ",
    }[option.takes]
    return f"'*'{names}{_quoted(f'[{explained}]{value}')}"


# ---- fish ----


def fish(commands: Sequence[Command]) -> str:
    """For `... | source`, or a file of fish's completions folder."""
    lines = [f"# Made by `{PROGRAM} completion fish`.", f"complete -c {PROGRAM} -f"]
    for path in [(), *(command.path for command in commands)]:
        lines += [
            _fish_line(commands, path, f"-a {verb.path[-1]}", verb.help)
            for verb in verbs(commands, path)
        ]
    for command in commands:
        lines += [
            _fish_line(commands, command.path, _fish_option(option), option.help)
            for option in command.options
        ]
        if command.words:
            arguments = f"-a {shlex.quote(' '.join(command.words))}"
            lines.append(_fish_line(commands, command.path, arguments, ""))
        if command.containers:
            names = f"-a '({_NAMES[2:]}'"
            lines.append(_fish_line(commands, command.path, names, ""))
        if command.files:
            lines.append(_fish_line(commands, command.path, "-F", ""))
        if command.program:
            arguments = "-a '(__fish_complete_subcommand --fcs-skip=2)'"
            lines.append(_fish_line(commands, command.path, arguments, ""))
    return "\n".join(lines) + "\n"


def _fish_line(
    commands: Sequence[Command], path: tuple[str, ...], arguments: str, explained: str
) -> str:
    seen = [f"__fish_seen_subcommand_from {word}" for word in path]
    inner = [verb.path[-1] for verb in verbs(commands, path)]
    if inner:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(inner)}")
    told = f" -d {shlex.quote(explained)}" if explained else ""
    return f"complete -c {PROGRAM} -n {shlex.quote('; and '.join(seen))} {arguments}{told}"


def _fish_option(option: Option) -> str:
    parts = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    if option.takes is Takes.WORD:
        parts.append(f"-x -a {shlex.quote(' '.join(option.values))}")
    elif option.takes is Takes.FILE:
        parts.append("-r -F")
    elif option.takes is Takes.TEXT:
        parts.append("-x")
    return " ".join(parts)


SHELLS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "fish": fish, "zsh": zsh}
