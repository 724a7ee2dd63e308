"""State and policy without any driver: a model, threads, processes that die at any instruction.

GPUFENCE_TEST_STATE_ROUNDS, _OPERATIONS, _SWITCHES and _LIFETIMES make the real run (1000, 2000000,
3 and 10000); the default is a short one. The same programs are built and run under the thread and
address sanitizers (ci/sanitize runs all of them).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .sanitized_state import Sanitized, shared_folder

ROUNDS = int(os.environ.get("GPUFENCE_TEST_STATE_ROUNDS", "25"))
OPERATIONS = int(os.environ.get("GPUFENCE_TEST_STATE_OPERATIONS", "100000"))
# Each waits for the file systems' clock: 10000 take most of a minute.
LIFETIMES = int(os.environ.get("GPUFENCE_TEST_STATE_LIFETIMES", "200"))
SWITCHES = int(os.environ.get("GPUFENCE_TEST_STATE_SWITCHES", "2"))

CASES = (
    "exhaustion",
    "fork_threads",
    "spawned",
    "exec",
    "raw_clone",
    "orphan",
    "pid_reuse",
    "dead_limit",
    "closed_descriptor",
    "dead_asking",
    "stopped_asking",
    "damaged",
    "truncated",
    "empty",
    "foreign_layout",
    "damaged_together",
    "look_on",
    "closed_streams",
    "release_after_reclaim",
)

# Before every how many instructions a process is stopped and killed; 1 takes hours.
STRIDE = int(os.environ.get("GPUFENCE_TEST_STATE_STRIDE", "149"))

OPERATIONS_STEPPED = (
    "reserve",
    "reserve_after_death",
    "release",
    "book",
    "publish",
    "row",
    "join",
    "reclaim",
)

PLACES = (
    "next_folder",
    "neighbours",
    "older_layout",
    "private_file",
    "directory_in_place",
    "link_in_place",
    "pipe_in_place",
    "hard_umask",
    "folder_is_its_owners",
    "small_files",
    "few_descriptors",
    "sixty_four_devices",
    "other_pid_namespace",
    "removed_file",
)
NOT_ALLOWED = 77

REMOVALS = (
    "kept_while_used",
    "held_by_slot_alone",
    "held_from_its_name",
    "opened_anew",
    "stopped_sweeper",
    "regions_among_sweepers",
    "cores_among_sweepers",
)

EXPORTED = (
    "held_while_open",
    "rows_apart",
    "containers_apart",
    "private_regions_apart",
    "places_apart_from_held",
    "places_apart_from_charged",
    "own_descriptor_closed",
    "node_closed",
    "lengths_in_chunks",
    "not_lockable",
    "strangers_locks",
    "of_another_file",
    "region_out_of_reach",
    "list_unreadable",
)

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can change its uid or mount")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the region lies: unlike pytest's own folders, another uid can reach it."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


def run(program: Path, *arguments: str | int | Path, timeout: float = 300) -> str:
    """Run to the end; what it printed."""
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_the_region_keeps_its_promise(build: Path, folder: Path, case: str) -> None:
    assert run(build / "tests" / "state_cases", case, folder).endswith("ok\n")


@pytest.mark.parametrize(
    ("kind", "count"),
    [("own_pids", min(10 * LIFETIMES, 10_000)), ("host_pids", LIFETIMES), ("older", LIFETIMES)],
)
def test_no_container_has_the_name_of_one_that_ended(build: Path, kind: str, count: int) -> None:
    """In the same place, from numbers that the kernel gives out again."""
    program = build / "tests" / "state_lifetimes"
    done = subprocess.run([program, kind, str(count)], capture_output=True, text=True, check=False)

    if done.returncode == NOT_ALLOWED:
        pytest.skip("no namespaces for this user, or a kernel that gives them no such numbers")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["names"] == facts["containers"] == count
    assert facts["roots"] == 1
    # Many numbers came again. How many depends on what else the machine does: 1,004 of 2,000.
    assert facts["namespaces"] < 0.9 * count


def test_each_part_of_a_lifetime_makes_another_name(build: Path) -> None:
    facts = json.loads(run(build / "tests" / "state_lifetimes", "parts"))

    assert facts["names"] == facts["containers"]


@pytest.mark.parametrize("case", PLACES)
def test_the_region_finds_its_place(build: Path, folder: Path, case: str) -> None:
    program = build / "tests" / "state_places"
    done = subprocess.run([program, case, folder], capture_output=True, text=True, check=False)
    if done.returncode == NOT_ALLOWED:
        pytest.skip("this machine does not allow another pid namespace")

    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("case", REMOVALS)
def test_nobody_is_alone_in_a_file_that_was_swept(build: Path, folder: Path, case: str) -> None:
    assert run(build / "tests" / "state_removal", case, folder) == "ok\n"


@needs_root
def test_users_meet_where_all_of_them_can(build: Path, folder: Path) -> None:
    run(build / "tests" / "state_places", "foreign_private_file", folder)


@pytest.mark.parametrize("operation", OPERATIONS_STEPPED)
def test_stopped_and_killed_before_any_instruction(
    build: Path, folder: Path, operation: str
) -> None:
    run(build / "tests" / "state_steps", operation, folder, STRIDE, timeout=7200)


def test_shared_memory_freed_during_a_request_stays_counted(build: Path, folder: Path) -> None:
    """Freed before every single instruction of the request, while an importer keeps it."""
    done = json.loads(run(build / "tests" / "state_orphans", folder, timeout=7200))

    assert done["instructions"] > 50


@needs_root
def test_two_users_share_a_region(build: Path, folder: Path) -> None:
    run(build / "tests" / "state_cases", "other_uid", folder)


@contextmanager
def small_folder(folder: Path, kib: int) -> Iterator[None]:
    """A file system of that size in the folder's place."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("case", EXPORTED)
