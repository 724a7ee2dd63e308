"""The node folder is everybody's: whatever lies there, and whoever writes there, stops nobody.

Each container writes a file of its own and reads the others'; what is no sound notice of this
library's version is as if it were not there. The protocol alone: tests/gputime/notice_steps.cpp.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpufence.state import notices
from gpufence.state import shared_layout as layout

from tests.state.test_state import run
from tests.support.machine import Sim

from .test_turns_failures import only_line, read_only
from .turn_workers import Workers, workers

SHARE = 40
BURST_MS = 10
UNPAID_MS = 6
ROUNDS = 40
STRANGER = 0x5EED


@pytest.fixture
def scene(sim: Sim, tmp_path: Path) -> Iterator[Workers]:
    """Workers over a private machine."""
    with workers(sim, tmp_path) as made:
        yield made


@pytest.mark.parametrize("case", ["publish", "damaged", "own_file", "cost"])
def test_a_notice_keeps_its_promise_at_every_system_call(build: Path, case: str) -> None:
    run(build / "tests" / "notice_steps", case, timeout=120)


def assert_held(scene: Workers, number: int) -> None:
    """The worker had no more than its share."""
    most_ms = SHARE / 100 * scene.elapsed_ms() + BURST_MS + UNPAID_MS
    assert scene.busy_ms([number]) <= most_ms


def renamed(notice: Path, version: int | None = None, author: int = STRANGER) -> Path:
    """Another author's name beside a notice, and perhaps of another version."""
    prefix, clock, device, _ = notice.name.rsplit("-", 3)
    if version is not None:
        prefix = f"gpufence-turns{version}"
    return notice.with_name(f"{prefix}-{clock}-{device}-{author:016x}")


def as_living(path: Path, content: bytes) -> int:
    """The file with that content, held by a lock as one that a container uses; its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.fchmod(fd, 0o644)
    os.pwrite(fd, content, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 1, 0))
    return fd


def usurping(content: bytes, magic: int = layout.NOTICE_MAGIC) -> bytes:
    """A sound notice of the stranger's who has the turn for ever, but for its magic."""
    words = [word for (word,) in struct.iter_unpack("<Q", content)]
    words[0:2] = [magic, STRANGER]
    words[3:5] = [(1 << 52), STRANGER]  # the latest turn is its own
    raw = struct.pack(f"<{len(words)}Q", *words)
    return raw[:-8] + struct.pack("<Q", notices.check_of(raw))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
@pytest.mark.parametrize("alive", [True, False])
def test_notices_of_other_versions_are_let_be(scene: Workers, version: int, alive: bool) -> None:
    scene.start(0, scene.env("a", SHARE))
    scene.await_progress([0])
    (own,) = scene.notices()
    other = renamed(own, layout.NOTICE_VERSION + 1 if version == layout.NOTICE_VERSION else version)
    content = usurping(own.read_bytes())
    fd = as_living(other, content)
    if not alive:
        os.close(fd)
    scene.start(1, scene.env("b", SHARE))
    scene.await_progress([0, 1], least=100)

    said = scene.finish()

    assert said == {0: "", 1: ""}
    assert other.read_bytes() == content
    if alive:
        os.close(fd)


def test_a_living_notice_with_another_magic_is_not_believed(scene: Workers) -> None:
    scene.start(0, scene.env("a", SHARE))
    scene.await_progress([0])
    (own,) = scene.notices()
    fd = as_living(renamed(own), usurping(own.read_bytes(), layout.NOTICE_MAGIC + 1))
    scene.start(1, scene.env("b", SHARE))
    scene.await_progress([0, 1], least=100)

    said = scene.finish()

    os.close(fd)
    assert said == {0: "", 1: ""}


def other_library(build: Path, folder: Path) -> Path:
    """A build whose notices have other names, as those of another version do."""
    made = folder / "other"
    (made / "lib").mkdir(parents=True)
    library = (build / "lib" / "libgpufence.so").read_bytes()
    assert library.count(b"gpufence-turns%u-") == 1
    library = library.replace(b"gpufence-turns%u-", b"gpufence-turnz%u-")
    (made / "lib" / "libgpufence.so").write_bytes(library)
    for each in build.iterdir():
        if each.name != "lib":
            (made / each.name).symlink_to(each)
    return made


def test_two_versions_of_the_library_share_a_folder(
    sim: Sim, scene: Workers, tmp_path: Path
) -> None:
    other = Sim(other_library(sim.build, tmp_path), sim.state, sim.env, sim.latest)
    scene.start(0, scene.env("new", SHARE))
    scene.sim = other
    scene.start(1, scene.env("old", SHARE))
    scene.await_progress([0, 1], least=100)
    first = sorted(path.name for path in scene.node.iterdir())
    scene.kill(1)
    scene.start(1, scene.env("old", SHARE))
    scene.await_progress([0, 1], least=100)

    said = scene.finish()

    assert said == {0: "", 1: ""}
    assert sum(name.startswith("gpufence-turns") for name in first) == 1
    assert sum(name.startswith("gpufence-turnz") for name in first) == 1
    for number in (0, 1):
        assert_held(scene, number)


