"""What a CDI file may hold, and the one that puts a limit into a container.

Owns the rules of the Container Device Interface specification (0.3.0 to 1.0.0), with schema.json,
and the shape of our own devices. Documents in, documents or complaints out; no other file is read.
"""

from __future__ import annotations

import functools
import json
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufence import packages
from gpufence.config import mps, options

if TYPE_CHECKING:
    from jsonschema import ValidationError

KIND = "gpufence.io/limit"

# Where things are inside of the container.
LIBRARY_PATH = "/usr/lib/gpufence/libgpufence.so"
ADDPATH_PATH = "/usr/lib/gpufence/libgpufence-addpath.so"
PRELOAD_PATH = "/etc/ld.so.preload"
LIMITS_PATH = "/etc/gpufence/gpufence.conf"  # where the library looks for it
STATE_PATH = "/run/gpufence"
NODE_PATH = "/run/gpufence-node"
MPS_PATH = "/run/nvidia-mps"

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_VENDOR = re.compile(rf"[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?(?:\.{_LABEL})*")
_LONGEST_VENDOR = 253
_CLASS = re.compile(r"[A-Za-z](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_TYPES = {"array": "list", "integer": "number", "object": "map", "string": "text"}


@dataclass(frozen=True, slots=True)
class Source:
    """Files and folders of the host that go into the container."""

    library: str
    preload: str
    state: str | None  # None: a folder in memory that only this container has
    node: str | None
    addpath: str | None
    limits: str  # of the files that hold each device's limit; see limits_file
    mps: str = mps.USUAL_PIPES  # of the MPS daemon's pipes, for devices in mode mps


def limits_file(folder: str, kind: str, name: str) -> str:
    """Where a device's limit is on the host; no two devices have the same."""
    return f"{folder}/{kind}/{name}.conf"


def limits_text(
    variables: Mapping[str, str], source: Source, author: str = "gpufence cdi generate"
) -> str:
    """A device's limit as a config file of the library, for processes without its variables.

    Args:
        variables: the names that `build` takes. Those that the driver reads have no key in such a
            file: a process without them is refused, since MPS would not hold it.
        source: as for `build`.
        author: the command that writes it.
    """
    ours = {name: text for name, text in variables.items() if name != mps.THREADS}
    lines = [f"{_key_of(name)} = {text}" for name, text in ours.items()]
    if source.node is not None:
        lines.append(f"node_dir = {NODE_PATH}")
    banner = f"# Written by `{author}`, which the next one replaces."
    return "\n".join([banner, *lines, ""])


def _key_of(name: str) -> str:
    """How the library's config file spells a variable that has a place there."""
    option, key = options.find(name) or (None, "")
    base = options.file_key(option) if option else None
    assert base is not None, name
    return base + key


def build(
    kind: str, profiles: Mapping[str, Mapping[str, str]], source: Source
) -> dict[str, object]:
    """A document with one device for each profile.

    Args:
        kind: vendor and class, which must pass `check`.
        profiles: device name -> the variables that make its limit.
        source: what is mounted, for every device alike.
    """
    devices: list[dict[str, object]] = []
    for name, variables in profiles.items():
        env = [f"{key}={text}" for key, text in variables.items()]
        mounts = [bind(limits_file(source.limits, kind, name), LIMITS_PATH, "ro")]
        if mps.THREADS in variables:
            env.append(f"{mps.PIPES}={MPS_PATH}")
            mounts.append(bind(source.mps, MPS_PATH, "rw", "noexec"))
        devices.append({"name": name, "containerEdits": {"env": env, "mounts": mounts}})
    edits: dict[str, object] = {"mounts": list(_mounts(source))}
    if source.node is not None:
        edits["env"] = [f"GPUFENCE_NODE_DIR={NODE_PATH}"]
    document: dict[str, object] = {
        "cdiVersion": VERSIONS[0],
        "kind": kind,
        "devices": devices,
        "containerEdits": edits,
    }
    return document | {"cdiVersion": needed_version(document)}


def _mounts(source: Source) -> Iterator[dict[str, object]]:
    yield bind(source.library, LIBRARY_PATH, "ro")
    if source.addpath is not None:
        yield bind(source.addpath, ADDPATH_PATH, "ro")
    yield bind(source.preload, PRELOAD_PATH, "ro")
    if source.state is not None:
        yield bind(source.state, STATE_PATH, "rw", "noexec")
    else:
        options = ["nosuid", "nodev", "noexec", "mode=1777", "size=64m"]
        yield {
            "hostPath": "tmpfs",
            "containerPath": STATE_PATH,
            "type": "tmpfs",
            "options": options,
        }
    if source.node is not None:
        yield bind(source.node, NODE_PATH, "rw", "noexec")


def bind(host: str, container: str, *options: str) -> dict[str, object]:
    """A mount of a path of the host; `options` beside those that every one has."""
    return {
        "hostPath": host,
        "containerPath": container,
        "options": [*options, "nosuid", "nodev", "bind"],
    }


def is_device_name(name: str) -> bool:
    """Whether the specification allows it as a device's name."""
    rule = _schema()["properties"]["devices"]["items"]["properties"]["name"]["pattern"]
    return "\n" not in name and re.search(rule, name) is not None


def check_kind(kind: str) -> str:
    """Why the text is no kind; "" if it is one."""
    vendor, slash, name = kind.partition("/")
    if not slash:
        return "it has no '/' between vendor and class"
    if not _VENDOR.fullmatch(vendor) or len(vendor) > _LONGEST_VENDOR:
        return f"its vendor '{vendor}' is no domain name that begins with a letter"
    if not _CLASS.fullmatch(name):
        return (
            f"its class '{name}' is not a letter, then up to 62 letters, digits, '_', '-' and '.'"
        )
    return ""


def needed_version(document: Mapping[str, object]) -> str:
    """The oldest version of the specification that has everything in a valid document."""
    needed = [VERSIONS[0]]
    name = str(document["kind"]).partition("/")[2]
    devices = _maps(document.get("devices"))
    if "annotations" in document or "." in name or any("annotations" in each for each in devices):
        needed.append("0.6.0")
    if any(not str(device["name"])[0].isalpha() for device in devices):
        needed.append("0.5.0")
    for each in (document, *devices):
        inner = each.get("containerEdits")
        if not isinstance(inner, dict):
            continue
        if inner.get("intelRdt") is not None or inner.get("additionalGids"):
            needed.append("0.7.0")
        if any(node.get("hostPath") for node in _maps(inner.get("deviceNodes"))):
            needed.append("0.5.0")
        if any(mount.get("type") for mount in _maps(inner.get("mounts"))):
            needed.append("0.4.0")
    return max(needed, key=VERSIONS.index)


def check(document: object) -> list[str]:
    """Every complaint that a container engine could have; [] for a valid document.

    Raises:
        ToolError: exit 1, without the package that reads schemas.
    """
    found = _by_schema(document)
    if not isinstance(document, dict):
        return found
    kind = document.get("kind")
    if isinstance(kind, str) and (why := check_kind(kind)):
        found.append(f"kind '{kind}' is refused: {why}")
    names = [device.get("name") for device in _maps(document.get("devices"))]
    found += [f"device '{name}' stands there twice" for name in _doubles(names)]
    if not found and VERSIONS.index(document["cdiVersion"]) < VERSIONS.index(
        needed := needed_version(document)
    ):
        found.append(f"its cdiVersion must be at least {needed}")
    return found


def _by_schema(document: object) -> list[str]:
    with packages.needed("jsonschema", "no CDI file can be checked"):
        import jsonschema

    seen = _as_engines_see(document) if isinstance(document, dict) else document
    errors = jsonschema.Draft7Validator(_schema()).iter_errors(seen)
    return [_complaint(error) for error in sorted(errors, key=lambda each: str(each.json_path))]


def _as_engines_see(document: Mapping[str, object]) -> dict[str, object]:
    """Without what is null or empty, which their readers take for missing."""

    def kept(found: Mapping[str, object]) -> dict[str, object]:
        some = {key: value for key, value in found.items() if value is not None and value != []}
        edits = some.get("containerEdits")
        if isinstance(edits, dict):
            edits = {key: value for key, value in edits.items() if value is not None}
            some["containerEdits"] = {key: value for key, value in edits.items() if value != []}
        return some

    found = kept(document)
    devices = found.get("devices")
    if isinstance(devices, list):
        found["devices"] = [kept(each) if isinstance(each, dict) else each for each in devices]
    return found


def _complaint(error: ValidationError) -> str:
    """What the schema has against a document, as people say it."""
    place = "".join(
        f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.absolute_path
    ).removeprefix(".") or "the document"  # fmt: skip
    value: Any = error.instance
    rule: Any = error.validator
    wanted: Any = error.validator_value
    schema: Any = error.schema
    shown = reprlib.repr(value)
    if rule == "type":
        return f"{place} is no {_TYPES.get(wanted, wanted)}"
    if rule == "required":
        # The schema complains of each missing key by itself, and only its words say of which.
        return f"{place} has no {error.message.partition(' ')[0].strip(chr(39))}"
    if rule == "additionalProperties" and wanted is False:
        odd = ", ".join(sorted(repr(key) for key in set(value) - set(schema["properties"])))
        return f"{odd} is no key of {place}"
    if rule == "enum":
        return f"{place} {shown} is none of {', '.join(filter(None, wanted))}"
    if rule == "pattern":
        return f"{place} {shown} is no {schema['description']}"
    if rule in ("minItems", "minLength", "minProperties"):
        return f"{place} is empty"
    return f"{place} {shown} is out of its bounds, {rule} {wanted}"


@functools.cache
def _schema() -> dict[str, Any]:
    text = Path(__file__).with_name("schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _maps(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _doubles(names: Sequence[object]) -> list[str]:
    texts = [name for name in names if isinstance(name, str)]
    return sorted({name for name in texts if texts.count(name) > 1})
