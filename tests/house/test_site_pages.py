"""The site: every page of the repository is in it, and a link that leads nowhere is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import site_pages

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """What mkdocs is given."""
    site_pages.stage(tmp_path / "source")
    return tmp_path / "source"


def test_every_page_and_what_it_links_to_is_gathered(staged: Path) -> None:
    for page in site_pages.pages():
        text = (staged / page).read_text(encoding="utf-8")
        assert text.strip(), page
        for _, target, _ in site_pages.LINK.findall(text):
            if "://" not in target and (REPO / page.parent / target).exists():
                assert (staged / page.parent / target).exists(), (page, target)


def test_a_link_to_a_folder_leads_to_a_list_of_its_files(staged: Path) -> None:
    text = (staged / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    listing = (staged / "deploy" / "kustomize" / "README.md").read_text(encoding="utf-8")

    assert "(../deploy/kustomize/README.md)" in text or "deploy/kustomize" not in text
    assert "[node/node.yaml](node/node.yaml)" in listing
    assert (staged / "deploy" / "kustomize" / "node" / "node.yaml").is_file()


def test_every_page_of_docs_has_a_place_in_the_menu() -> None:
    menu = (REPO / "ci" / "site.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = {line.rpartition(": ")[2] for line in menu.splitlines() if line.endswith(".md")}

    pages = {str(page) for page in site_pages.pages() if page.parent != Path("docs/results")}
    assert listed == pages | {"docs/results/README.md"}


PAGE = '<h1 id="top">x</h1><a href="{}">y</a>'


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("other.html", ""),
        ("other.html#here", ""),
        ("#top", ""),
        ("https://semver.org", ""),
        ("folder/", ""),
        ("missing.html", "page.html: 'missing.html' leads nowhere"),
        ("other.html#gone", "page.html: 'other.html#gone' has no such heading"),
        ("#gone", "page.html: '#gone' has no such heading"),
        ("../../etc/passwd", "page.html: '../../etc/passwd' leads nowhere"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, link: str, problem: str) -> None:
    (tmp_path / "page.html").write_text(PAGE.format(link), encoding="utf-8")
    (tmp_path / "other.html").write_text('<h2 id="here">z</h2>', encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text("z", encoding="utf-8")

    assert site_pages.check(tmp_path) == ([problem] if problem else [])


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://somewhere/x.js"></script>',
        '<link rel="stylesheet" href="//somewhere/x.css">',
        '<img src="http://somewhere/x.png">',
    ],
)
def test_a_page_that_loads_from_another_host_is_named(tmp_path: Path, loads: str) -> None:
    (tmp_path / "page.html").write_text(loads, encoding="utf-8")

    (problem,) = site_pages.check(tmp_path)

    assert problem.startswith("page.html: loads '")


def test_a_style_that_loads_from_another_host_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("x", encoding="utf-8")
    (tmp_path / "x.css").write_text("@font-face{src:url(https://a/b)}", encoding="utf-8")

    assert site_pages.check(tmp_path) == ["x.css: loads from another host"]


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    assert site_pages.main(["check", str(tmp_path)]) == 1
    assert site_pages.main(["check"]) == 2
