"""`gpufence set` and `status` over files alone: what is written, refused, kept and shown.

What running programs make of it is the business of tests/config/test_live_limits.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpufence.commands import set as set_command
from gpufence.config.terms import Priority, Terms
from gpufence.container import containers
from gpufence.errors import ToolError
from gpufence.state import limits_bytes, limits_file
from gpufence.state import shared_layout as layout
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from . import warm_commands

GIB = 1 << 30
UUID = "GPU-22222222-2222-2222-2222-222222222222"
NAME = "web"

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder with one container that `gpufence run` prepared."""
    place = tmp_path / "state"
    limits_file.prepare((place,), NAME)
    return place


def gpufence(
    folder: Path, *words: str | Path, code: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command; `code` runs before it in the same interpreter."""
    start = "import sys; from gpufence.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = [*map(str, words), "--state-dir", str(folder)]
    return subprocess.run(
        [sys.executable, "-c", f"{code}\n{start}", *arguments],
        env={**warm_commands.BARE, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def entries(folder: Path) -> dict[bytes, Amounts]:
    """What the limits file holds."""
    held = limits_file.read(limits_file.path_of(folder, NAME), os.getuid())
    assert held is not None
    return dict(held.entries)


def said(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The one line of a failure."""
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


# ---- what is set ----


def test_limits_are_written_as_they_were_asked_for(folder: Path) -> None:
    done = gpufence(folder, "set", NAME, "--memory", "6g", "--cores", "40", "--soft-cores", "80")

    assert done.returncode == 0, done.stderr
    assert entries(folder) == {EVERY_GPU: Amounts(6 * GIB, False, 40_000, 80_000)}
    assert done.stdout.splitlines() == [
        "web: every GPU: memory 6 GiB (was not set)",
        "web: every GPU: cores 40 % (was not set)",
        "web: every GPU: soft cores 80 % (was not set)",
    ]


def test_what_is_not_named_stays(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--memory", "6g", "--cores", "40")
    gpufence(folder, "set", NAME, "--cores", "50")

    assert entries(folder) == {EVERY_GPU: Amounts(memory=6 * GIB, cores=50_000)}


def test_a_limit_for_every_gpu_replaces_those_of_single_ones(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--memory", "1g", "--cores", "20", "--gpu", UUID)
    gpufence(folder, "set", NAME, "--memory", "50%")

    assert entries(folder) == {
        EVERY_GPU: Amounts(memory=50 * 10**9, memory_is_part=True),
        bytes([0x22] * 16): Amounts(cores=20_000),
    }


def test_terms_are_the_containers_and_stay_beside_limits(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--memory", "1g", "--gpu", UUID)
    done = gpufence(
        folder, "set", NAME, "--priority", "low", "--weight", "7", "--core-burst", "1.5s",
        "--core-floor", "0",
    )  # fmt: skip
    gpufence(folder, "set", NAME, "--cores", "30", "--weight", "9")

    terms = Terms(Priority.LOW, 9, 1_500_000_000, 0)
    assert entries(folder) == {
        EVERY_GPU: Amounts(cores=30_000, terms=terms),
        bytes([0x22] * 16): Amounts(memory=GIB),
    }
    assert done.stdout.splitlines() == [
        "web: every GPU: priority low (was not set)",
        "web: every GPU: weight 7 (was not set)",
        "web: every GPU: burst 1500 ms (was not set)",
        "web: every GPU: floor 0 % (was not set)",
    ]
    shown = gpufence(folder, "status", NAME)
    assert (
        "set for all: cores 30 %, priority low, weight 9, burst 1500 ms, floor 0 %" in shown.stdout
    )
    told = json.loads(gpufence(folder, "status", NAME, "--json").stdout)
    assert told["containers"][0]["set"]["all"] == {
        "cores_millipercent": 30_000, "priority": "low", "weight": 9,
        "core_burst_ns": 1_500_000_000, "core_floor_millipercent": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("--priority", "first"), 4, "--priority 'first' refused: it is not a priority."),
        (("--weight", "0"), 4, "--weight '0' refused: it is not a weight."),
        (("--core-burst", "20"), 4, "--core-burst '20' refused: it is not a duration."),
        (("--core-floor", "101"), 4, "--core-floor '101' refused: it is not a percentage."),
        (("--weight", "2", "--gpu", UUID), 2, "--gpu beside --weight: that holds on every GPU."),
        (("--weight", "2", "--reset"), 2, "--reset: it stands beside --weight."),
    ],
)
def test_a_term_that_cannot_be_set_is_one_line(
    folder: Path, words: tuple[str, ...], status: int, text: str
) -> None:
    assert text in said(gpufence(folder, "set", NAME, *words), status)
    assert entries(folder) == {}


@pytest.mark.parametrize("frozen", [False, True])
def test_a_reset_takes_terms_back_and_leaves_a_frozen_container_frozen(frozen: bool) -> None:
    before = {EVERY_GPU: Amounts(memory=1, terms=Terms(weight=3), frozen=frozen)}

    after = set_command.edited(before, EVERY_GPU, Amounts(), reset=True)

    assert after == {EVERY_GPU: Amounts(frozen=frozen)}


def test_every_term_comes_back_as_it_was_written() -> None:
    frozen = Amounts(cores=5, terms=Terms(Priority.HIGH, 10_000, 10**10, 100_000), frozen=True)
    for own in (Amounts(frozen=True), Amounts(terms=Terms(Priority.NORMAL)), frozen):
        entries_ = {EVERY_GPU: own, bytes([0x22] * 16): Amounts(memory=3)}

        assert limits_bytes.current(limits_bytes.image(NAME, 4, entries_)) == (4, entries_)


@pytest.mark.parametrize("gpu", [(), ("--gpu", UUID)])
def test_a_reset_takes_back(folder: Path, gpu: tuple[str, ...]) -> None:
    gpufence(folder, "set", NAME, "--memory", "1g", "--gpu", UUID)
    gpufence(folder, "set", NAME, "--cores", "30")

    assert gpufence(folder, "set", NAME, "--reset", *gpu).returncode == 0

    assert entries(folder) == ({EVERY_GPU: Amounts(cores=30_000)} if gpu else {})


def test_a_dry_run_changes_nothing(folder: Path) -> None:
    before = limits_file.path_of(folder, NAME).read_bytes()

    done = gpufence(folder, "set", NAME, "--memory", "1g", "--dry-run", "--json")

    assert json.loads(done.stdout)["new"] == {"all": {"memory_bytes": GIB}}
    assert limits_file.path_of(folder, NAME).read_bytes() == before
    assert [path.name for path in folder.iterdir()] == [f"gpufence-{NAME}.limits3"]


def test_a_variable_stands_for_a_flag_and_the_flag_wins(folder: Path) -> None:
    gpufence(folder, "set", NAME, GPUFENCE_SET_MEMORY="2g", GPUFENCE_SET_CORES="30")
    assert entries(folder) == {EVERY_GPU: Amounts(memory=2 * GIB, cores=30_000)}

    gpufence(folder, "set", NAME, "--memory", "3g", GPUFENCE_SET_MEMORY="2g")
    assert entries(folder)[EVERY_GPU].memory == 3 * GIB


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("set", NAME), 2, "no limit was given"),
        (("set",), 2, "required: NAME"),
        (("set", NAME, "--bogus"), 2, "unrecognized arguments"),
        (("set", NAME, "--memory", "10GBB"), 4, "unknown unit"),
        # Python 3.14 takes the word for a number, and before it for an option.
        (
            ("set", NAME, "--memory", "-1g"),
            *((4, "is negative") if sys.version_info >= (3, 14) else (2, "expected one argument")),
        ),
        (("set", NAME, "--memory=-1g"), 4, "negative"),
        (("set", NAME, "--memory", ""), 4, "Write"),
        (("set", NAME, "--cores", "101"), 4, "above 100"),
        (("set", NAME, "--soft-cores", "half"), 4, "Write"),
        (("set", NAME, "--reset", "--cores", "1"), 2, "beside --cores"),
        (("set", NAME, "--gpu", "first", "--cores", "1"), 2, "neither an index nor a UUID"),
        (("set", NAME, "--gpu", "0", "--cores", "1"), 1, "has no GPU 0"),
        (("set", NAME, "--oversubscribe", "2"), 2, "gpufence run"),
        (("set", "other", "--cores", "1"), 1, "no container 'other'"),
        (("status", "other"), 1, "no container 'other'"),
        (("status", "--history"), 2, "status NAME --history"),
    ],
)
def test_wrong_input_is_one_line_and_the_agreed_status(
    folder: Path, words: tuple[str, ...], status: int, reason: str
) -> None:
    assert reason in said(gpufence(folder, *words), status)


