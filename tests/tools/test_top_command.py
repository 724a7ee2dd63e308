"""`gpufence top` without a terminal: one table or one object, whatever lies in the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpufence.state import time_file

from .gpufence_command import REPO, gpufence
from .region_files import GIB, RegionFile, Signed, TimeFile, this_process

SCHEMA = json.loads((REPO / "docs" / "schemas" / "top.json").read_text(encoding="utf-8"))


def top(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command as its own process, with nothing inherited but PATH."""
    return gpufence("top", *arguments, **{"GPUFENCE_TOP_INTERVAL": "0.1", **env})


def answer(folder: Path, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    done = top("--json", "--state-dir", folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA)
    return found


def test_an_empty_machine_is_said_to_be_empty(tmp_path: Path) -> None:
    done = top("--once", "--state-dir", tmp_path / "absent")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "0 GPUs, 0 containers, 0 processes"
    assert done.stdout.splitlines()[2] == "no GPU, and no container with a limit"
    assert answer(tmp_path)["gpus"] == []


def test_one_table_for_whoever_reads_no_terminal(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made:
        made.device(0)
        made.process(0, this_process())
        made.use(0, 0, held=GIB, limit=4 * GIB, activity=(3, 0, 0))

        done = top("--state-dir", tmp_path, COLUMNS="100")

    lines = done.stdout.splitlines()
    assert lines[0] == "1 GPU, 1 container, 1 process"
    assert lines[3].split()[:4] == ["web", "1.0GiB", "4.0GiB", "25%"]
    assert lines[4].split()[0] == str(os.getpid())
    assert all(len(line) <= 100 and "\x1b" not in line for line in lines)


def test_the_object_tells_regions_and_time_files_together(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made, TimeFile(tmp_path) as cores:
        made.device(0, orphans=7)
        made.process(0, this_process())
        made.process(1, Signed(pid=9))
        made.use(0, 0, held=GIB, overhead=5, limit=4 * GIB, activity=(3, 2, 10**9))
        made.use(0, 1, held=3)
        cores.device(0, turn=1, deep=True)
        cores.tenant(0, 0, time_file.tenant_key("web"), charged_ns=77)
        cores.tenant(0, 1, 0x1234, charged_ns=5)
        cores.member(0, 0, 0, this_process())
        cores.member(0, 1, 1, Signed(pid=12, uid=4_000_000_000))

        (gpu,) = answer(tmp_path)["gpus"]

    stranger, web = gpu["containers"]
    assert (gpu["uuid"], gpu["name"]) == ("GPU-ab000203-0405-0607-0809-0a0b0c0d0e0f", None)
    assert (web["name"], web["has_turn"], web["gpu_time_ns"]) == ("web", True, 77)
    assert (web["memory_limit_bytes"], web["memory_used_bytes"]) == (4 * GIB, GIB + 3 + 7)
    assert (web["core_limit_ratio"], web["core_soft_limit_ratio"]) == (0.3, 0.6)
    assert web["core_share_ratio"] == 0.0
    assert (web["launches_wait_ratio"], web["launches_wait_mean_ns"]) == (0.0, None)
    assert (web["refusals"], web["launches_held"], web["launches_held_ns"]) == (3, 2, 10**9)
    assert [(p["pid"], p["pid_is_foreign"]) for p in web["processes"]] == [
        (os.getpid(), False),
        (9, True),
    ]
    assert (stranger["name"], stranger["memory_known"]) == ("#0000000000001234", False)
    assert [(p["pid"], p["user"]) for p in stranger["processes"]] == [(12, "4000000000")]


@pytest.mark.parametrize(
    ("published", "set_to", "word"),
    [
        (0, None, None),
        (0, "low", "low"),  # nobody published one
        (3, None, "high"),
        (2, "high", "normal"),  # what they go by: an operator's file may allow no more
        (1, "normal", "low"),
    ],
)
def test_a_priority_is_what_programs_go_by_else_what_was_set(
    tmp_path: Path, published: int, set_to: str | None, word: str | None
) -> None:
    with RegionFile(tmp_path) as made, TimeFile(tmp_path) as cores:
        made.device(0)
        made.process(0, this_process())
        made.use(0, 0, held=GIB)
        cores.device(0)
        cores.tenant(0, 0, time_file.tenant_key("web"), terms=published)
        cores.member(0, 0, 0, this_process())
        if set_to is not None:
            done = gpufence("set", "web", "--priority", set_to, "--state-dir", tmp_path)
            assert done.returncode == 0, done.stderr

        (container,) = answer(tmp_path)["gpus"][0]["containers"]

    assert container["priority"] == word


def test_a_priority_that_was_set_counts_where_no_program_of_the_seat_lives(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made, TimeFile(tmp_path) as cores:
        made.device(0)
        made.process(0, this_process())
        made.use(0, 0, held=GIB)
        cores.device(0)
        cores.tenant(0, 0, time_file.tenant_key("web"), terms=3)
        cores.member(0, 0, 0, Signed(locked=False))
        gpufence("set", "web", "--priority", "low", "--state-dir", tmp_path)

        (container,) = answer(tmp_path)["gpus"][0]["containers"]

    assert container["priority"] == "low"


def test_a_tenant_whose_region_cannot_be_seen_has_its_priority(tmp_path: Path) -> None:
    with TimeFile(tmp_path) as cores:
        cores.device(0)
        cores.tenant(0, 0, 0x1234, terms=1)
        cores.member(0, 0, 0, this_process())

        (stranger,) = answer(tmp_path)["gpus"][0]["containers"]

    assert (stranger["name"], stranger["priority"]) == ("#0000000000001234", "low")
    assert (stranger["launches_wait_ratio"], stranger["launches_wait_mean_ns"]) == (None, None)


@pytest.mark.parametrize(("deep", "word"), [(True, "its own"), (False, None)])
def test_a_turn_is_told_of_whoever_takes_turns(
    tmp_path: Path, deep: bool, word: str | None
) -> None:
    clock = time_file._clock_identity()
    with RegionFile(tmp_path) as made, TimeFile(tmp_path, "web", clock=clock) as cores:
        made.device(0)
        made.process(0, this_process())
        made.use(0, 0, held=GIB)
        cores.device(0, turn=1, author=5, deep=deep)
        cores.tenant(0, 0, time_file.tenant_key("web"))
        cores.member(0, 0, 0, this_process())

        (gpu,) = answer(tmp_path)["gpus"]
        status = gpufence("status", "web", "--json", "--state-dir", tmp_path)

    assert [each["has_turn"] for each in gpu["containers"]] == [deep]
    (container,) = json.loads(status.stdout)["containers"]
    assert [each["cores"]["turn"] for each in container["gpus"]] == [word]


def test_what_has_ended_is_shown_on_demand(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made:
        made.device(0)
        made.process(0, Signed(locked=False))
        made.use(0, 0, held=GIB)

        assert answer(tmp_path)["gpus"] == []
        (container,) = answer(tmp_path, "--all")["gpus"][0]["containers"]

    assert (container["alive"], container["memory_used_bytes"]) == (False, 0)
    assert [process["alive"] for process in container["processes"]] == [False]


def test_a_file_of_another_version_is_told_while_somebody_uses_it(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made:
        made.process(0, this_process())
        old = tmp_path / "gpufence-web.v3"
        made.path.rename(old)

        (problem,) = answer(tmp_path)["problems"]
    left_behind = answer(tmp_path)["problems"]

    assert problem["what"] == f"cannot read {old}"
    assert problem["why"].startswith("its layout is 3, and this gpufence reads layout ")
    assert left_behind == []


def test_two_hundred_processes_are_told_whole(tmp_path: Path) -> None:
    count = 200
    with RegionFile(tmp_path, slots=count) as made:
        made.device(0)
        for slot in range(count):
            made.process(slot, Signed(pid=1000 + slot))
            made.use(0, slot, held=slot + 1)

        (gpu,) = answer(tmp_path)["gpus"]

    assert [p["pid"] for p in gpu["containers"][0]["processes"]] == list(range(1000, 1000 + count))


@pytest.mark.parametrize(
    ("arguments", "env", "complaint"),
    [
        (("--interval", "0"), {}, " top: argument --interval: '0' is no number from 0.1 to 3600"),
        (
            ("--interval", "nan"),
            {},
            " top: argument --interval: 'nan' is no number from 0.1 to 3600",
        ),
        (
            (),
            {"GPUFENCE_TOP_INTERVAL": "x"},
            " top: argument --interval: 'x' is no number from 0.1",
        ),
        (("--sort", "colour"), {}, " top: argument --sort: invalid choice: 'colour' (choose from"),
        ((), {"GPUFENCE_TOP_SORT": "x"}, ": GPUFENCE_TOP_SORT=x refused: it is none of name, mem"),
        (("extra",), {}, " top: unrecognized arguments: extra"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: tuple[str, ...], env: dict[str, str], complaint: str
) -> None:
    done = top(*arguments, **env)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gpufence{complaint}")
    assert done.stderr.count("\n") == 1


def test_what_was_set_while_it_runs_is_the_limit(tmp_path: Path) -> None:
    with RegionFile(tmp_path) as made, TimeFile(tmp_path) as cores:
        made.device(0)
        made.process(0, this_process())
        made.use(0, 0, held=GIB, limit=4 * GIB, ratio=2000)
        cores.device(0)
        cores.tenant(0, 0, time_file.tenant_key("web"))
        cores.member(0, 0, 0, this_process())
        limits = ("--memory", "6GiB", "--cores", "10", "--state-dir", str(tmp_path))
        command = [sys.executable, "-m", "gpufence", "set", "web", *limits]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ})

        (container,) = answer(tmp_path)["gpus"][0]["containers"]

    assert container["memory_limit_bytes"] == 6 * GIB
    assert container["memory_share_bytes"] == 3 * GIB
    assert container["processes"][0]["memory_limit_bytes"] == 4 * GIB
    assert (container["core_limit_ratio"], container["core_soft_limit_ratio"]) == (0.1, 0.1)
