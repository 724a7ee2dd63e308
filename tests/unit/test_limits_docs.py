"""docs/configuration.md says of every variable what the option table says, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpufence.config import options, sources
from gpufence.config.options import Dialect, Keys, Option, Setting

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs" / "configuration.md").read_text("utf-8")
SUFFIX = {Keys.NONE: "", Keys.INDEX: "[_<i>]", Keys.INDEX_OR_UUID: "[_<i>, _<uuid>]"}


def section(dialect: Dialect) -> str:
    """The page's part about one dialect."""
    return PAGE.split(f"### {dialect.title}\n", 1)[1].split("\n### ")[0].split("\n## ")[0]


def spelled(option: Option) -> str:
    """An option's name as the page writes it."""
    return f"`{option.name}{SUFFIX[option.keys]}`"


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_a_variable_is_documented_in_its_dialects_table(option: Option) -> None:
    rows = [
        line
        for line in section(option.dialect).splitlines()
        if line[:1] == "|" and spelled(option) in line
    ]

    assert len(rows) == 1
    if option.setting is Setting.IGNORED:
        assert rows[0].endswith(f"| anything | accepted without effect: {option.meaning} |")
    else:
        assert rows[0] == f"| {spelled(option)} | {option.text} | {option.meaning} |"


def test_nothing_else_is_documented() -> None:
    told = [
        name
        for dialect in Dialect
        for line in section(dialect).splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([A-Z_]+)[^`]*`", line.split(" | ")[0])
    ]

    assert sorted(told) == sorted(option.name for option in options.OPTIONS)


def test_the_config_files_keys_are_the_options_that_it_may_hold() -> None:
    told = re.findall(r"^\| `([a-z_]+)[^`]*` \| `(GPUFENCE_[A-Z_]+)` \|$", PAGE, re.MULTILINE)

    assert told == [
        (key, option.name)
        for option in options.OPTIONS
        if (key := options.file_key(option)) is not None
    ]


@pytest.mark.parametrize(
    "path",
    [sources.CONFIG_PATH, sources.OVERRIDE_PATH,
     sources.VGPU_CONFIG_PATH, sources.VCUDA_PATH, sources.ALNAIR_FOLDER,
     sources.SHARED_FOLDER],
)  # fmt: skip
def test_a_file_that_is_read_is_documented(path: str) -> None:
    assert f"{path}" in PAGE


def test_the_library_knows_the_same_names_in_the_same_order() -> None:
    text = (REPO / "lib" / "src" / "config" / "options.cpp").read_text("utf-8")
    rows = re.findall(r'\{"([A-Z_]+)", k(\w+), k(\w+), Keys::k(\w+)\},', text)

    def word(name: str) -> str:
        return name.replace("_", "").lower()

    assert [(name, *map(str.lower, rest)) for name, *rest in rows] == [
        (each.name, word(each.dialect.name), word(each.setting.name), word(each.keys.name))
        for each in options.OPTIONS
    ]
