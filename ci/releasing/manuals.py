"""Manual pages of every command, from the parsers that the commands themselves use.

Owns the form of a page. Must not know an option: what a page says, `--help` says.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from pathlib import Path

import findsyms
from findsyms import check_cli
from findsyms import cli as findsyms_cli
from gen import cli as hookgen_cli
from gpufence import cli as gpufence_cli

_OVERVIEW = "share one NVIDIA GPU between containers"
_HOME = Path(findsyms.__file__).parent


def pages(version: str, epoch: int) -> dict[str, bytes]:
    """Every page by its file's name, `gpufence-run.1` for `gpufence run`."""
    commands = gpufence_cli.commands()
    overview = gpufence_cli.overview()
    parsers = {"gpufence": (_OVERVIEW, overview)}
    parsers |= {f"gpufence-{name}": command for name, command in commands.items()}
    parsers["findsyms"] = (
        "what a driver exports, and what of it is handled",
        findsyms_cli.parser(),
    )
    parsers["findsyms-check"] = ("prove the shape of a built library", check_cli.parser(_HOME))
    parsers["hookgen"] = (
        "headers to model to C++",
        hookgen_cli.parser_of(hookgen_cli.COMMANDS),
    )
    day = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    return {
        f"{name}.1": "\n".join([*_page(name, purpose, parser, version, day, sorted(parsers)), ""])
        .encode()
        for name, (purpose, parser) in parsers.items()
    }  # fmt: skip


# Implementation.


def _page(
    name: str,
    purpose: str,
    parser: argparse.ArgumentParser,
    version: str,
    day: str,
    names: list[str],
) -> Iterator[str]:
    yield f'.TH {name.upper()} 1 "{day}" "gpufence {version}" "User Commands"'
    yield from (".SH NAME", f"{_plain(name)} \\- {_plain(purpose)}")
    yield ".SH SYNOPSIS"
    yield from _synopsis(parser)
    yield ".SH DESCRIPTION"
    yield from _text(parser.description or "")
    if any(action.help for action in _shown(parser)):
        yield from (".SH OPTIONS", *_options(parser))
    for verb, inner in _verbs(parser):
        yield f'.SH "COMMAND {verb.upper()}"'
        yield from _synopsis(inner)
        if inner.description:
            yield from (".PP", *_text(inner.description))
        yield from _options(inner)
    if parser.epilog:
        yield from (".SH NOTES", *_text(parser.epilog))
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {_plain(each)} (1)" for each in names if each != name)


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    if parser.usage:
        yield from (".nf", *map(_plain, (parser.usage % {"prog": parser.prog}).split("\n")), ".fi")
        return
    words = [f"\\fB{_plain(parser.prog)}\\fR"]
    for action in _shown(parser):
        word = _spelled(action)
        if action.option_strings:
            word = f"{_plain(action.option_strings[0])} {_value(action)}".rstrip()
        words.append(f"[{word}]" if not action.required else word)
    yield " ".join(words)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in (each for each in _shown(parser) if each.help):
        yield from (".TP", f"\\fB{_spelled(action)}\\fR")
        told = str(action.help) % {**vars(action), "prog": parser.prog}
        yield _line(" ".join(told.split()))
        for choice in getattr(action, "_choices_actions", ()):
            yield f".br\n\\fB{_plain(choice.dest)}\\fR: {_plain(choice.help or '')}"


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    # argparse has no public way to tell what it knows.
    return [each for each in parser._actions if each.help is not argparse.SUPPRESS]


def _verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _spelled(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    return f"{_plain(names)} {_value(action)}".strip()


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    word = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    return _plain(" ".join(word) if isinstance(word, tuple) else word)


def _text(text: str) -> Iterator[str]:
    """Paragraphs; what is indented is a table or a command line, and stays as it is."""
    for number, block in enumerate(re.split(r"\n\s*\n", text.strip("\n"))):
        if number:
            yield ".PP"
        lines = block.splitlines()
        while lines:
            literal = lines[0].startswith(" ")
            run = []
            while lines and lines[0].startswith(" ") == literal:
                run.append(_line(lines.pop(0)))
            yield from ([".nf", *run, ".fi"] if literal else run)


def _line(text: str) -> str:
    """A line of text that no roff takes for a request."""
    plain = _plain(text)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _plain(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
