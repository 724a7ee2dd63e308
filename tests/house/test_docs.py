"""The pages for people: every link leads somewhere, every page is listed, every command exists.

And what they count of files of this repository is what those files hold.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [*(REPO / name for name in OUTSIDE), *sorted((REPO / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
SCRIPT = re.compile(r"(?<![\w.])ci/[a-z][a-z-]*\b(?![./])")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_script_that_a_page_names_can_be_run(page: Path) -> None:
    scripts = set(SCRIPT.findall(page.read_text(encoding="utf-8")))

    assert {name for name in scripts if not os.access(REPO / name, os.X_OK)} == set()


@pytest.mark.parametrize("folder", ["docs", "docs/results"])
def test_the_index_lists_every_page(folder: str) -> None:
    index = (REPO / folder / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (REPO / folder).glob("*.md")} - {"README.md"}

    assert {page for page in pages if f"({page})" not in index} == set()


# A heading that a comment cites: the page, a comma, the heading quoted. It may break anywhere.
CITED = re.compile(r'\bdocs/([\w/-]+\.md), "([^"]+)"')
OLD_CITATION = re.compile(r"\b[\w-]+-limiter(?:-details)?\.md\)?,? section \d")
CODE = [
    path
    for folder in ("lib", "tests", "tools", "templates", "ci", "bench")
    for path in sorted((REPO / folder).rglob("*"))
    if path.suffix in (".h", ".cpp", ".c", ".py", ".j2", ".S", ".cmake", ".txt")
]


def test_every_heading_that_a_comment_cites_is_there() -> None:
    cited = {
        (page, " ".join(heading.split()))
        for path in CODE
        for page, heading in CITED.findall(uncommented(path))
    }
    there = {page: titles(REPO / "docs" / page) for page, _ in cited}

    assert len(cited) > 4
    assert {(page, heading) for page, heading in cited if heading not in there[page]} == set()


def test_nobody_cites_the_limiters_pages_by_number() -> None:
    assert [path for path in [*CODE, *PAGES] if OLD_CITATION.search(uncommented(path))] == []


EXPLAINING = (
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/core-limiter.md",
    "docs/core-limiter-details.md",
    "docs/memory-limiter.md",
    "docs/memory-limiter-details.md",
    "docs/side-by-side.md",
)
SOURCE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:h|cpp|S|py|txt|json|cmake))`")


@pytest.mark.parametrize("name", EXPLAINING)
def test_every_source_file_that_a_page_explains_is_there(name: str) -> None:
    named = set(SOURCE.findall((REPO / name).read_text(encoding="utf-8")))
    roots = (REPO, REPO / "lib" / "src", REPO / "build" / "gen", REPO / "build")
    rendered = {"build/gen/passthrough.cpp", "build/gen/stream_order.cpp"}
    examples = {"lib/api/symbols/libcuda-VERSION.txt"}

    missing = {path for path in named if not any((root / path).is_file() for root in roots)}
    assert missing - rendered - examples == set()


def uncommented(path: Path) -> str:
    """The text of a file without the marks that begin lines of comments."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return " ".join(re.sub(r"^\s*(?://|#)", "", line).strip() for line in text.splitlines())


def titles(page: Path) -> set[str]:
    """The headings of a page, as they are written."""
    return set(re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_link_into_a_page_leads_to_a_heading(page: Path) -> None:
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in ANCHOR.findall(page.read_text(encoding="utf-8"))
        if anchor not in headings((page.parent / target) if target else page)
    ]

    assert wrong == []


def headings(page: Path) -> set[str]:
    """The anchors of a page, as the forges that show it make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_facts_and_deviations_are_counted_right() -> None:
    page = " ".join((REPO / "docs" / "simulator.md").read_text(encoding="utf-8").split())
    recorded = json.loads((REPO / "tests/conformance/facts/h200-580.json").read_bytes())["programs"]
    text = (REPO / "lib/sim/deviations.toml").read_text(encoding="utf-8")
    named = re.findall(r'^program = "(.+)"\nfact = "(.+)"$', text, re.MULTILINE)
    facts = [(program, fact) for program, told in recorded.items() for fact in told]
    deviating = [
        (program, fact)
        for program, fact in facts
        if any(program == p and fnmatch.fnmatchcase(fact, pattern) for p, pattern in named)
    ]

    assert re.search(rf"\b{len(facts):,} facts\b", page)
    assert re.search(rf"\bit names {len(deviating)}\b", page)


def test_the_lines_that_troubleshooting_quotes_are_said_by_somebody() -> None:
    page = (REPO / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    quoted = {part for row in rows for each in re.findall(r"`(.+?)`", row) for part in parts(each)}
    sources = [*(REPO / "lib/src").rglob("*.cpp"), *(REPO / "tools/gpufence").rglob("*.py")]
    texts = [re.sub(r'"\s*"', "", each.read_text(encoding="utf-8")) for each in sources]

    assert len(quoted) > 8
    assert {text for text in quoted if not any(text in source for source in texts)} == set()


def parts(quoted: str) -> list[str]:
    """What of a quoted line is said word for word; the loader's own lines are not ours."""
    return [] if "ld.so" in quoted else [part.strip(" :") for part in quoted.split("…")]


MEASURED = re.compile(r"[\d.]+ (?:ns|us|ms)\b")


def test_the_readme_and_the_limiters_pages_leave_measurements_to_the_results() -> None:
    pages = ("README.md", "docs/faq.md", "docs/memory-limiter.md")
    figures = {
        name: [
            each
            for each in MEASURED.findall((REPO / name).read_text(encoding="utf-8"))
            if each != "30 us"  # a constant: how old free memory may be
        ]
        for name in pages
    }

    assert figures == {name: [] for name in pages}
