"""Some hundred ordinary commands, with and without the preload: nothing may differ.

Each line of commands.txt runs twice from the same folder, once bare and once with libgpufence.so
in front of the shell and all its children. Output, status and the files left behind must be equal.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

LINES = [
    line
    for line in (Path(__file__).parent / "commands.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
FILES = {
    "text": "the first line\na second one\n\ttabbed text here\nlast apple\n",
    "words": "pear\napple\nfig\napple\nbanana\n",
    "sorted": "apple\napricot\nbanana\n",
    "pairs": "a b\nb c\n",
    "table.csv": "ant,3\nbee,1\ncat,2\n",
    "data.json": '{"a": [1, 2.5, null]}\n',
    "calc": "2^10\nscale=3; 1/3\n",
    "macros.m4": "define(`X', `expanded')X\n",
    "rules.mk": "all:\n\t@echo made\n",
    "script.tcl": "puts [expr 6*7]\n",
    "script.cmake": 'message("from cmake")\n',
    "config": "[user]\n\tname = nobody\n",
    "program.c": '#include <stdio.h>\nint main(void) { return puts("compiled") < 0; }\n',
    "broken.c": "int main(void) { return missing; }\n",
    "folder/inner": "a\n",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """All that a command leaves: what it printed, how it ended, and its folder's files."""

    status: int
    stdout: bytes
    stderr: bytes
    files: dict[str, str]


def fill(folder: Path) -> None:
    """The folder that every command starts in; always the same bytes and times."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "blob").write_bytes(bytes(range(256)) * 16)
    (folder / "link").symlink_to("text")
    with tarfile.open(folder / "archive.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    subprocess.run(["gzip", "-nk", "text"], cwd=folder, check=True)
    for path in folder.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)


def left_behind(folder: Path) -> dict[str, str]:
    """Every file with a hash of its content, every link with its target, every mode.

    Compilers and git write their own process number or time into files; those are compared by
    what running them prints, not byte by byte.
    """
    result = {}
    for path in sorted(folder.rglob("*")):
        name, mode = str(path.relative_to(folder)), oct(path.lstat().st_mode)
        if name.startswith("repository/.git"):
            continue
        if path.is_symlink():
            result[name] = f"{mode} -> {path.readlink()}"
        elif path.is_file():
            result[name] = f"{mode} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            result[name] = mode
    return result


def trace(line: str, folder: Path, preload: Path | None) -> Trace:
    """Run one line in a fresh copy of the folder."""
    fill(folder)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Trace(done.returncode, done.stdout, without_numbers(done.stderr), left_behind(folder))


def without_numbers(stderr: bytes) -> bytes:
    """Bash and compilers name process numbers and temporary files; those differ by themselves."""
    return re.sub(rb"/tmp/cc\w+|line \d+: +\d+ |\b\d{3,}\b", b"#", stderr)


@pytest.mark.parametrize("line", LINES)
def test_a_command_does_not_notice_the_preload(line: str, build: Path, tmp_path: Path) -> None:
    tool = line.split()[0]
    if not tool.startswith("does-not-exist") and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    folder = tmp_path / "folder"

    bare = trace(line, folder, None)
    preloaded = trace(line, folder, build / "lib" / "libgpufence.so")

    assert preloaded == bare


def test_the_list_is_worth_its_name() -> None:
    installed = [line for line in LINES if shutil.which(line.split()[0])]

    assert len(LINES) == len(set(LINES)) >= 200
    assert len(installed) >= 100


def test_a_difference_would_be_seen(build: Path, tmp_path: Path) -> None:
    # The library's own trace goes to stderr: the comparison above must be able to fail.
    folder = tmp_path / "folder"
    bare = trace("python3 -c 'import ctypes; ctypes.CDLL(None).cuInit'", folder, None)
    line = "GPUFENCE_LOG_LEVEL=trace python3 -c 'import ctypes; ctypes.CDLL(None).cuInit'"

    assert trace(line, folder, build / "lib" / "libgpufence.so") != bare
