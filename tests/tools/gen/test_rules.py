"""Tables of names and reasons."""

from __future__ import annotations

import pytest
from gen import rules
from gen.errors import HookgenError


def test_comments_and_empty_lines_are_no_rules() -> None:
    text = "# cuA : not this\n\ncuB* : a family\n cuC : one : two \n"

    assert rules.read(text, "table") == (
        rules.Rule("cuB*", "a family"),
        rules.Rule("cuC", "one : two"),
    )


@pytest.mark.parametrize("line", ["cuX", "cuX :", "cuX: why", " : why"])
def test_a_line_without_a_name_or_a_reason_is_refused(line: str) -> None:
    with pytest.raises(HookgenError, match="table is damaged: line 2 is not"):
        rules.read(f"# why\n{line}\n", "table")


@pytest.mark.parametrize(("name", "reason"), [("cuB_v2", "family"), ("cuC", "one"), ("cub", "")])
def test_the_first_rule_that_names_a_function_counts(name: str, reason: str) -> None:
    table = rules.read("cuB* : family\ncuB_v2 : later\ncuC : one\n", "table")

    found = rules.naming(name, table)

    assert (found.reason if found else "") == reason