def test_what_descriptors_hold_is_told_by_locks(build: Path, folder: Path, case: str) -> None:
    assert run(build / "tests" / "state_exported", case, folder) == "ok\n"


@needs_root
@pytest.mark.parametrize("kib", [4, 64, 300, 340, 380])
def test_a_full_folder_is_an_error_and_no_signal(build: Path, folder: Path, kib: int) -> None:
    with small_folder(folder, kib):
        run(build / "tests" / "state_cases", "full_folder", folder)


@pytest.mark.parametrize("extent", ["all", "resident"])
def test_every_order_of_steps_keeps_the_limit_and_loses_nothing(build: Path, extent: str) -> None:
    """The ledger's own code, stepped through; tens of thousands of orders with two switches."""
    done = json.loads(run(build / "tests" / "state_protocol", SWITCHES, extent))

    assert done["executions"] > 10_000


def test_every_order_of_small_pieces_keeps_chunks_paid(build: Path) -> None:
    """The chunks' own code, stepped through, over a driver that deals as the real one does."""
    done = json.loads(run(build / "tests" / "state_chunk_orders", SWITCHES))

    assert done["executions"] > 10_000


def test_random_operations_agree_with_a_model(build: Path, folder: Path) -> None:
    run(build / "tests" / "state_model", folder, OPERATIONS, 1, timeout=1200)


@pytest.mark.parametrize(
    "arguments",
    [["steps"], *(["random", seed] for seed in range(8)), ["threads", 6, 300]],
    ids=lambda arguments: "-".join(map(str, arguments)),
)
def test_all_holdings_of_a_kind_are_found_while_others_come_and_go(
    build: Path, arguments: list[str | int]
) -> None:
    assert run(build / "tests" / "state_holdings", *arguments) == "ok\n"


@pytest.mark.parametrize("threads", [4, 48])
def test_what_threads_say_of_their_moves_adds_up(build: Path, threads: int) -> None:
    run(build / "tests" / "state_moves", threads, OPERATIONS)


@pytest.mark.parametrize(
    ("what", "threads", "amount"),
    [("random", 8, 20000), ("random", 64, 1000), ("last", 16, 200), ("holdings", 8, 50000)],
)
def test_threads_get_exactly_what_there_is(
    build: Path, folder: Path, what: str, threads: int, amount: int
) -> None:
    run(build / "tests" / "state_threads", what, folder, threads, amount)


@pytest.mark.parametrize(
    ("what", "threads", "amount"),
    [
        ("steps", 1, 1),
        ("alone", 1, 50000),
        ("random", 4, 20000),
        ("random", 16, 5000),
        ("fill", 8, 20),
        ("stranger", 8, 5000),
    ],
)
def test_chunks_are_paid_while_they_are_held(
    build: Path, folder: Path, what: str, threads: int, amount: int
) -> None:
    run(build / "tests" / "state_chunks", what, folder, threads, amount)


def test_a_lock_that_one_thread_owned_is_everybodys_when_others_come(build: Path) -> None:
    run(build / "tests" / "state_biased", 1000, 3)


def test_a_piece_is_found_where_it_begins_and_ends_with_its_context(
    build: Path, folder: Path
) -> None:
    run(build / "tests" / "state_pieces", folder)


@pytest.mark.parametrize(("what", "threads", "amount"), [("turns", 8, 2000), ("late", 8, 300)])
def test_arrays_are_paid_while_they_are_held(
    build: Path, folder: Path, what: str, threads: int, amount: int
) -> None:
    run(build / "tests" / "state_arrays", what, folder, threads, amount)


def test_a_chunk_that_only_seems_empty_stays_charged(build: Path, folder: Path) -> None:
    run(build / "tests" / "state_arrays", "unknown", folder, 0, 0)


def test_an_array_waits_for_room_outside_of_its_turn(build: Path, folder: Path) -> None:
    run(build / "tests" / "state_arrays", "room", folder, 0, 0)


def test_nothing_is_lost_when_processes_are_killed_and_stopped(build: Path, folder: Path) -> None:
    run(build / "tests" / "state_storm", folder, 32, ROUNDS, 1, timeout=1800)


@pytest.fixture(scope="session")
def compiler() -> str:
    """The system's C++ compiler."""
    found = shutil.which("g++") or shutil.which("c++")
    if found is None:
        pytest.skip("no C++ compiler")
    return found


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize(
    ("program", "before", "after"),
    [
        ("state_threads", ["random"], [8, 2000]),
        ("state_threads", ["last"], [8, 40]),
        ("state_threads", ["holdings"], [8, 5000]),
        ("state_holdings", ["threads", "4", "100"], []),
        ("state_chunks", ["random"], [8, 2000]),
        ("state_pieces", [], []),
        ("state_arrays", ["turns"], [8, 1000]),
        ("state_model", [], [20000, 3]),
    ],
)
def test_sanitizers_find_nothing(
    compiler: str,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    sanitizer: str,
    program: str,
    before: list[str],
    after: list[int],
) -> None:
    place = shared_folder(tmp_path_factory) / sanitizer.partition(",")[0]

    binary = Sanitized(compiler, sanitizer, place).program(program)

    run(binary, *before, folder, *after)
