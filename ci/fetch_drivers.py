"""Fetch real driver libraries from Debian's non-free packages, for the tests that read them.

Uses the archive that the machine's apt is set up for, through a private apt state: the system's own
package lists stay as they are, and nothing is installed. Standard library only. Never falls back to
anything else: a driver must not be committed, and the tests without one say so and skip.

Exit status: 0 every driver is there, 1 error, 2 usage, 3 they cannot be had on this machine.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A driver branch, the Debian suite that has it, and its two packages there."""

    branch: str
    suite: str
    packages: tuple[str, str]


WANTED = (
    Wanted("470", "bullseye", ("libcuda1", "libnvidia-ml1")),
    Wanted("525", "bookworm", ("libnvidia-tesla-cuda1", "libnvidia-tesla-ml1")),
    Wanted("535", "bookworm", ("libcuda1", "libnvidia-ml1")),
    Wanted("550", "trixie", ("libcuda1", "libnvidia-ml1")),
)


class UnavailableError(Exception):
    """The drivers cannot be had on this machine; the text says why."""


class Apt:
    """apt-get over a state of its own in `folder`; apt's signature checks stay on."""

    def __init__(self, folder: Path, mirror: str) -> None:
        for part in ("lists/partial", "cache/archives/partial", "none"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        suites = sorted({wanted.suite for wanted in WANTED})
        sources = "".join(f"deb {mirror} {suite} non-free\n" for suite in suites)
        (folder / "sources").write_text(sources, encoding="utf-8")
        settings = {
            "Dir::State": folder,
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Dir::Etc::SourceList": folder / "sources",
            "Dir::Etc::SourceParts": folder / "none",
            "Acquire::Retries": 1,
            "Acquire::http::Timeout": 20,
            # As root apt would drop to a user who cannot write here, and only warn about it.
            "APT::Sandbox::User": "",
        }
        self._command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in settings.items())]

    def __call__(self, *arguments: str, cwd: Path) -> None:
        """Run apt-get.

        Raises:
            UnavailableError: with apt's last line, when it fails.
        """
        done = subprocess.run(
            [*self._command, *arguments], cwd=cwd, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise UnavailableError(f"apt-get {arguments[0]}: {reason[-1]}")


def main(arguments: list[str]) -> int:
    """Fetch what is missing; returns the exit status."""
    if len(arguments) != 1:
        print("Usage: ci/fetch-drivers DIR", file=sys.stderr)
        return 2
    target = Path(arguments[0])
    missing = [wanted for wanted in WANTED if not is_whole(target / wanted.branch)]
    if not missing:
        return 0
    try:
        mirror = debian_mirror()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            apt = Apt(folder, mirror)
            print("ci/fetch-drivers: reading the archive's lists", file=sys.stderr)
            apt("update", cwd=folder)
            for number, wanted in enumerate(missing, 1):
                place = f"({number} of {len(missing)})"
                print(f"ci/fetch-drivers: driver {wanted.branch} {place}", file=sys.stderr)
                fetch(apt, wanted, folder, target / wanted.branch)
    except UnavailableError as error:
        print(f"ci/fetch-drivers: skipped: {error}", file=sys.stderr)
        return 3
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"ci/fetch-drivers: failed: {error}", file=sys.stderr)
        return 1
    return 0


def is_whole(branch: Path) -> bool:
    """Whether both libraries are there and are ELF files, through the links that drivers use."""
    try:
        return all((branch / name).open("rb").read(4) == b"\x7fELF" for name in LIBRARIES)
    except OSError:
        return False


def debian_mirror() -> str:
    """The address of the Debian archive that this machine's apt already uses.

    Raises:
        UnavailableError: when this is no Debian, or apt is not set up.
    """
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    if system.get("ID") != "debian" or not shutil.which("apt-get"):
        raise UnavailableError("not a Debian system")
    done = subprocess.run(
        [
            *("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"),
            f"Release: {system.get('VERSION_CODENAME', '')}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    mirrors = done.stdout.splitlines()
    if not mirrors:
        raise UnavailableError("apt knows no Debian archive")
    return mirrors[0]


def fetch(apt: Apt, wanted: Wanted, folder: Path, target: Path) -> None:
    """Unpack one branch's libraries, with the links beside them, into `target`."""
    work = folder / wanted.branch
    work.mkdir()
    apt("download", *(f"{package}/{wanted.suite}" for package in wanted.packages), cwd=work)
    for package in sorted(work.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(work / "root")], check=True)
    target.mkdir(parents=True, exist_ok=True)
    # Debian keeps every driver in a folder of its own: usr/lib/<triplet>/nvidia/{current,tesla,…}.
    for library in LIBRARIES:
        for path in work.glob(f"root/usr/lib/*/nvidia/*/{library.removesuffix('.1')}*"):
            shutil.copy2(path, target / path.name, follow_symlinks=False)
    if not is_whole(target):
        raise OSError(f"the packages {' and '.join(wanted.packages)} hold no driver")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
