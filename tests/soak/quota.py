"""A CPU quota of the kernel's, for processes of the soak: a cgroup of version 1 or 2.

Must not know what a process does. Where no cgroup can be made, `Quota.made` says None.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
QUOTA_US = 5_000  # of each period: a quarter of a processor
# By version: where the hierarchy is, the line of /proc/self/cgroup that tells our own group, and
# what is written.
VERSIONS = (
    (ROOT / "cpu", "cpu", {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": QUOTA_US}),
    (ROOT, "", {"cpu.max": f"{QUOTA_US} {PERIOD_US}"}),
)


@dataclass(frozen=True, slots=True)
class Quota:
    """A group whose processes share a quarter of a processor; `home` is where they come from."""

    group: Path
    home: Path

    @staticmethod
    def made() -> Quota | None:
        """A new group beside our own; None where that is not allowed."""
        told = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        ours = {controllers: path for _, controllers, path in (one.split(":", 2) for one in told)}
        for root, controller, values in VERSIONS:
            if controller not in ours or not (root / "cgroup.procs").exists():
                continue
            home = root / ours[controller].lstrip("/")
            quota = Quota(root / f"gpufence-soak-{os.getpid()}", home)
            with suppress(OSError):
                quota.group.mkdir()
                try:
                    for name, value in values.items():
                        _write(quota.group / name, value)
                except OSError:
                    quota.end()
                    continue
                return quota
        return None

    def take(self, pid: int) -> None:
        """Hold a process to the quota."""
        _write(self.group / "cgroup.procs", pid)

    def give_back(self, pid: int) -> None:
        """Let it go; it may have ended."""
        with suppress(ProcessLookupError):
            _write(self.home / "cgroup.procs", pid)

    def times(self) -> int:
        """How often the kernel has stopped somebody in the group."""
        lines = (self.group / "cpu.stat").read_text(encoding="utf-8").splitlines()
        return int(dict(line.split() for line in lines)["nr_throttled"])

    def end(self) -> None:
        """Remove the group, which must be empty."""
        self.group.rmdir()


def _write(path: Path, value: object) -> None:
    # Opened as it is: a file that is not there is not the kernel's.
    with path.open("r+", encoding="utf-8") as file:
        file.write(str(value))
