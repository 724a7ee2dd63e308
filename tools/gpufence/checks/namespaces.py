"""In which cgroup and pid namespace a process lives, and what other systems were told of it.

Reads /proc. No limit depends on a cgroup; who reads this wants to know why something else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .finding import Collected, Finding, failed

# Inodes of the machine's first namespaces, constants of Linux (PROC_*_INIT_INO).
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_FIRST_CGROUP_NAMESPACE = 0xEFFFFFFB


def cgroup(proc: Path, variables: Mapping[str, str]) -> Finding:
    """Which cgroups there are; nothing here depends on them, others' settings do.

    Args:
        proc: the process's folder in /proc.
        variables: its environment, for the compatibility modes of vgpu-manager.
    """
    found = Collected("cgroup")
    kind, own_path = _cgroup(proc)
    namespace = inode(proc / "ns" / "cgroup")
    private = namespace not in (0, _FIRST_CGROUP_NAMESPACE)
    found.facts |= {"version": kind, "path": own_path, "own_namespace": private}
    found.told.append(f"{kind}{', in a namespace of its own' if private else ''}")
    for name in ("MANAGER_COMPATIBILITY_MODE", "ENV_COMPATIBILITY_MODE"):
        if name in variables:
            _compare_mode(name, variables[name], kind, found)
    return found.done()


def _cgroup(proc: Path) -> tuple[str, str | None]:
    """The layout by the lines of /proc/PID/cgroup ("number:controllers:path")."""
    try:
        lines = (proc / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown", None
    fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    unified = [path for number, names, path in fields if number == "0" and not names]
    # "name=systemd" and its like are trees without a controller.
    controllers = [path for number, names, path in fields if names and "name=" not in names]
    if controllers:
        return ("hybrid" if unified else "v1"), controllers[0]
    return ("v2", unified[0]) if unified else ("none", None)


_MODES = {1: "v1", 2: "v2"}


def _compare_mode(name: str, text: str, kind: str, found: Collected) -> None:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    tens = {0: 0, 100: 100, 200: 200, 300: 300}.get(value - value % 100)
    if value < 0 or tens is None or value % 100 > 2:
        why = "it is no sum of 0 (host), 1 (cgroup v1) or 2 (cgroup v2), 100 and 200"
        found.notes.append(failed(f"{name}='{text}'", why, "Leave it out: nothing here needs it"))
    elif (expected := _MODES.get(value % 100)) and kind not in (expected, "hybrid", "unknown"):
        found.notes.append(
            failed(
                f"{name}={text}",
                f"it says cgroup {expected}, and this is {kind}; processes are told apart by the "
                f"ledger, whatever it says",
                "Leave it out",
            )
        )
    found.facts[name.lower()] = text


def pid_namespace(proc: Path) -> Finding:
    """In whose numbers the process counts."""
    found = Collected("pids")
    number = inode(proc / "ns" / "pid")
    first = number == _FIRST_PID_NAMESPACE
    numbers = _status_field(proc, "NSpid").split()
    found.facts |= {
        "namespace": number or None,
        "first": first if number else None,
        "numbers": [int(each) for each in numbers],
    }
    text = "the machine's own" if first else f"a namespace of its own ({number})"
    found.told.append(text if number else "unknown: /proc does not tell")
    if not number:
        found.notes.append(
            failed(
                "the pid namespace cannot be told",
                "/proc is missing or another container's",
                "Mount the container's own /proc",
            )
        )
    return found.done()


def _status_field(proc: Path, name: str) -> str:
    try:
        text = (proc / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.partition(":") for line in text.splitlines()]
    return next((value.strip() for key, _, value in lines if key == name), "")


def inode(path: Path) -> int:
    """The number of a namespace; 0 when it cannot be read."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0
