"""What an engine calls the container of a process: Docker, podman, containerd, CRI-O, LXC, nspawn.

Asks no engine: reads what its own helper beside the container was started with, or the file that
it keeps of the container. Who may not read those learns nothing. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_DOCKER = re.compile(r"(?P<folder>/\S*/containers/[0-9a-f]{64})/(?:hostname|hosts|resolv\.conf)")
# k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT, as CRI-O and cri-dockerd have it.
_OF_POD = re.compile(r"k8s_([^_]+)_([^_]+)_([^_]+)_[^_]*_[0-9]+")
# A kubelet's cgroup of a pod, whose uid has _ for - where systemd makes it. A pod of a file on the
# node has 32 digits without either.
_UID = re.compile(
    r"/(?:kubepods[a-z-]*-)?pod([0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b"
)
_LXC_MONITOR = "[lxc monitor] "
_MOST_PARENTS = 8
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Called:
    """The names of a container; "" for what it does not have. `uid` is its pod's."""

    container: str = ""
    pod: str = ""
    namespace: str = ""
    uid: str = ""


NOTHING = Called()


def look_up(proc: Path, pid: int, system: Path = Path("/")) -> Called:
    """What the engine calls the container of a process.

    Args:
        proc: the folder of all processes.
        pid: in our own pid namespace.
        system: where the machine's files are.
    """
    if not is_elsewhere(proc, pid):
        return NOTHING
    found = _named(proc, pid, system)
    if not found.pod:
        return found
    match = _UID.search(_text(proc / str(pid) / "cgroup"))
    return replace(found, uid=match[1].replace("_", "-")) if match else found


def is_elsewhere(proc: Path, pid: int) -> bool:
    """Whether a process sees other mounts than we do, as those of every engine do."""
    try:
        there = (proc / str(pid) / "ns" / "mnt").stat()
        here = (proc / "self" / "ns" / "mnt").stat()
    except OSError:
        return False
    return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)


def _named(proc: Path, pid: int, system: Path) -> Called:
    own = proc / str(pid)
    for parent in _parents(proc, pid):
        kind = _text(proc / str(parent) / "comm").rstrip("\n")
        if kind == "conmon":
            return _of_conmon(proc / str(parent))
        if kind.startswith("containerd-shim"):
            found = _of_shim(proc / str(parent), _id_of(own))
            if found != NOTHING:
                return found
            break
        if name := _of_monitor(kind, proc / str(parent)):
            return Called(_word(name))
    return _of_docker(own, system)


def _parents(proc: Path, pid: int) -> Iterator[int]:
    for _ in range(_MOST_PARENTS):
        fields = _text(proc / str(pid) / "stat").rpartition(")")[2].split()
        if len(fields) < 2 or not fields[1].isdigit() or fields[1] in ("0", "1"):
            return
        pid = int(fields[1])
        yield pid


def _of_conmon(own: Path) -> Called:
    """It was started with -n NAME; CRI-O's names say which pod it is."""
    words = _text(own / "cmdline").split("\0")
    if "-n" not in words[:-1]:
        return NOTHING
    return _parsed(words[words.index("-n") + 1])


def _of_monitor(kind: str, own: Path) -> str:
    """The name after the option that LXC's or nspawn's command was started with; "" for neither.

    In the background LXC calls itself `[lxc monitor] FOLDER NAME`, also under LXD and Incus.
    """
    text = _text(own / "cmdline").rstrip("\0")
    if text.startswith(_LXC_MONITOR):
        return text.rpartition(" ")[2]
    if kind in ("lxc-start", "lxc-execute"):
        return _option(text.split("\0"), "-n", "--name")
    if kind == "systemd-nspawn":
        words = text.split("\0")
        folder = _option(words, "-D", "--directory")
        return _option(words, "-M", "--machine") or folder.rstrip("/").rpartition("/")[2]
    return ""


def _option(words: list[str], short: str, long: str) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in (short, long):
            return following
        if word.startswith(f"{long}="):
            return word.partition("=")[2]
        if word.startswith(short) and not word.startswith("--"):
            return word[len(short) :]
    return ""


def _of_shim(own: Path, identity: str) -> Called:
    """Its folder is that of the pod's first container; the others lie beside it."""
    try:
        bundle = Path(os.readlink(own / "cwd"))
    except OSError:
        return NOTHING
    for folder in (bundle.parent / identity, bundle) if identity else (bundle,):
        # As the helper sees it: containerd may have mounts of its own, as in a node of `kind`.
        there = own / "root" / str(folder).lstrip("/")
        notes = _json((there if there.is_dir() else folder) / "config.json").get("annotations")
        if isinstance(notes, dict):
            names = ("container-name", "sandbox-name", "sandbox-namespace")
            found = [_word(notes.get(f"io.kubernetes.cri.{name}")) for name in names]
            if any(found):
                return Called(*found)
    # By `ctr`, a container is called by its folder.
    return NOTHING if _ID.fullmatch(bundle.name) else Called(_word(bundle.name))


def _of_docker(own: Path, system: Path) -> Called:
    identity = _id_of(own)
    folders = [match["folder"] for match in _DOCKER.finditer(_text(own / "mountinfo"))]
    if identity:
        folders.append(f"/var/lib/docker/containers/{identity}")
    for folder in dict.fromkeys(folders):
        kept = _json(system / folder.lstrip("/") / "config.v2.json")
        if name := _word(kept.get("Name")).lstrip("/"):
            return _parsed(name)
    return NOTHING


def _id_of(own: Path) -> str:
    """The 64 digits that engines put into a container's cgroup or into its mounts."""
    for text in (_text(own / "cgroup"), _text(own / "mountinfo")):
        if found := _ID.findall(text):
            return str(found[-1])
    return ""


def _parsed(name: str) -> Called:
    if match := _OF_POD.fullmatch(name):
        return Called(*match.groups())
    return Called(_word(name))


def _word(text: object) -> str:
    """A name that others chose, as far as it can be one."""
    return text if isinstance(text, str) and text.isprintable() and len(text) <= 512 else ""


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_MOST_BYTES))
    except OSError:
        return ""


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
