"""What a CDI file may hold, and the one that puts a limit into a container.

Owns the rules of the Container Device Interface specification (0.3.0 to 1.0.0) and the shape of
our own devices. Pure: documents in, documents or complaints out; no file is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpufence.config import options

KIND = "gpufence.io/limit"

# Where things are inside of the container.
LIBRARY_PATH = "/usr/lib/gpufence/libgpufence.so"
ADDPATH_PATH = "/usr/lib/gpufence/libgpufence-addpath.so"
PRELOAD_PATH = "/etc/ld.so.preload"
LIMITS_PATH = "/etc/gpufence/gpufence.conf"  # where the library looks for it
STATE_PATH = "/run/gpufence"
NODE_PATH = "/run/gpufence-node"

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_VENDOR = re.compile(rf"[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?(?:\.{_LABEL})*")
_LONGEST_VENDOR = 253
_CLASS = re.compile(r"[A-Za-z](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?", re.ASCII)

_HOOKS = frozenset(
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
)
_EDIT_LISTS = ("env", "deviceNodes", "mounts", "hooks", "additionalGids")


@dataclass(frozen=True, slots=True)
class Source:
    """Files and folders of the host that go into the container."""

    library: str
    preload: str
    state: str | None  # None: a folder in memory that only this container has
    node: str | None
    addpath: str | None
    limits: str  # of the files that hold each device's limit; see limits_file


def limits_file(folder: str, kind: str, name: str) -> str:
    """Where a device's limit is on the host; no two devices have the same."""
    return f"{folder}/{kind}/{name}.conf"


def limits_text(
    variables: Mapping[str, str], source: Source, author: str = "gpufence cdi generate"
) -> str:
    """A device's limit as a config file of the library, for processes without its variables.

    Args:
        variables: the names that `build` takes, all of them with a key in such a file.
        source: as for `build`.
        author: the command that writes it.
    """
    lines = [f"{_key_of(name)} = {text}" for name, text in variables.items()]
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
    devices: list[dict[str, object]] = [
        {
            "name": name,
            "containerEdits": {
                "env": [f"{key}={text}" for key, text in variables.items()],
                "mounts": [bind(limits_file(source.limits, kind, name), LIMITS_PATH, "ro")],
            },
        }
        for name, variables in profiles.items()
    ]
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
    return _DEVICE.fullmatch(name) is not None


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
    """Every complaint that a container engine could have; [] for a valid document."""
    if not isinstance(document, dict):
        return ["the document is no map"]
    found = list(_check_head(document))
    for index, device in enumerate(_list(document, "devices", found)):
        found += _check_device(device, f"device {index + 1}")
    names = [device.get("name") for device in _maps(document.get("devices"))]
    found += [f"device '{name}' stands there twice" for name in _doubles(names)]
    if "containerEdits" in document:
        found += _check_edits(document["containerEdits"], "the common edits", may_be_empty=True)
    if not found and VERSIONS.index(document["cdiVersion"]) < VERSIONS.index(
        needed := needed_version(document)
    ):
        found.append(f"its cdiVersion must be at least {needed}")
    return found


def _check_head(document: Mapping[str, object]) -> Iterator[str]:
    known = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
    yield from (f"'{key}' is no key of a CDI file" for key in sorted(set(document) - known))
    version, kind = document.get("cdiVersion"), document.get("kind")
    if version not in VERSIONS:
        yield f"its cdiVersion {version!r} is none of {', '.join(VERSIONS)}"
    if not isinstance(kind, str):
        yield "it has no kind"
    elif why := check_kind(kind):
        yield f"kind '{kind}' is refused: {why}"
    if not document.get("devices"):
        yield "it has no devices"
    yield from _check_annotations(document.get("annotations"), "the file")


def _check_annotations(found: object, place: str) -> Iterator[str]:
    if found is None:
        return
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        yield f"annotations of {place} are no map of texts"


def _check_device(device: object, place: str) -> Iterator[str]:
    if not isinstance(device, dict):
        yield f"{place} is no map"
        return
    known = {"name", "annotations", "containerEdits"}
    yield from (f"'{key}' is no key of {place}" for key in sorted(set(device) - known))
    name = device.get("name")
    if not isinstance(name, str) or not is_device_name(name):
        yield f"{place} has no name of letters, digits, '_', '-', '.' and ':' ({name!r})"
    yield from _check_annotations(device.get("annotations"), place)
    yield from _check_edits(device.get("containerEdits"), place, may_be_empty=False)