def test_a_unique_beginning_is_a_name_and_others_are_not(folder: Path) -> None:
    limits_file.prepare((folder,), "worker-1")
    limits_file.prepare((folder,), "worker-2")

    assert gpufence(folder, "set", "we", "--cores", "1").returncode == 0
    assert "is ambiguous" in said(gpufence(folder, "set", "work", "--cores", "1"), 1)


@pytest.mark.parametrize("given", ["job 1", "a/b", ".hidden", "x" * 80, "é"])
def test_odd_names_are_reduced_as_the_library_does(folder: Path, given: str) -> None:
    limits_file.prepare((folder,), containers.reduced(given))

    assert gpufence(folder, "set", given, "--cores", "1").returncode == 0


# ---- who may ----


@pytest.mark.parametrize(("uid", "may"), [(0, True), (12345, True), (12346, False)])
def test_only_the_owner_and_root_may(
    folder: Path, monkeypatch: pytest.MonkeyPatch, uid: int, may: bool
) -> None:
    container = containers.Container(NAME, None, limits_file.path_of(folder, NAME), 12345)
    monkeypatch.setattr(os, "geteuid", lambda: uid)

    if may:
        set_command.check_owner(container)
        return
    with pytest.raises(ToolError, match="user 12345's"):
        set_command.check_owner(container)


