"""The tables of docs/configuration.md are what lib/limits/options.txt says.

After a change of the list: `pytest tests/config/test_limits_docs.py --update-golden`, then read the
diff of the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gen import options as generator
from gpufence.config import options
from gpufence.config.option_table import Dialect, table

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "configuration.md"
LIST = REPO / "lib" / "limits" / "options.txt"
FILES, DIALECTS = table()


def spelled(name: str, keys: str) -> str:
    """An option's name as the page writes it."""
    suffix = "[" + ", ".join(f"_{key}" for key in keys.split(", ")) + "]" if keys else ""
    return f"`{name}{suffix}`"


def variables(dialect: Dialect) -> str:
    """A dialect's table."""
    lines = ["| variable | value | meaning |", "|---|---|---|"]
    for names, (keys, setting, text), meaning in dialect.rows:
        told = f"accepted without effect: {meaning}" if setting == "IGNORED" else meaning
        lines.append(f"| {', '.join(spelled(name, keys) for name in names)} | {text} | {told} |")
    return "\n".join([*lines, ""])


def keys_of_the_file() -> str:
    """The table of what the config file may hold."""
    lines = ["| key of gpufence.conf | same as |", "|---|---|"]
    lines += [
        f"| {spelled(key, option.keys)} | `{option.name}` |"
        for option in options.OPTIONS
        if (key := options.file_key(option)) is not None
    ]
    return "\n".join([*lines, ""])


def replaced(page: str, before: str, made: str) -> str:
    """The page with the first table behind a heading exchanged."""
    start = page.index("|", page.index(before))
    end = re.compile(r"^(?!\|)", re.MULTILINE).search(page, start)
    assert end
    return page[:start] + made + page[end.start() :]


def test_the_pages_tables_are_those_of_the_list(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text("utf-8")
    made = replaced(page, "\n| key of gpufence.conf ", keys_of_the_file())
    for dialect in DIALECTS:
        made = replaced(made, f"\n### {dialect.title}\n", variables(dialect))
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, "utf-8")
        page = made

    assert page.splitlines() == made.splitlines()


@pytest.mark.parametrize("path", FILES.values())
def test_a_file_that_is_read_is_documented(path: str) -> None:
    assert path in PAGE.read_text("utf-8")


def test_the_tools_and_the_library_read_the_same_list() -> None:
    rendered = generator.read(LIST.read_text("utf-8"))

    assert [(each.name, each.text) for each in rendered.files] == list(FILES.items())
    assert [each.text for each in rendered.dialects] == [each.title for each in DIALECTS]
    assert [(each.name, each.setting, each.keys) for each in rendered.variables] == [
        (each.name, generator.constant(each.setting), generator.KEYS[each.keys])
        for each in options.OPTIONS
    ]


@pytest.mark.parametrize(
    "line",
    ["NAME", "NAME | | NO_SETTING | text", "NAME | <x> | SIZE | text", "NAME | | SIZE"],
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    text = f"setting SIZE | a size\ndialect ONE | one\n{line}\n"

    with pytest.raises(generator.HookgenError, match=r"options\.txt"):
        generator.read(text)
