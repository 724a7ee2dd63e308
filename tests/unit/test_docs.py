"""The pages for people: every link leads somewhere, every page is listed, every command exists."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
SCRIPT = re.compile(r"(?<![\w.])ci/[a-z][a-z-]*\b(?![./])")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_script_that_a_page_names_can_be_run(page: Path) -> None:
    scripts = set(SCRIPT.findall(page.read_text(encoding="utf-8")))

    assert {name for name in scripts if not os.access(REPO / name, os.X_OK)} == set()


def test_the_index_lists_every_page() -> None:
    index = (REPO / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (REPO / "docs").glob("*.md")} - {"README.md"}

    assert {page for page in pages if f"({page})" not in index} == set()