def nothing(path: Path, _: bytes) -> None:
    path.write_bytes(b"")


def cut(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[:-1])


def noise(path: Path, sound: bytes) -> None:
    path.write_bytes(random.Random(5).randbytes(len(sound)))


def longer(path: Path, sound: bytes) -> None:
    path.write_bytes(sound + b"\0")


def huge(path: Path, sound: bytes) -> None:
    path.write_bytes(sound)
    os.truncate(path, 1 << 42)


def endless(path: Path, _: bytes) -> None:
    path.symlink_to("/dev/zero")


def to_another(path: Path, sound: bytes) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(sound)
    path.symlink_to(elsewhere)


def circle(path: Path, _: bytes) -> None:
    path.symlink_to(path)


def pipe(path: Path, _: bytes) -> None:
    os.mkfifo(path, 0o644)


def folder(path: Path, _: bytes) -> None:
    path.mkdir(mode=0o755)


def anybodys(path: Path, sound: bytes) -> None:
    path.write_bytes(sound)
    path.chmod(0o666)


def shut(path: Path, sound: bytes) -> None:
    path.write_bytes(sound)
    path.chmod(0)


HOSTILE: list[Callable[[Path, bytes], None]] = [
    nothing, cut, noise, longer, huge, endless, to_another, circle, pipe, folder, anybodys, shut,
]  # fmt: skip


def plant(node: Path, like: Path, sound: bytes) -> dict[str, int]:
    """One of each kind under a notice's name; the kind of file that lies under each name."""
    for author, make in enumerate(HOSTILE, 0x100):
        make(renamed(like, author=author), usurping(sound))
    return {path.name: path.lstat().st_mode for path in node.iterdir()}


@pytest.fixture
def sample(scene: Workers) -> tuple[Path, bytes]:
    """The name of a container's notice that is no more, and what stood there."""
    scene.start(9, scene.env("sample", SHARE))
    scene.await_progress([9])
    (path,) = scene.notices()
    content = path.read_bytes()
    scene.kill(9)
    shutil.rmtree(scene.node)
    scene.node.mkdir()
    return path, content


def test_what_is_no_notice_stops_nobody(scene: Workers, sample: tuple[Path, bytes]) -> None:
    planted = plant(scene.node, *sample)
    scene.start(0, scene.env("a", SHARE))
    scene.start(1, scene.env("b", SHARE))
    scene.await_progress([0, 1], least=100)
    shown = list(notices.read_all({}, str(scene.node)))

    said = scene.finish()

    assert said == {0: "", 1: ""}
    assert len([each for each in shown if each.alive]) == 2
    for number in (0, 1):
        assert_held(scene, number)
    # What has a notice's length and nobody's lock is taken for one of the dead.
    planted.pop(renamed(sample[0], author=0x100 + HOSTILE.index(noise)).name)
    left = {path.name: path.lstat().st_mode for path in scene.node.iterdir()}
    assert {name: left.get(name) for name in planted} == planted


def test_what_is_no_notice_stops_nobody_where_nobody_may_write(
    scene: Workers, sample: tuple[Path, bytes]
) -> None:
    plant(scene.node, *sample)
    with read_only(scene.node):
        scene.start(0, scene.env("a", SHARE))
        scene.start(1, scene.env("a", SHARE))
        scene.await_progress([0, 1], least=100)
        said = scene.finish()

    for number in (0, 1):
        assert f"GPUFENCE_NODE_DIR='{scene.node}' is not used" in only_line(said[number])
    busy_ms = scene.busy_ms([0, 1])
    assert busy_ms <= SHARE / 100 * scene.elapsed_ms() + BURST_MS + UNPAID_MS


def test_who_writes_anything_into_the_folder_stops_nobody(scene: Workers) -> None:
    chance = random.Random(7)
    for number, container in enumerate("abc"):
        scene.start(number, scene.env(container, 30))
    scene.await_progress([0, 1, 2])
    sound = scene.notices()[0].read_bytes()
    stranger = renamed(scene.notices()[0])
    for _ in range(ROUNDS):
        for path in [*scene.notices(), stranger]:
            if chance.random() < 0.3:
                continue
            make = chance.choice([*HOSTILE, None, None])
            aside = path.with_name(f"new-{path.name}")
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            if make is None:
                path.unlink(missing_ok=True)
                continue
            try:
                make(aside, usurping(sound))
                aside.rename(path)
            except OSError:
                shutil.rmtree(aside, ignore_errors=True)
                aside.unlink(missing_ok=True)
        scene.await_progress([0, 1, 2], least=2)

    said = scene.finish()

    assert said == {0: "", 1: "", 2: ""}