@needs_root
def test_what_root_sets_is_roots_until_it_is_taken_back(folder: Path) -> None:
    path = limits_file.path_of(folder, NAME)
    region = folder / f"gpufence-{NAME}.v{layout.REGION_VERSION}"
    region.write_bytes(
        layout.REGION_MAGIC.to_bytes(8, "little")
        + layout.REGION_VERSION.to_bytes(4, "little")
        + layout.MAX_PROCESSES.to_bytes(4, "little")
        + layout.MAX_DEVICES.to_bytes(4, "little")
    )
    os.truncate(region, layout.structure("Region").bytes)
    os.chown(region, 12345, -1)
    os.chown(path, 12345, -1)

    assert gpufence(folder, "set", NAME, "--cores", "9").returncode == 0
    assert path.stat().st_uid == 0
    assert gpufence(folder, "set", NAME, "--reset").returncode == 0
    assert path.stat().st_uid == 12345


@needs_root
def test_a_read_only_folder_is_one_line(folder: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        assert "no container" in said(gpufence(folder, "set", NAME, "--cores", "9"), 1)
    finally:
        subprocess.run(["umount", folder], check=True)


# ---- a writer that is killed, and others that write ----

# Before the n-th of these calls the command kills itself, as if by anybody else.
KILLER = """
import os, signal
left = [{steps}]
def stepped(call):
    def step(*words, **named):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*words, **named)
    return step
for name in ("pwrite", "write", "open", "link", "unlink", "rename", "fchmod", "fchown", "close"):
    setattr(os, name, stepped(getattr(os, name)))
"""


def test_a_writer_killed_at_any_step_leaves_old_or_new_limits(folder: Path) -> None:
    old = {EVERY_GPU: Amounts(memory=GIB, cores=10_000)}
    new = {EVERY_GPU: Amounts(memory=2 * GIB, cores=20_000)}
    seen = []
    for steps in range(200):
        gpufence(folder, "set", NAME, "--memory", "1g", "--cores", "10")
        assert entries(folder) == old

        words = ("set", NAME, "--memory", "2g", "--cores", "20")
        done = gpufence(folder, *words, code=KILLER.format(steps=steps))

        held = entries(folder)
        assert held in (old, new)
        seen.append(held == new)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL

    assert seen == sorted(seen), "once the new limits held, the old ones came back"
    assert True in seen
    assert False in seen


def test_a_bank_is_current_only_when_it_is_whole(folder: Path) -> None:
    path = limits_file.path_of(folder, NAME)
    gpufence(folder, "set", NAME, "--memory", "1g")
    content = path.read_bytes()
    found = limits_bytes.current(content)
    assert found is not None
    generation = found[0] + 1
    bank = limits_bytes.pack_bank(generation, {EVERY_GPU: Amounts(memory=7)})
    start = limits_bytes.bank_at(generation)

    for length in range(len(bank) + 1):
        torn = content[:start] + bank[:length] + content[start + length :]
        assert limits_bytes.current(torn) == found, length

    whole = bytearray(torn)
    whole[limits_bytes.GENERATION_AT] = generation
    assert limits_bytes.current(bytes(whole)) == (generation, {EVERY_GPU: Amounts(memory=7)})


def test_writers_do_not_lose_each_others_changes(folder: Path) -> None:
    uuids = [f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(1, 9)]
    # Between reading and writing each takes its time, so that all of them are there at once.
    slow = (
        "import sys, time\nfrom gpufence.container import changes\nfrom gpufence.cli import main\n"
        "append = changes.append\n"
        "changes.append = lambda *words: (append(*words), time.sleep(0.2))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ("set", NAME, "--cores", "5")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", slow, *words, "--gpu", uuid, "--state-dir", str(folder)],
            env=warm_commands.BARE,
            stdout=subprocess.DEVNULL,
        )
        for uuid in uuids
    ]

    assert [writer.wait(60) for writer in writers] == [0] * len(uuids)
    assert len(entries(folder)) == len(uuids)


