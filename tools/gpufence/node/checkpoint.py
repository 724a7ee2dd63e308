"""The file in which an agent keeps what it has given out: whole or not at all, also after kill -9.

Must not know what the grants mean. A file that cannot be read stops the agent: to begin anew would
give out what running containers have.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpufence.errors import ToolError

from .book import Grant, Part

SCHEMA = 1


def read(path: Path) -> dict[str, Grant]:
    """Grants by key; none where there is no file yet.

    Raises:
        ToolError: exit 1, when it cannot be read or is damaged.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise refused(path, str(error)) from None
    try:
        document = json.loads(text)
        body = document["grants"]
        if document["schema"] != SCHEMA:
            raise refused(path, f"its schema is {document['schema']!r}, not {SCHEMA}")
        if document["check"] != _check(body):
            raise refused(path, "its check sum is wrong")
        return {each["key"]: _grant(each) for each in body}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise refused(path, "it is no checkpoint of an agent") from None


def write(path: Path, grants: Iterable[Grant]) -> None:
    """Replace the file; returns when the disk has it.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    body = [_record(each) for each in sorted(grants, key=lambda grant: grant.key)]
    text = json.dumps({"schema": SCHEMA, "check": _check(body), "grants": body})
    draft = path.with_name(f".{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # or the rename itself might be lost with the machine's power
    finally:
        os.close(folder)


def _record(grant: Grant) -> dict[str, object]:
    parts = [[each.gpu, each.memory_bytes, each.cores] for each in grant.parts]
    return {
        "key": grant.key,
        "owner": grant.owner,
        "units": {kind: list(names) for kind, names in sorted(grant.units.items())},
        "gpus": list(grant.gpus),
        "memory_bytes": grant.memory_bytes,
        "cores": grant.cores,
        **({"parts": parts} if parts else {}),
    }


def _grant(record: Mapping[str, Any]) -> Grant:
    parts = record.get("parts", [])
    return Grant(
        key=str(record["key"]),
        owner=str(record["owner"]),
        units={str(kind): tuple(map(str, names)) for kind, names in record["units"].items()},
        gpus=tuple(map(str, record["gpus"])),
        memory_bytes=int(record["memory_bytes"]),
        cores=int(record["cores"]),
        parts=tuple(Part(str(gpu), int(memory), int(cores)) for gpu, memory, cores in parts),
    )


def _check(body: object) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def refused(path: Path, why: str) -> ToolError:
    """Exit 1: what an agent does instead of giving out what containers may have."""
    return ToolError(
        what=f"checkpoint '{path}' refused",
        why=why,
        fix="Drain the node of pods with GPUs, then remove the file",
    )
