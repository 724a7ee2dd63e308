"""The commit that a release is made of: its time, its version, and its files in a folder.

Owns what is asked of git. Must not know what is built from the files.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path


class ReleaseError(Exception):
    """One line: what failed, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit; `epoch` is when it was made, in seconds, and the time of every file."""

    checkout: Path
    hash: str
    epoch: int

    def export(self, folder: Path) -> None:
        """Write the commit's files into a new folder; nothing else of the checkout gets there."""
        archive = _git(self.checkout, "archive", "--format=tar", self.hash)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder)


def of(checkout: Path) -> Commit:
    """The commit that is checked out.

    Raises:
        ReleaseError: the folder is no git checkout.
    """
    # A checkout that another user owns is git's to refuse; what is committed in it is not secret.
    told = _git(checkout, "log", "-1", "--format=%H %ct").decode().split()
    return Commit(checkout, told[0], int(told[1]))


def is_changed(checkout: Path) -> bool:
    """Whether files differ from the commit, so that the release is not what lies in the folder."""
    return bool(_git(checkout, "status", "--porcelain", "--untracked-files=no"))


def version_of(source: Path) -> str:
    """The version in a pyproject.toml, which is the only place that has it."""
    text = (source / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    if not found:
        raise ReleaseError(f'no version: {source}/pyproject.toml has no line `version = "…"`.')
    return found[1]


def _git(checkout: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise ReleaseError(
            f"`git {words[0]}` failed in {checkout}: {said[-1]}. Run this in a git checkout."
        )
    return done.stdout