def _check_edits(edits: object, place: str, may_be_empty: bool) -> Iterator[str]:
    if not isinstance(edits, dict):
        yield f"containerEdits of {place} are no map"
        return
    known = {*_EDIT_LISTS, "intelRdt", "netDevices"}
    yield from (f"'{key}' is no edit ({place})" for key in sorted(set(edits) - known))
    if not may_be_empty and not any(edits.get(key) for key in known):
        yield f"{place} edits nothing"
    complaints: list[str] = []
    for text in _list(edits, "env", complaints):
        if not isinstance(text, str) or text.find("=") < 1:
            yield f"{text!r} is no NAME=VALUE ({place})"
    for mount in _list(edits, "mounts", complaints):
        yield from _check_mount(mount, place)
    for node in _list(edits, "deviceNodes", complaints):
        yield from _check_node(node, place)
    for hook in _list(edits, "hooks", complaints):
        yield from _check_hook(hook, place)
    for group in _list(edits, "additionalGids", complaints):
        if not _is_number(group, 2**32 - 1):
            yield f"{group!r} is no group number ({place})"
    yield from (f"{complaint} ({place})" for complaint in complaints)


def _check_mount(mount: object, place: str) -> Iterator[str]:
    if not isinstance(mount, dict):
        yield f"a mount is no map ({place})"
        return
    for key in ("hostPath", "containerPath"):
        if not isinstance(mount.get(key), str) or not mount[key]:
            yield f"a mount has no {key} ({place})"
    if not _is_texts(mount.get("options", [])):
        yield f"options of a mount are no list of texts ({place})"
    if not isinstance(mount.get("type", ""), str):
        yield f"the type of a mount is no text ({place})"


def _check_node(node: object, place: str) -> Iterator[str]:
    if not isinstance(node, dict) or not isinstance(node.get("path"), str) or not node["path"]:
        yield f"a device node has no path ({place})"
        return
    path = node["path"]
    if node.get("type", "") not in ("", "b", "c", "u", "p"):
        yield f"{path} has type {node['type']!r}, which is none of b, c, u, p ({place})"
    permissions = node.get("permissions", "")
    if not isinstance(permissions, str) or permissions.strip("rwm") not in ("", "none"):
        yield f"{path} has permissions {permissions!r}, not of r, w, m ({place})"
    for key, most in (("major", 2**63 - 1), ("minor", 2**63 - 1), ("uid", 2**32 - 1),
                      ("gid", 2**32 - 1), ("fileMode", 2**32 - 1)):  # fmt: skip
        if key in node and not _is_number(node[key], most):
            yield f"{path} has {key} {node[key]!r}, which is no such number ({place})"


def _check_hook(hook: object, place: str) -> Iterator[str]:
    if not isinstance(hook, dict):
        yield f"a hook is no map ({place})"
        return
    if hook.get("hookName") not in _HOOKS:
        yield f"{hook.get('hookName')!r} is no hook ({place})"
    path = hook.get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        yield f"a hook has no absolute path ({place})"
    if not _is_texts(hook.get("args", [])):
        yield f"args of a hook are no list of texts ({place})"
    if not _is_texts(hook.get("env", [])) or any(e.find("=") < 1 for e in hook.get("env", [])):
        yield f"env of a hook is no list of NAME=VALUE ({place})"
    if "timeout" in hook and not _is_number(hook["timeout"], 2**32 - 1):
        yield f"timeout of a hook is no number of seconds ({place})"


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _list(holder: Mapping[str, object], key: str, complaints: list[str]) -> Sequence[object]:
    """A list that may be missing; one complaint when it is something else."""
    value = holder.get(key)
    if value is None or isinstance(value, list):
        return value or ()
    complaints.append(f"{key} is no list")
    return ()


def _maps(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _doubles(names: Sequence[object]) -> list[str]:
    texts = [name for name in names if isinstance(name, str)]
    return sorted({name for name in texts if texts.count(name) > 1})
