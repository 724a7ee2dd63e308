"""The list of what a release is made of: a software bill of materials, CycloneDX 1.5 as JSON.

Owns which parts are told: the files of the release, what pip installs beside them, and the pinned
tools that made them. Must not know how a file is made.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_OWN = "pkg:pypi/gpufence@{version}"
_PIN = re.compile(r"^([a-zA-Z0-9_.-]+)==([^ \\;]+)")
# Locks of ci/locks whose tools have a part in the binaries.
_LOCKS = ("build", "zig")


def write(source: Path, files: Mapping[str, bytes], version: str, commit: str, epoch: int) -> bytes:
    """The document.

    Args:
        source: the checkout's files.
        files: of the release, by name.
        version: of the project.
        commit: what it was built from.
        epoch: when that was made.
    """
    own = _OWN.format(version=version)
    requirements = _requirements(source)
    parts = [_file(name, content) for name, content in sorted(files.items())]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same for the same content, as everything of a release.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{own}#{commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "gpufence",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "properties": [{"name": "commit", "value": commit}],
            },
            "tools": {"components": _tools(source)},
        },
        "components": [*parts, *requirements],
        "dependencies": [
            {
                "ref": own,
                "dependsOn": sorted(
                    part["bom-ref"] for part in requirements if part["scope"] == "required"
                ),
            }
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


# Implementation.


def _file(name: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _requirements(source: Path) -> list[dict[str, Any]]:
    """What the wheel asks pip for, and its extras; which version that is, pip decides."""
    text = (source / "pyproject.toml").read_text(encoding="utf-8")
    extras = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    required = re.search(r"^dependencies = (\[[^\]]*\])$", text, re.MULTILINE)
    found: dict[str, dict[str, Any]] = {}
    for lists, scope in ((required[1] if required else "", "required"), (extras, "optional")):
        for name, wanted in re.findall(r'"([\w.-]+)([^"]*)"', lists):
            part = {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}",
                "name": name,
                "purl": f"pkg:pypi/{name}",
                "scope": scope,
                "properties": [{"name": "requirement", "value": f"{name}{wanted}"}],
            }
            found.setdefault(name, part)
    return list(found.values())


def _tools(source: Path) -> list[dict[str, Any]]:
    found = {}
    for lock in _LOCKS:
        text = (source / "ci" / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
        for line in text.splitlines():
            if pin := _PIN.match(line):
                found[pin[1]] = pin[2]
    return [
        {
            "type": "application",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
        }
        for name, version in sorted(found.items())
    ]
