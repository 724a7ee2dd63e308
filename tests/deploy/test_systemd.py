"""deploy/systemd: systemd finds no fault in the unit, and makes the folders that containers share.

The unit lies where docs/install.md puts it, in a system of its own without anything else of ours.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from .conftest import DEPLOY, REPO, ran, tool

UNIT = "gpufence-export.service"
SYSTEM = Path("/lib/systemd/system")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a system after the commands of docs/install.md that name deploy/systemd."""
    page = (REPO / "docs" / "install.md").read_text(encoding="utf-8")
    copied = re.findall(r"^# install -m 644 (deploy/systemd/\S+) (\S+)$", page, re.M)
    assert {Path(source).name for source, _ in copied} == {
        each.name for each in (DEPLOY / "systemd").iterdir()
    }
    for source, target in copied:
        place = tmp_path / target.removeprefix("/")
        if target.endswith("/"):
            place /= Path(source).name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((REPO / source).read_bytes())
    return tmp_path


def verified(root: Path) -> str:
    """What systemd has to say of the unit."""
    program = tool("systemd-analyze")
    if not SYSTEM.is_dir():
        pytest.skip(f"this machine has no {SYSTEM}")
    there = root / str(SYSTEM).removeprefix("/")
    there.parent.mkdir(parents=True)
    there.symlink_to(SYSTEM)  # the targets and units that ours is ordered by
    done = subprocess.run(
        [program, "verify", "--man=no", "--recursive-errors=one", f"--root={root}", UNIT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "gpufence" in line]
    assert said or done.returncode == 0, done.stderr
    return "\n".join(said)


def test_systemd_finds_no_fault_in_the_unit(root: Path) -> None:
    program = root / "opt" / "gpufence-tools" / "bin" / "gpufence"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert verified(root) == ""


def test_systemd_misses_the_tools_where_they_are_elsewhere(root: Path) -> None:
    assert "/opt/gpufence-tools/bin/gpufence is not executable" in verified(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="the folders are to be root's")
def test_the_shared_folders_are_made_and_open_to_every_user(root: Path) -> None:
    ran(tool("systemd-tmpfiles"), "--create", f"--root={root}", "gpufence.conf")

    for name in ("gpufence", "gpufence-node"):
        made = (root / "run" / name).stat()
        assert (stat.S_IMODE(made.st_mode), made.st_uid, made.st_gid) == (0o1777, 0, 0)