@pytest.mark.parametrize(
    "damage", [b"", b"x" * limits_bytes.FILE_BYTES, bytes(limits_bytes.FILE_BYTES)]
)
def test_a_damaged_file_is_told_and_a_reset_heals_it(folder: Path, damage: bytes) -> None:
    path = limits_file.path_of(folder, NAME)
    path.write_bytes(damage)

    assert "it is damaged" in said(gpufence(folder, "set", NAME, "--cores", "9"), 1)
    assert "it is damaged" in said(gpufence(folder, "status", NAME), 1)
    assert gpufence(folder, "set", NAME, "--reset").returncode == 0
    assert entries(folder) == {}


# ---- history and status ----


def changes(folder: Path) -> list[dict[str, Any]]:
    """What `status --history` tells."""
    done = gpufence(folder, "status", NAME, "--history", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["changes"]
    return found


def test_every_change_is_kept_with_who_and_when(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--memory", "1g")
    gpufence(folder, "set", NAME, "--memory", "2g", SUDO_USER="ada")

    first, second = changes(folder)

    assert (first["old"], first["new"]) == ({}, {"all": {"memory_bytes": GIB}})
    assert second["old"] == first["new"]
    assert second["uid"] == os.getuid()
    assert second.get("sudo_user") == ("ada" if os.getuid() == 0 else None)
    assert first["time"] <= second["time"]
    assert first["held"]
    assert second["held"]


def test_a_change_that_never_held_is_told_apart(folder: Path) -> None:
    code = "import os\nos.pwrite = lambda *_: os.kill(os.getpid(), 9)"
    gpufence(folder, "set", NAME, "--memory", "1g", code=code)
    gpufence(folder, "set", NAME, "--memory", "2g")

    assert [change["held"] for change in changes(folder)] == [False, True]


def test_a_prepared_container_is_shown(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--memory", "1g")

    (state,) = json.loads(gpufence(folder, "status", "--json").stdout)["containers"]

    assert (state["name"], state["running"], state["gpus"]) == (NAME, False, [])
    assert state["set"] == {"all": {"memory_bytes": GIB}}
    assert "prepared" in gpufence(folder, "status").stdout
    assert "memory 1 GiB" in gpufence(folder, "status", NAME).stdout


def test_nothing_to_show_is_no_error(tmp_path: Path) -> None:
    done = gpufence(tmp_path, "status")

    assert (done.returncode, done.stdout) == (0, "")
    assert "no container" in done.stderr


def test_looking_changes_nothing(folder: Path) -> None:
    gpufence(folder, "set", NAME, "--memory", "1g")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

    for words in (("status",), ("status", NAME), ("status", NAME, "--history")):
        gpufence(folder, *words)

    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert after == before


def test_a_history_stops_growing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpufence.container import changes as kept

    monkeypatch.setattr(kept, "_MOST_BYTES", 2000)
    path = folder / "history"
    for generation in range(60):
        kept.append(path, os.getuid(), generation, {}, {EVERY_GPU: Amounts(cores=generation)})

    assert path.stat().st_size < 4000
    assert kept.read(path, os.getuid(), 100)[-1]["generation"] == 59


def test_edits_are_what_the_command_line_means() -> None:
    one, other = b"1" * 16, b"2" * 16
    before = {one: Amounts(memory=1, cores=2), other: Amounts(memory=3)}

    after = set_command.edited(before, EVERY_GPU, Amounts(memory=9), reset=False)

    kept = {uuid: each for uuid, each in after.items() if not each.empty}
    assert kept == {one: Amounts(cores=2), EVERY_GPU: Amounts(memory=9)}
