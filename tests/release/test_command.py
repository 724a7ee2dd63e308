"""ci/release itself: what it refuses, what it compares, which files it replaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from releasing import __main__ as command
from releasing import binaries, commit
from releasing.commit import Commit, ReleaseError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout with one file, committed in 2023."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "file").write_text("committed\n")
    person = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in
              ("NAME", "EMAIL")}  # fmt: skip
    env = {**os.environ, **person, "GIT_COMMITTER_DATE": "1700000000 +0100"}
    for words in (["init", "--quiet"], ["add", "file"], ["commit", "--quiet", "-m", "a file"]):
        subprocess.run(["git", "-C", folder, *words], env=env, check=True)
    return folder


def test_the_time_of_a_release_is_its_commits(checkout: Path) -> None:
    assert commit.of(checkout).epoch == 1_700_000_000


def test_a_release_is_what_is_committed_and_nothing_else(checkout: Path, tmp_path: Path) -> None:
    (checkout / "untracked").write_text("of this machine\n")
    assert not commit.is_changed(checkout)
    (checkout / "file").write_text("changed\n")
    assert commit.is_changed(checkout)

    commit.of(checkout).export(tmp_path / "source")

    assert [path.name for path in (tmp_path / "source").iterdir()] == ["file"]
    assert (tmp_path / "source" / "file").read_text() == "committed\n"


def test_a_folder_without_git_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"Run this in a git checkout\.$"):
        commit.of(tmp_path)


def test_changed_files_are_refused(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "file").write_text("changed\n")
    monkeypatch.setattr(command, "_CHECKOUT", checkout)
    monkeypatch.setattr("sys.argv", ["ci/release", str(checkout / "dist")])

    assert command.main() == 1
    assert capsys.readouterr().err == (
        "ci/release: files differ from the commit. Commit them, or put them aside.\n"
    )
    assert not (checkout / "dist").exists()


@pytest.mark.parametrize(("second", "status"), [(b"1", 0), (b"2", 3)])
def test_a_check_builds_twice_apart_and_tells_what_differs(
    second: bytes,
    status: int,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    works: list[Path] = []
    cached: list[bool] = []

    def make(_: Commit, work: Path, tools: binaries.Tools) -> dict[str, bytes]:
        works.append(work)
        cached.append(tools.cached)
        return {"same": b"0", "file": b"1" if len(works) == 1 else second}

    monkeypatch.setattr(command, "_CHECKOUT", checkout)
    monkeypatch.setattr(command.files, "make", make)
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("sys.argv", ["ci/release", "--check", str(checkout / "dist")])

    assert command.main() == status
    told = capsys.readouterr()
    assert len({len(str(work)) for work in works}) == 2
    assert cached == [False, False]
    assert ("differs" in told.out) == (status == 3)
    assert told.err == (
        "" if status == 0 else "ci/release: two builds differ in SHA256SUMS, file\n"
    )


def test_only_files_of_an_earlier_release_are_replaced(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    command._write(dist, {"old.whl": b"1", "SHA256SUMS": b"0" * 64 + b"  old.whl\n"})
    (dist / "mine").write_text("keep")

    command._write(dist, {"new.whl": b"2", "SHA256SUMS": b"0" * 64 + b"  new.whl\n"})

    assert sorted(path.name for path in dist.iterdir()) == ["SHA256SUMS", "mine", "new.whl"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\0GLIBC_2.18\0", "needs glibc (2, 18)"),
        (b"\0/some/work/file.cpp\0", "holds the path /some/work"),
        (b"\0/some/checkout/ci\0", "holds the path /some/checkout"),
        (b"\0GLIBC_2.17\0GLIBC_2.2.5\0", ""),
    ],
)
def test_a_binary_that_asks_or_tells_too_much_is_refused(
    content: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(content)
    if not why:
        binaries.prove([path], Path("/some/checkout"), Path("/some/work"))
        return

    with pytest.raises(ReleaseError) as error:
        binaries.prove([path], Path("/some/checkout"), Path("/some/work"))

    assert why in str(error.value)


def test_a_build_for_comparison_uses_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CCACHE_DIR", "CMAKE_C_COMPILER_LAUNCHER", "CFLAGS", "CPATH"):
        monkeypatch.setenv(name, "x")

    bare = binaries.Tools(Path("/"), cached=False).environment()
    cached = binaries.Tools(Path("/"), cached=True).environment()

    assert {"CMAKE_C_COMPILER_LAUNCHER", "CCACHE_DIR"} & set(bare) == set()
    assert {"CMAKE_C_COMPILER_LAUNCHER", "CCACHE_DIR"} <= set(cached)
    # Nothing of the caller's reaches the compiler in either case.
    assert {"CFLAGS", "CPATH"} & (set(bare) | set(cached)) == set()
