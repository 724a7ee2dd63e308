"""What the pages about versions and security say is what the sources and workflows have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.cdi import yaml_text
from gpufence.state import shared_layout

from .conftest import REPO

FILES = {file.on_disk: file.name for file in shared_layout.table().files}
TEMPLATES = sorted((REPO / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("name", FILES)
def test_the_page_about_versions_has_the_layouts_numbers(name: str) -> None:
    page = (REPO / "docs" / "versioning.md").read_text(encoding="utf-8")
    number = str(getattr(shared_layout, f"{FILES[name]}_VERSION"))

    row = re.search(rf"^\| `{re.escape(name)}(\d+)(?:-…)?` \| (\d+) \|", page, re.M)
    assert row is not None
    assert row.groups() == (number, number)


def test_no_file_with_a_layout_is_missing_on_that_page() -> None:
    page = (REPO / "docs" / "versioning.md").read_text(encoding="utf-8")

    told = set(re.findall(r"^\| `(gpufence-[\w.-]*?)\d+(?:-…)?` \| \d+ \|", page, re.M))
    assert told == set(FILES)


def test_the_changes_name_the_layouts_in_use() -> None:
    changes = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    page = (REPO / "docs" / "versioning.md").read_text(encoding="utf-8")

    for name in re.findall(r"^\| `(gpufence-NAME\.\w+\d)", page, re.M):
        assert f"`{name}" in changes


def test_the_changes_name_every_command() -> None:
    changes = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")

    told = {name for name in cli.commands() if re.search(f"`(?:gpufence )?{name}`", changes)}
    assert told == set(cli.commands())


def test_a_releases_workflow_names_whole_versions_of_what_it_runs() -> None:
    text = (REPO / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)

    assert len(used) > 3
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", each)] == []
    assert re.search(r'python-version: "\d+\.\d+\.\d+"', text)


def test_what_builds_a_release_may_not_publish_it() -> None:
    text = (REPO / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    build, publish = text.split("\n  build:\n")[1].split("\n  publish:\n")

    assert "write" not in build
    assert "ci/release --check dist" in build
    assert "actions/checkout" not in publish


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_issue_templates_are_forms(path: Path) -> None:
    form = yaml_text.load(path.read_text(encoding="utf-8"))

    if path.stem == "config":
        assert form == {"blank_issues_enabled": False}
        return
    assert {"name", "description", "labels", "body"} <= set(form)
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert fields
    for each in fields:
        assert each["type"] in ("input", "textarea", "dropdown", "checkboxes")
        assert each["attributes"]["label"]


def test_the_node_manifest_gives_the_image_the_folders_that_it_mounts() -> None:
    path = REPO / "deploy" / "kustomize" / "node" / "node.yaml"
    manifest = yaml_text.load(path.read_text(encoding="utf-8"))
    (install,) = manifest["spec"]["template"]["spec"]["initContainers"]

    assert install["args"] == [mount["mountPath"] for mount in install["volumeMounts"]]
