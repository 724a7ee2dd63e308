"""One vocabulary: a flag, its value and an exit status mean the same in every command.

Owns the list of flags of `gpufence`. Walks the parsers of all tools; must not know what they do.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import findsyms.check_cli
import findsyms.cli
import gen.cli
import pytest
from gpufence import cli

REPO = Path(__file__).resolve().parents[2]

# Every flag of every subcommand of `gpufence`, with what stands for its value. A file is FILE, a
# folder is DIR. `cdi generate` and `run` take an amount for one GPU, too.
FLAGS = {
    "--add-path": "",
    "--agent-dir": "DIR",
    "--all": "",
    "--allow": "COMMAND",
    "--api-server": "URL",
    "--ask-eviction": "",
    "--color": "{auto,always,never}",
    "--config": "FILE",
    "--core-burst": "TIME",
    "--core-floor": "PERCENT",
    "--cores": "PERCENT",
    "--dir": "DIR",
    "--dry-run": "",
    "--events": "",
    "--explain": "",
    "--filter": "TEXT",
    "--format": "{yaml,json}",
    "--gpu": "GPU",
    "--history": "",
    "--interval": "SECONDS",
    "--json": "",
    "--kind": "KIND",
    "--lib": "FILE",
    "--limits-dir": "DIR",
    "--listen": "[ADDRESS]:PORT",
    "--memory": "SIZE",
    "--metrics": "",
    "--mode": "WORD",
    "--mps-dir": "DIR",
    "--name": "NAME",
    "--names": "{gpufence,hami,hami-legacy,alnair}",
    "--no-node": "",
    "--node-dir": "DIR",
    "--once": "",
    "--output": "FILE",
    "--oversubscribe": "RATIO",
    "--preload": "FILE",
    "--priority": "WORD",
    "--private-state": "",
    "--probe": "",
    "--remove": "",
    "--reset": "",
    "--seconds": "SECONDS",
    "--sim": "",
    "--sim-driver": "VERSION",
    "--soft-cores": "PERCENT",
    "--sort": "{name,memory,cores,held,refused}",
    "--state-dir": "DIR",
    "--textfile": "FILE",
    "--tolerance": "SIZE",
    "--watch": "",
    "--weight": "NUMBER",
}

# What users may have typed before a flag got the name that it has elsewhere.
OLD_SPELLINGS = {
    "gpufence calibrate": {"--library": "--lib"},
    "gpufence cdi generate": {
        "--limits": "--limits-dir",
        "--node": "--node-dir",
        "--state": "--state-dir",
    },
    "gpufence node check": {"--folder": "--agent-dir"},
    "gpufence run": {"--container": "--name"},
    "hookgen extract": {"--out": "--output"},
    "hookgen render": {"--out": "--output"},
}


def verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


GPUFENCE = {each.prog: each for _, parser in cli.commands().values() for each in verbs(parser)}
OTHERS = {
    each.prog: each
    for parser in (
        findsyms.cli.parser(),
        findsyms.check_cli.parser(REPO / "tools" / "findsyms"),
        gen.cli.parser_of(gen.cli.COMMANDS),
    )
    for each in verbs(parser)
}
ALL = GPUFENCE | OTHERS


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Its options but --help and --version."""
    for action in parser._actions:
        if action.option_strings and action.dest not in ("help", argparse.SUPPRESS):
            yield action


def value_of(action: argparse.Action) -> str:
    """What stands for the value of an option in its help; nothing for a switch."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper()).removeprefix("[GPU=]")


@pytest.mark.parametrize("prog", GPUFENCE)
def test_a_flag_takes_the_same_in_every_command(prog: str) -> None:
    found = {each.option_strings[0]: value_of(each) for each in options(GPUFENCE[prog])}

    assert {flag: FLAGS.get(flag) for flag in found} == found


def test_the_list_of_flags_has_no_other() -> None:
    found = {each.option_strings[0] for parser in GPUFENCE.values() for each in options(parser)}

    assert set(FLAGS) - found == set()


@pytest.mark.parametrize("prog", ALL)
def test_old_spellings_still_work_and_there_are_no_others(prog: str) -> None:
    found = {
        other: each.option_strings[0]
        for each in options(ALL[prog])
        if not isinstance(each, argparse.BooleanOptionalAction)
        for other in each.option_strings[1:]
        if not re.fullmatch(r"-\w", other)
    }
    # findsyms spells its short options first.
    found = {old: new for old, new in found.items() if new.startswith("--")}

    assert found == OLD_SPELLINGS.get(prog, {})


@pytest.mark.parametrize("prog", ALL)
def test_help_lists_exit_statuses_with_one_meaning_each(prog: str) -> None:
    listed = re.findall(r"^  (\d+) +(\S.*)$", ALL[prog].format_help().split("exit status")[1], re.M)

    statuses = [int(status) for status, _ in listed]
    assert statuses == sorted(set(statuses))
    # A word in front of a colon would be the verb for which alone the meaning holds.
    assert [told for _, told in listed if ";" in told or re.match(r"[a-z]+: ", told)] == []


@pytest.mark.parametrize("name", ["cdi", "node"])
def test_the_statuses_of_a_command_are_those_of_its_verbs(name: str) -> None:
    module = cli._module(name)

    assert {status for each in module.VERB_STATUSES.values() for status in each} == set(
        module.STATUSES
    )


@pytest.mark.parametrize("prog", ALL)
def test_every_command_has_a_version_and_explains_every_argument(prog: str) -> None:
    parser = ALL[prog]

    assert "--version" in parser._option_string_actions
    assert [each.dest for each in parser._actions if not (each.help or each.choices)] == []


@pytest.mark.parametrize(
    ("main", "words", "status"),
    [
        (findsyms.cli.main, ("--json", "--nosuch"), 2),
        (findsyms.cli.main, ("--json", "--fail-on", "x"), 2),
        (findsyms.cli.main, ("--json", "--driver", "1.2"), 2),
        (findsyms.cli.main, ("check", "--json"), 2),
        (findsyms.cli.main, ("check", "--json", "nosuch.so"), 1),
        (gen.cli.main, ("diff", "--json"), 2),
        (gen.cli.main, ("diff", "--json", "1", "2"), 2),
        (gen.cli.main, ("diff", "--json", "1", "2", "--api", "/nowhere"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_failure_of_the_other_tools_is_an_object_for_a_script(
    main: object, words: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main)
    try:
        returned = main(words)
    except SystemExit as end:
        returned = end.code
    printed, complaint = capsys.readouterr()

    assert returned == status
    assert complaint.count("\n") == 1
    document = json.loads(printed)
    problem = document["problem"]
    assert document["schema"] == 1
    assert complaint.endswith(f"{problem['what']}: {problem['why']}. {problem['fix']}.\n")
