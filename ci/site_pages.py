"""What ci/site needs besides mkdocs: pages whose links lead right, and a check of the result.

    site_pages.py stage DIR    the pages and every file that they link to, as in the repository
    site_pages.py check DIR    every link and anchor of the built pages leads somewhere in DIR, and
                               nothing is loaded from another host; status 1 and a line each if not

Owns which files are pages. Must not know the site's layout. Standard library only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REPO = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
FETCHED = re.compile(r"url\(\s*['\"]?(https?:)?//|@import")


def pages() -> list[Path]:
    """Relative to the repository."""
    return [*map(Path, TOP), *(path.relative_to(REPO) for path in (REPO / "docs").rglob("*.md"))]


def stage(target: Path) -> None:
    """Copy pages and what they link to; a folder that one links to becomes a list of its files."""
    shutil.rmtree(target, ignore_errors=True)
    for page in pages():
        _stage(page, target)


def _stage(page: Path, target: Path) -> None:
    def staged(found: re.Match[str]) -> str:
        """The link, after what it leads to is there as well."""
        linked = (REPO / page.parent / found[2]).resolve()
        if not linked.is_relative_to(REPO) or not linked.exists():
            return found[0]  # mkdocs names it
        name = linked.relative_to(REPO)
        if linked.is_dir():
            _list(linked, target)
            return f"{found[1]}{found[2].rstrip('/')}/README.md{found[3]}"
        if linked.suffix != ".md":
            _copy(linked, target)
        elif name not in pages() and not (target / name).exists():
            _stage(name, target)
        return found[0]

    _write(target / page, "")  # pages may link to each other in a circle
    _write(target / page, LINK.sub(staged, (REPO / page).read_text(encoding="utf-8")))


def _list(folder: Path, target: Path) -> None:
    """A page with every file of a folder that git tracks."""
    name = folder.relative_to(REPO)
    if (folder / "README.md").exists():
        return
    listing = subprocess.run(
        ["git", "ls-files", "-z", "."], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    files = sorted(filter(None, listing.split("\0")))
    for each in files:
        _copy(folder / each, target)
    _write(target / name / "README.md", f"# {name}\n\n" + "".join(f"* [{x}]({x})\n" for x in files))


def _copy(source: Path, target: Path) -> None:
    place = target / source.relative_to(REPO)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class Page(HTMLParser):
    """Of one built page: its anchors, where it links to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what names, links or loads something."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADS and LOADS[tag] in values and values.get("rel") != "canonical":
            self.loads.append(values[LOADS[tag]])


def check(site: Path) -> list[str]:
    """What is wrong, a line each."""
    read = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    if not read:
        return [f"{site} holds no pages"]
    problems = [
        f"{path.relative_to(site)}: {problem}"
        for path, page in read.items()
        if path.name != "404.html"  # its links are a server's
        for problem in _of_page(path, page, site, read)
    ]
    styles = (
        path for path in sorted(site.rglob("*.css")) if FETCHED.search(path.read_text("utf-8"))
    )
    return [*problems, *(f"{each.relative_to(site)}: loads from another host" for each in styles)]


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _of_page(path: Path, page: Page, site: Path, read: dict[Path, Page]) -> Iterator[str]:
    yield from (f"loads '{each}'" for each in page.loads if urlsplit(each).netloc)
    for link in [*page.links, *page.loads]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        linked = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if linked.is_dir():
            linked /= "index.html"
        if not linked.is_relative_to(site) or not linked.exists():
            yield f"'{link}' leads nowhere"
        elif parts.fragment and linked in read:
            known = read[linked].anchors | {"__search", "__top"}
            problem = f"'{link}' has no such heading"
            yield from () if unquote(parts.fragment) in known else (problem,)


def main(words: list[str]) -> int:
    """Returns the exit status."""
    if len(words) != 2 or words[0] not in ("stage", "check"):
        print("Usage: site_pages.py stage|check DIR", file=sys.stderr)
        return 2
    folder = Path(words[1]).resolve()
    if words[0] == "stage":
        stage(folder)
        return 0
    problems = check(folder)
    for problem in problems:
        print(f"ci/site: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
