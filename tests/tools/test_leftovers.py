"""What is removed of unnamed containers that ended, and what stays: over files alone.

That no program ever loses a file that it is about to join is the business of tests/state.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpufence.container import leftovers
from gpufence.state import limits_file
from gpufence.state import shared_layout as layout

from .region_files import FOREIGN, RegionFile, TimeFile, own_namespace, start_ticks, this_process

REPO = Path(__file__).resolve().parents[2]
HOUR = 3600.0
DAY = 24 * HOUR

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


def name_of(pid: int, ticks: int, namespace: int | None = None) -> str:
    """An unnamed container of that command; here, unless a namespace is given."""
    return f"run-{pid}-{ticks:x}-{own_namespace() if namespace is None else namespace:x}-00ff"


def ended() -> str:
    """The container of a command that ended: this process's number, of an earlier one."""
    return name_of(os.getpid(), start_ticks(os.getpid()) - 1)


def leave(folder: Path, name: str) -> list[str]:
    """Files of every kind, with nobody in them; their names."""
    with RegionFile(folder, name) as region, TimeFile(folder, name) as core:
        for path in (region.path, core.path):
            path.chmod(0o666)  # whatever the umask
    limits = limits_file.prepare((folder,), name)
    limits_file.history_of(limits).write_text("{}\n", encoding="utf-8")
    return names(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    for path in folder.iterdir():
        os.utime(path, (then, then))


@contextmanager
def locked(path: Path, byte: int, kind: int = fcntl.F_RDLCK) -> Iterator[None]:
    with path.open("r+b") as file:
        lock = struct.pack("hhqqi4x", kind, os.SEEK_SET, layout.LOCK_BASE + byte, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        yield


def test_what_an_ended_command_left_is_removed(tmp_path: Path) -> None:
    left = leave(tmp_path, ended())

    leftovers.sweep([tmp_path / "absent", tmp_path])

    assert len(left) == 4
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "web",
        "run-web",
        "run-7",
        "running",
        f"run-{'0' * 16}",
        "run-7-a-b-00ff0",
        "x-run-7-a-b-00ff",
    ],
)
def test_containers_with_a_name_stay_for_ever(tmp_path: Path, name: str) -> None:
    left = leave(tmp_path, name)
    age(tmp_path, 1000 * DAY)

    leftovers.sweep([tmp_path])

    assert names(tmp_path) == left


def test_a_living_command_keeps_its_files_though_nobody_uses_them(tmp_path: Path) -> None:
    left = leave(tmp_path, leftovers.new_name())
    age(tmp_path, 1000 * DAY)

    leftovers.sweep([tmp_path])

    assert names(tmp_path) == left


def test_a_new_name_is_this_processs_and_new(tmp_path: Path) -> None:
    pid = os.getpid()
    first, second = leftovers.new_name(), leftovers.new_name()

    start = f"run-{pid}-{start_ticks(pid):x}-{own_namespace():x}-"
    assert first.startswith(start)
    assert second.startswith(start)
    assert first != second


@pytest.mark.parametrize("kind", [RegionFile, TimeFile])
@pytest.mark.parametrize("byte", [0, 4095, 4096, 0xFFFFFFFF])
def test_one_place_that_is_taken_keeps_all_files(
    tmp_path: Path, kind: type[RegionFile] | type[TimeFile], byte: int
) -> None:
    # A slot, the last one, what is zeroed, and somebody who is coming.
    left = leave(tmp_path, ended())
    with kind(tmp_path, ended()) as file, locked(file.path, byte):
        leftovers.sweep([tmp_path])

        assert names(tmp_path) == left


@pytest.mark.parametrize("kind", [RegionFile, TimeFile])
def test_a_process_of_any_namespace_keeps_them(
    tmp_path: Path, kind: type[RegionFile] | type[TimeFile]
) -> None:
    left = leave(tmp_path, ended())
    with RegionFile(tmp_path, ended()) as region:
        region.process(3, this_process())

        leftovers.sweep([tmp_path])

        assert names(tmp_path) == left


@pytest.mark.parametrize(
    ("seconds", "gone"),
    [
        (HOUR - 60, set()),
        (HOUR + 60, {"shared"}),
        (29 * DAY, {"shared"}),
        (31 * DAY, {"shared", "set"}),
    ],
)
def test_a_command_that_nobody_can_ask_for_keeps_them_for_a_while(
    tmp_path: Path, seconds: float, gone: set[str]
) -> None:
    left = leave(tmp_path, name_of(7, 1, namespace=FOREIGN))
    age(tmp_path, seconds)

    leftovers.sweep([tmp_path])

    removed = set(left) - set(names(tmp_path))
    assert {"set" if ".limits" in name else "shared" for name in removed} == gone
    assert len(removed) == 2 * len(gone)


