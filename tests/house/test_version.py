"""One version: pyproject.toml has it, and whatever else names one has the same."""

from __future__ import annotations

import datetime
import re
import subprocess
from pathlib import Path

from releasing.commit import version_of

REPO = Path(__file__).resolve().parents[2]
VERSION = version_of(REPO)
DEPLOYED = re.compile(r"(?:VERSION=|gpufence:|gpufence-node:|newTag: |ersion: )(\d[\w.]*)")
RELEASED = re.compile(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)")


def text_of(name: str) -> str:
    return (REPO / name).read_text(encoding="utf-8")


def test_what_deploys_names_the_projects_version() -> None:
    files = [
        path
        for pattern in ("image/*", "kustomize/*/*.yaml", "helm/*/Chart.yaml")
        for path in sorted((REPO / "deploy").glob(pattern))
    ]
    named = {path: DEPLOYED.findall(path.read_text(encoding="utf-8")) for path in files}

    assert sum(map(len, named.values())) >= 17
    assert {path: found for path, found in named.items() if set(found) - {VERSION}} == {}


def test_no_image_elsewhere_has_another_version() -> None:
    words = ["git", "grep", "-hoE", r"gpufence(-node)?:[0-9]+\.[0-9]+\.[0-9]+"]
    found = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)

    assert {line.rpartition(":")[2] for line in found.stdout.split()} <= {VERSION}


def test_the_changes_begin_with_it_or_with_what_is_not_released() -> None:
    heads = re.findall(r"^## (.+)$", text_of("CHANGELOG.md"), re.M)
    released = [RELEASED.fullmatch(head) for head in heads if head != "Unreleased"]

    assert "Unreleased" not in heads[1:]
    assert all(released), heads
    versions = [found[1] for found in released if found]
    assert versions[:1] == [VERSION]
    assert len(set(versions)) == len(versions)
    for found in filter(None, released):
        datetime.date.fromisoformat(found[2])


def test_a_releases_workflow_looks_for_the_heading_that_the_changes_have() -> None:
    workflow = text_of(".github/workflows/release.yml")
    said = re.search(r'grep -q "(.+)" CHANGELOG\.md', workflow)

    assert said is not None
    words = ["grep", "-q", said[1].replace("$version", VERSION), "CHANGELOG.md"]
    assert subprocess.run(words, cwd=REPO, check=False).returncode == 0
    words[2] = said[1].replace("$version", f"{VERSION}9")
    assert subprocess.run(words, cwd=REPO, check=False).returncode == 1


def test_the_page_about_versions_says_which_have_its_layouts() -> None:
    minor = VERSION.rpartition(".")[0]

    assert f"All versions {minor}.x have the numbers of this table" in text_of("docs/versioning.md")
