"""`gpufence install`: whole files by renames, the preload file last, no program left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gpufence import cli
from gpufence.commands import install

REPO = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build")).resolve()
NAMES = ["ld.so.preload", "ld.so.preload.addpath", "libgpufence-addpath.so", "libgpufence.so"]


@pytest.fixture
def library() -> Path:
    path = BUILD / "lib" / "libgpufence.so"
    if not path.with_name("libgpufence-addpath.so").is_file() or not path.is_file():
        pytest.skip(f"{BUILD} holds no build: run ci/build first")
    return path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert cli.main(["install", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_four_files_for_everybody_whatever_the_umask(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "opt" / "gpufence"
    before = os.umask(0o077)
    try:
        lines = told(capsys, str(folder), "--lib", str(library))
    finally:
        os.umask(before)

    assert sorted(lines) == [f"installed  {folder / name}" for name in NAMES]
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o755
    assert (folder / "libgpufence.so").read_bytes() == library.read_bytes()


def test_what_is_there_already_is_left_alone(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (str(tmp_path / "f"), "--lib", str(library), "--preload", str(tmp_path / "preload"))
    told(capsys, *words)
    numbers = {path: path.stat().st_ino for path in (tmp_path / "f").iterdir()}

    assert told(capsys, *words) == ["nothing to change"]
    assert {path: path.stat().st_ino for path in (tmp_path / "f").iterdir()} == numbers


def test_running_programs_keep_the_file_they_mapped(library: Path, tmp_path: Path) -> None:
    install.install(tmp_path, str(library), None)
    mapped = (tmp_path / "libgpufence.so").open("rb")
    newer = tmp_path / "newer"
    newer.mkdir()
    shutil.copy(library.with_name("libgpufence-addpath.so"), newer)
    (newer / "libgpufence.so").write_bytes(library.read_bytes() + b"newer")

    install.install(tmp_path, str(newer / "libgpufence.so"), None)

    assert mapped.read() == library.read_bytes()
    assert (tmp_path / "libgpufence.so").read_bytes().endswith(b"newer")


def test_preload_file_keeps_what_others_wrote(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preload = tmp_path / "preload"
    preload.write_text("/usr/lib/other.so /usr/lib/more.so\n")
    folder = str(tmp_path / "f")
    words = (folder, "--lib", str(library), "--preload", str(preload))

    told(capsys, *words)

    assert preload.read_text() == f"/usr/lib/other.so /usr/lib/more.so\n{folder}/libgpufence.so\n"
    assert preload.stat().st_mode & 0o777 == 0o644
    told(capsys, *words, "--remove")
    assert preload.read_text() == "/usr/lib/other.so /usr/lib/more.so\n"
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("/f/libgpufence.so\n", None),
        ("/f/libgpufence.so:/o.so\n", "/o.so\n"),
        ("/o.so /f/libgpufence.so /p.so\n", "/o.so /p.so\n"),
        ("/o.so # /f/libgpufence.so\n", "/o.so # /f/libgpufence.so\n"),
        ("/other/f/libgpufence.so\n", "/other/f/libgpufence.so\n"),
    ],
)
def test_only_our_word_leaves_the_preload_file(line: str, left: str | None, tmp_path: Path) -> None:
    preload = tmp_path / "preload"
    preload.write_text(line)

    install.remove(Path("/f"), preload)

    assert (preload.read_text() if preload.exists() else None) == left


def test_preload_file_never_names_a_library_that_is_not_there(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, preload = tmp_path / "f", tmp_path / "preload"
    named_while_missing: list[str] = []

    def watched(act: Callable[..., object]) -> Callable[..., object]:
        def watch(*words: object, **options: object) -> object:
            done = act(*words, **options)
            if preload.exists() and not (folder / "libgpufence.so").exists():
                named_while_missing.append(act.__name__)
            return done

        return watch

    monkeypatch.setattr(os, "replace", watched(os.replace))
    monkeypatch.setattr(Path, "unlink", watched(Path.unlink))

    install.install(folder, str(library), preload)
    assert preload.exists()
    install.remove(folder, preload)

    assert not preload.exists()
    assert named_while_missing == []


def test_folder_that_cannot_be_written_is_one_line(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")

    status = cli.main(["install", str(tmp_path / "file"), "--lib", str(library)])

    said = capsys.readouterr().err
    assert status == 1
    assert said.count("\n") == 1
    assert "cannot be changed" in said


def test_folder_that_the_loader_cannot_name_is_refused(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["install", str(tmp_path / "a b"), "--lib", str(library)]) == 2
    assert "its path has a space" in capsys.readouterr().err
    assert not (tmp_path / "a b").exists()


def versions(library: Path, folder: Path) -> Path:
    """Two libraries that differ, each with its second library beside it."""
    for name in ("1", "2"):
        target = folder / name
        target.mkdir(parents=True)
        shutil.copy(library.with_name("libgpufence-addpath.so"), target)
        (target / "libgpufence.so").write_bytes(library.read_bytes() + name.encode())
    return folder


def storm(tmp_path: Path, library: Path, preload: str, *before: str) -> dict[str, object]:
    """What install_storm.py saw."""
    program = Path(__file__).with_name("install_storm.py")
    words = [sys.executable, program, tmp_path / "f", versions(library, tmp_path / "v"), preload]
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}
    env.pop("LD_PRELOAD", None)
    done = subprocess.run([*before, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_no_program_starts_without_the_library_while_it_is_replaced(
    library: Path, tmp_path: Path
) -> None:
    seen = storm(tmp_path, library, "")

    assert int(str(seen.pop("started"))) > 0
    assert seen == {"unlimited": 0, "complaints": []}


def test_every_program_of_a_system_is_fenced_from_the_preload_file_on(
    library: Path, tmp_path: Path
) -> None:
    """In a mount namespace with an /etc of its own: this machine's is not touched."""
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True, ignore_dangling_symlinks=True)
    own_etc = f'mount --bind {tmp_path}/etc /etc && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", own_etc, "sh")
    if subprocess.run([*before, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot have a mount namespace of its own")

    seen = storm(tmp_path, library, "/etc/ld.so.preload", *before)

    assert int(str(seen.pop("started"))) > 0
    assert seen == {"unlimited": 0, "complaints": []}