def test_a_draft_goes_once_it_has_no_maker(tmp_path: Path) -> None:
    draft = tmp_path / f"gpufence-{ended()}.v4.f0000001-7.new"
    draft.touch()
    leftovers.sweep([tmp_path])
    assert draft.exists()
    age(tmp_path, HOUR + 60)

    leftovers.sweep([tmp_path])

    assert not draft.exists()


@pytest.mark.parametrize("planted", ["link", "pipe", "folder"])
def test_what_is_no_file_is_left_alone(tmp_path: Path, planted: str) -> None:
    place = tmp_path / "state"
    place.mkdir()
    path = place / f"gpufence-{ended()}.v4"
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    {"link": lambda: path.symlink_to(target), "pipe": lambda: os.mkfifo(path),
     "folder": path.mkdir}[planted]()  # fmt: skip

    leftovers.sweep([place])

    assert os.path.lexists(path)
    assert target.read_bytes() == b"kept"


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
def test_a_killed_sweep_leaves_what_the_next_one_finds(tmp_path: Path, killed_at: int) -> None:
    # Dies as it is about to remove that file; the region is the last one.
    left = leave(tmp_path, ended())
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from gpufence.container import leftovers\n"
        "remove, done = Path.unlink, []\n"
        "def unlink(path):\n"
        "    done.append(path)\n"
        "    len(done) < int(sys.argv[2]) or os.kill(os.getpid(), signal.SIGKILL)\n"
        "    remove(path)\n"
        "Path.unlink = unlink\n"
        "leftovers.sweep([Path(sys.argv[1])])"
    )
    environment = {"PYTHONPATH": str(REPO / "tools")}

    command = [sys.executable, "-c", code, str(tmp_path), str(killed_at)]

    killed = subprocess.run(command, env=environment, check=False)
    between = names(tmp_path)
    leftovers.sweep([tmp_path])

    assert killed.returncode < 0
    assert len(between) == len(left) - killed_at + 1
    assert any(name.endswith(f".v{layout.REGION_VERSION}") for name in between)
    assert names(tmp_path) == []


@needs_root
def test_another_users_files_are_left_to_that_user_and_to_root(tmp_path: Path) -> None:
    left = leave(tmp_path, ended())
    tmp_path.chmod(0o777)  # not even where the folder would allow it
    other = 65534
    code = (
        "import os, sys; from pathlib import Path; from gpufence.container import leftovers; "
        "os.setgroups([]); user = int(sys.argv[1]); os.setgid(user); os.setuid(user); "
        "leftovers.sweep([Path()])"
    )

    def sweep_as(user: int) -> list[str]:
        command = [sys.executable, "-c", code, str(user)]
        environment = {"PYTHONPATH": str(REPO / "tools")}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        return names(tmp_path)

    assert sweep_as(other) == left
    os.chown(tmp_path / left[0], other, other)
    assert sweep_as(other) == left
    for name in left:
        os.chown(tmp_path / name, other, other)
    assert sweep_as(other) == []
    leave(tmp_path, ended())
    for name in left:
        os.chown(tmp_path / name, other, other)
    assert sweep_as(0) == []


def test_a_file_that_came_in_its_place_meanwhile_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another sweep was faster, and somebody has joined since.
    with RegionFile(tmp_path, ended()):
        pass
    lock = fcntl.fcntl
    newcomers: list[RegionFile] = []

    def late(fd: int, command: int, argument: bytes) -> object:
        (tmp_path / names(tmp_path)[0]).unlink()
        newcomers.append(RegionFile(tmp_path, ended()))
        return lock(fd, command, argument)

    monkeypatch.setattr(leftovers.fcntl, "fcntl", late)
    leftovers.sweep([tmp_path])

    (newcomer,) = newcomers
    assert newcomer.path.stat().st_ino == os.fstat(newcomer.fd).st_ino


def test_a_folder_that_nothing_can_be_written_in_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = leave(tmp_path, ended())
    refused = OSError(30, "Read-only file system")

    def unlink(path: Path) -> None:
        raise refused

    monkeypatch.setattr(Path, "unlink", unlink)

    leftovers.sweep([tmp_path])

    assert names(tmp_path) == left
