"""Every `--json` of the command has its schema in docs/schemas, and keeps to it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpufence import cli
from gpufence.console.parsers import verbs
from gpufence.state import time_file

from .gpufence_command import REPO, gpufence
from .region_files import GIB, RegionFile, Signed, TimeFile, this_process

SCHEMAS = REPO / "docs" / "schemas"
BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build"))
KINDS = ("memory", "cores", "soft_cores", "oversubscribe", "spill")

SPEC = """
cdiVersion: "0.6.0"
kind: gpufence.io/limit
devices:
  - name: small
    containerEdits:
      env: ["GPUFENCE_MEMORY_LIMIT=4GiB"]
"""


def answer(*arguments: str | Path, **env: str) -> Any:  # noqa: ANN401 - JSON
    """What the command prints; its status is its own business."""
    done = gpufence(*arguments, **env)
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def check(name: str, found: Any) -> None:  # noqa: ANN401
    """The answer keeps to the schema and has no key that the schema does not tell of.

    What is published forbids no key: the docs promise that keys may be added. So an answer of a
    later version is valid, too.
    """
    published = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    jsonschema.validate(found, closed(published))
    jsonschema.validate(later(found), published)


def closed(schema: Any) -> Any:  # noqa: ANN401
    """The schema, with every key forbidden that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: closed(value) for key, value in schema.items()}
    names = isinstance(schema.get("properties"), dict) and schema.get("type") != "string"
    return {"additionalProperties": False, **parts} if names else parts


def later(found: Any) -> Any:  # noqa: ANN401
    """The answer of a later version: its outermost object says more."""
    return {**found, "added_later": 1}


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_is_one(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


def test_every_command_that_prints_json_has_a_schema() -> None:
    parsers = [parser for _, parser in cli.commands().values()]
    speakers = {
        each.prog.removeprefix("gpufence ").replace(" ", "-")
        for parser in parsers
        for each in (parser, *verbs(parser).values())
        if "--json" in each._option_string_actions
    }

    assert speakers <= {path.stem for path in SCHEMAS.glob("*.json")}


def test_limits_and_why_they_cannot_be_read() -> None:
    given = {
        "GPUFENCE_MEMORY_LIMIT": "2g",
        "CUDA_DEVICE_MEMORY_LIMIT": "50%",
        "CUDA_MEM_RATIO": "2",
        "CUDA_OVERSUBSCRIBE": "true",
    }
    cores = {"GPUFENCE_CORE_LIMIT": "30", "GPUFENCE_CORE_SOFT_LIMIT": "60"}

    check("config", found := answer("config", "--json", **given, **cores))
    assert {each["kind"] for each in found["limits"]} == set(KINDS)
    check("config", found := answer("config", "--json", GPUFENCE_MEMORY_LIMIT="x"))
    assert "problem" in found


def test_what_containers_use_and_what_is_set_for_them(tmp_path: Path) -> None:
    where = ("--state-dir", tmp_path, "--json")
    with RegionFile(tmp_path) as made, TimeFile(tmp_path) as cores:
        made.device(0)
        made.process(0, this_process())
        made.process(1, Signed())
        made.use(0, 0, held=GIB, limit=4 * GIB, activity=(1, 2, 3))
        made.use(0, 1, held=GIB)
        cores.device(0, turn=1)
        cores.tenant(0, 0, time_file.tenant_key("web"))
        cores.member(0, 0, 0, this_process())

        check("status", found := answer("status", *where))
        assert found["containers"][0]["gpus"][0]["processes"]
        check("set", found := answer("set", "web", "--memory", "1g", "--cores", "10%", *where))
        assert found["over"]
        check("set", answer("set", "web", "--memory", "50%", "--dry-run", *where))
        check("status", answer("status", "web", *where))
        check("status-history", found := answer("status", "web", "--history", *where))
        assert found["changes"]
        check("top", answer("top", *where))


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("status", "nobody", "--json"), 1),
        (("set", "nobody", "--memory", "1g", "--json"), 1),
        (("set", "nobody", "--json"), 2),
        (("doctor", "999999999", "--json"), 1),
        (("status", "nobody", "--history", "--json"), 1),
    ],
)
def test_a_failure_is_an_object_of_three_parts(
    words: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    folder = () if words[0] == "doctor" else ("--state-dir", tmp_path)
    plain = gpufence(*(word for word in words if word != "--json"), *folder)
    done = gpufence(*words, *folder)

    found = json.loads(done.stdout)
    check("problem", found)
    assert found["problem"]["what"] in done.stderr
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert done.returncode == status


def test_what_is_forgotten(tmp_path: Path) -> None:
    where = ("--json", "--state-dir", tmp_path)
    for name in ("web", "old"):
        with RegionFile(tmp_path, name):
            pass

    check("rm", answer("rm", "web", *where))
    check("prune", found := answer("prune", *where))

    assert found["removed"] == ["old"]


def test_cdi_files(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(SPEC)
    bad.write_text("devices: 1\n")

    check("cdi-list", found := answer("cdi", "list", "--dir", tmp_path, "--json"))
    assert found["devices"]
    check("cdi-validate", found := answer("cdi", "validate", good, bad, "--json"))
    assert [bool(each["problems"]) for each in found["files"]] == [False, True]


def test_what_is_installed_and_removed(tmp_path: Path) -> None:
    library = BUILD / "lib" / "libgpufence.so"
    if not library.is_file():
        pytest.skip(f"{BUILD} holds no build: run ci/build first")
    words = ("install", tmp_path / "f", "--json")

    check("install", found := answer(*words, "--lib", library))
    assert len(found["installed"]) == 4
    check("install", found := answer(*words, "--remove"))
    assert len(found["removed"]) == 4


def test_what_doctor_finds() -> None:
    check("doctor", answer("doctor", "--json"))
    check("doctor", answer("doctor", "--json", str(os.getpid())))
    check("doctor-all", answer("doctor", "--all", "--json"))
