"""A container as far as namespaces make one: no engine, no image, the machine's own /usr.

It has a root file system of its own (a tmpfs with the machine's folders bound into it, and an
overlay on /usr), its own /etc, /dev, /run and /proc, and on demand a pid namespace, another user,
a read-only root, no /dev/shm. Needs root. Must not know what is tested in it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

# Made anew in the container; everything else of the machine's root is bound into it.
_OWN = ("dev", "etc", "lost+found", "mnt", "proc", "run", "sys", "tmp")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf")
# What NVIDIA's own CDI device brings: nothing, on a machine without a GPU.
_GPU_NODES = (
    "for node in /dev/nvidia*; do if [ -c $node ]; then touch $root$node; "
    "mount --bind $node $root$node; fi; done"
)
# An overlay shows nothing of what is mounted into its layers, such as a driver's libraries.
_MOUNTS_BELOW_USR = (
    "awk '$2 ~ \"^/usr/\" {print $2}' /proc/self/mounts | while read -r place; do "
    'mount --bind "$place" "$root$place"; done'
)
_DEVICES = ("null", "zero", "urandom", "random", "full")


@dataclass(frozen=True, slots=True)
class Imitation:
    """How the container differs from the machine."""

    root: Path  # an empty folder, where its root file system is mounted
    preload: Sequence[Path] = ()  # lines of its /etc/ld.so.preload
    shown: Sequence[Path] = ()  # folders of the machine that it sees, wherever they are
    mounts: Sequence[Mapping[str, Any]] = ()  # as a CDI file has them
    files: dict[str, str] = field(default_factory=dict)  # more files: path in it -> text
    own_pids: bool = True
    read_only: bool = False
    shared_memory: bool = True
    uid: int = 0

    def command(self, *argv: str | Path) -> list[str]:
        """The command line that starts a program in a new container of this kind."""
        kinds = ["--mount", *(["--pid", "--fork"] if self.own_pids else [])]
        return ["unshare", *kinds, "sh", "-euc", self._script(), "sh", *map(str, argv)]

    def _script(self) -> str:
        root = shlex.quote(str(self.root))
        lines = [f"root={root}", "mount -t tmpfs -o mode=755 tmpfs $root", *_folders()]
        lines += [f"mkdir -p $root/{name}" for name in ("dev", "etc", "proc", "run", "tmp")]
        lines += ["chmod 1777 $root/tmp", "mount -t proc proc $root/proc"]
        for name in _ETC:
            lines.append(f"if [ -e /etc/{name} ]; then cp -a /etc/{name} $root/etc/; fi")
        for name in _DEVICES:
            lines.append(f"touch $root/dev/{name}; mount --bind /dev/{name} $root/dev/{name}")
        lines.append(_GPU_NODES)
        if self.shared_memory:
            lines.append("mkdir $root/dev/shm; mount -t tmpfs -o mode=1777 tmpfs $root/dev/shm")
        closed = _closed_folders(self.shown)
        for folder in sorted(closed):
            lines.append(f"mount -t tmpfs -o mode=755 tmpfs $root{shlex.quote(str(folder))}")
        for folder in self.shown:
            if folder.parts[1] not in _OWN and closed.isdisjoint(folder.parents):
                continue  # it is bound with the folder that it lies in
            path = shlex.quote(str(folder))
            lines.append(f"mkdir -p $root{path}; mount --bind {path} $root{path}")
        files = dict(self.files)
        if self.preload:
            files["/etc/ld.so.preload"] = "".join(f"{path}\n" for path in self.preload)
        for path, text in files.items():
            lines.append(f"mkdir -p $root{shlex.quote(str(Path(path).parent))}")
            lines.append(f"printf %s {shlex.quote(text)} >$root{shlex.quote(path)}")
        lines += [_cdi_mount(mount) for mount in self.mounts]
        if self.read_only:
            lines.append("mount -o remount,bind,ro $root")
        user = f"setpriv --reuid={self.uid} --regid={self.uid} --clear-groups --inh-caps=-all"
        lines.append(f"cd $root; {_find('pivot_root') or 'pivot_root'} . .; umount -l .; cd /")
        lines.append(f'exec {user if self.uid else ""} "$@"')
        return "\n".join(lines)


def _closed_folders(shown: Sequence[Path]) -> set[Path]:
    """Folders bound from the machine that keep other users from reaching what is shown.

    pytest's own, and someone's home: the container has open ones instead, which hold what is shown
    alone.
    """
    found = set()
    for path in shown:
        bound = [] if path.parts[1] in _OWN else reversed(path.parents)
        closed = (folder for folder in bound if not folder.stat().st_mode & stat.S_IXOTH)
        found |= set(islice(closed, 1))
    return found


def _find(tool: str) -> str | None:
    """Where a tool is, also one for administrators that is not on a user's PATH."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _cdi_mount(mount: Mapping[str, Any]) -> str:
    """What an engine does for a mount of a CDI file."""
    source, inside = Path(mount["hostPath"]), shlex.quote(mount["containerPath"])
    options = ",".join(each for each in mount.get("options", ()) if each not in ("bind", "rw"))
    if mount.get("type"):
        make = f"mkdir -p $root{inside}; mount -t {mount['type']} -o {options} {mount['type']}"
        return f"{make} $root{inside}"
    place = f"mkdir -p $root{inside}"
    if not source.is_dir():
        place = f"mkdir -p $(dirname $root{inside}); touch $root{inside}"
    bind = f"mount --bind {shlex.quote(str(source))} $root{inside}"
    return f"{place}; {bind}; mount -o remount,bind,{options or 'rw'} $root{inside}"


def _folders() -> list[str]:
    """Bind what the container shares with the machine; links stay links."""
    lines = []
    for path in sorted(Path("/").iterdir()):
        if path.name in _OWN:
            continue
        name = shlex.quote(path.name)
        if path.is_symlink():
            lines.append(f"cp -a /{name} $root/{name}")
        elif path.name == "usr":
            # What is mounted into it must not make folders on the machine.
            lines.append("mkdir -p $root/usr $root/.usr/upper $root/.usr/work")
            layers = "lowerdir=/usr,upperdir=$root/.usr/upper,workdir=$root/.usr/work"
            lines.append(f"mount -t overlay -o {layers} overlay $root/usr")
            lines.append(_MOUNTS_BELOW_USR)
        elif path.is_dir():
            lines.append(f"mkdir $root/{name}; mount --rbind /{name} $root/{name}")
    return lines


def require_namespaces(root: Path) -> None:
    """Skip the test where no such container can be made."""
    missing = [tool for tool in ("unshare", "setpriv", "pivot_root") if _find(tool) is None]
    if missing:
        pytest.skip(f"this machine has no {', '.join(missing)}")
    probe = Imitation(root).command("true")
    done = subprocess.run(probe, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"no container can be imitated here: {done.stderr.strip()[-200:]}")
