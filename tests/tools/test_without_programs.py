"""`status`, `top` and `export` say the limits of a container without programs, where known.

They say "no limit" only of what has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpufence.state import shared_layout, time_file

from .gpufence_command import gpufence
from .region_files import RegionFile, Signed, TimeFile, this_process

GIB = 1 << 30
NONE = shared_layout.NO_LIMIT
SHARES = "30 %, soft 60 %"  # that every member of these files has
ENDED = [Signed(pid, 1, 5, 7, locked=False) for pid in (4_000_001, 4_000_002)]


@contextmanager
def used_by(
    folder: Path, owners: list[Signed], limits: list[int], members: list[Signed]
) -> Iterator[None]:
    """Container web, of whose processes the members had a core limit."""
    with ExitStack() as stack:
        region = stack.enter_context(RegionFile(folder))
        region.device(0)
        for slot, (owner, limit) in enumerate(zip(owners, limits, strict=True)):
            region.process(slot, owner)
            region.use(0, slot, limit=limit)
        cores = stack.enter_context(TimeFile(folder, "web", time_file._clock_identity()))
        cores.device(0)
        cores.tenant(0, 0, time_file.tenant_key("web"), charged_ns=10**9)
        for number, owner in enumerate(members):
            cores.member(0, number, 0, owner)
        yield


def shown(folder: Path) -> list[str]:
    """LIMIT and CORE-LIMIT, for people."""
    text = gpufence("status", "--all", GPUFENCE_STATE_DIR=str(folder)).stdout
    (row,) = [line for line in text.splitlines() if line.startswith("web ")]
    return re.split(" {2,}", row)[4:6]


def gpu_of(folder: Path) -> dict[str, Any]:
    """The GPU, in JSON."""
    text = gpufence("status", "web", "--json", GPUFENCE_STATE_DIR=str(folder)).stdout
    (container,) = json.loads(text)["containers"]
    (gpu,) = container["gpus"]
    found: dict[str, Any] = gpu
    return found


def watched(folder: Path) -> list[str]:
    """LIMIT and CORE-LIMIT of `top`, for people; "" where there is no such column."""
    lines = gpufence("top", "--all", "--once", "--state-dir", str(folder)).stdout.splitlines()
    (heading,) = [line for line in lines if line.startswith("CONTAINER ")]
    (row,) = [line for line in lines if line.startswith("  web ")]
    titles = [title for title in ("LIMIT", "CORE-LIMIT") if f" {title} " in heading]
    ends = [heading.index(f" {title} ") + len(title) + 1 for title in titles]
    return ([row[:end].rpartition(" ")[2] for end in ends] + [""])[:2]


def known_by_top(folder: Path) -> tuple[int | None, float | None, bool, bool]:
    """The same in JSON, and whether it is known."""
    text = gpufence("top", "--all", "--json", "--state-dir", str(folder)).stdout
    (gpu,) = json.loads(text)["gpus"]
    (of,) = gpu["containers"]
    limits = of["memory_limit_bytes"], of["core_limit_ratio"]
    return *limits, of["memory_limit_known"], of["core_limit_known"]


def exported(folder: Path) -> tuple[float | None, float | None, bool, bool]:
    """The same as metrics."""
    text = gpufence("export", "--all", "--state-dir", str(folder)).stdout
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    of = {labelled.partition("{")[0]: float(value) for labelled, _, value in samples}
    limits = of.get("gpufence_memory_limit_bytes"), of.get("gpufence_core_limit_ratio")
    known = of["gpufence_memory_limit_known"], of["gpufence_core_limit_known"]
    return *limits, bool(known[0]), bool(known[1])


def test_what_the_last_programs_had_is_told(tmp_path: Path) -> None:
    with used_by(tmp_path, ENDED, [4 * GIB, 4 * GIB], ENDED):
        assert shown(tmp_path) == ["4 GiB", SHARES]
        gpu = gpu_of(tmp_path)

    assert (gpu["memory"]["limit_bytes"], gpu["memory"]["limit_from"]) == (4 * GIB, "environment")
    assert (gpu["cores"]["share_millipercent"], gpu["cores"]["used_ns"]) == (30_000, 10**9)
    assert (gpu["cores_known"], gpu["cores"]["node"], gpu["cores"]["turn"]) == (True, False, None)


def test_top_and_export_tell_it_too(tmp_path: Path) -> None:
    with used_by(tmp_path, ENDED, [4 * GIB, 4 * GIB], ENDED):
        assert watched(tmp_path) == ["4.0GiB", "30%-60%"]
        assert known_by_top(tmp_path) == exported(tmp_path) == (4 * GIB, 0.3, True, True)


SOME = pytest.mark.parametrize(
    ("limits", "members", "told"),
    [
        ([4 * GIB, 2 * GIB], ENDED, ["-", SHARES]),
        ([4 * GIB, NONE], ENDED, ["-", SHARES]),
        ([4 * GIB, 4 * GIB], ENDED[:1], ["4 GiB", "-"]),
        ([4 * GIB, 4 * GIB], [], ["4 GiB", "-"]),
        ([NONE, NONE], [], ["-", "-"]),
    ],
    ids=["two limits", "one unlimited", "one without cores", "no cores", "nothing known"],
)


@SOME
def test_what_they_did_not_all_have_is_not_known(
    tmp_path: Path, limits: list[int], members: list[Signed], told: list[str]
) -> None:
    with used_by(tmp_path, ENDED, limits, members):
        assert shown(tmp_path) == told
        assert gpu_of(tmp_path)["cores_known"] == (told[1] != "-")
        text = gpufence("status", "web", GPUFENCE_STATE_DIR=str(tmp_path)).stdout

    assert "no limit" not in text
    assert "unknown" not in text  # nobody need look as root
    assert ("of a limit that is not known while no program runs" in text) == (told[0] == "-")


@SOME
def test_top_and_export_do_not_know_it_either(
    tmp_path: Path, limits: list[int], members: list[Signed], told: list[str]
) -> None:
    memory, cores = {"4 GiB": 4 * GIB}.get(told[0]), {SHARES: 0.3}.get(told[1])
    words = {"4 GiB": "4.0GiB", SHARES: "30%-60%"}
    with used_by(tmp_path, ENDED, limits, members):
        # The columns of GPU time are for containers of which a core limit is known.
        assert watched(tmp_path) == [words.get(told[0], "-"), words.get(told[1], "")]
        found = known_by_top(tmp_path), exported(tmp_path)

    assert found == ((memory, cores, memory is not None, cores is not None),) * 2


def test_another_process_of_that_number_tells_nothing(tmp_path: Path) -> None:
    others = [replace(each, ticks=each.ticks + 1) for each in ENDED]

    with used_by(tmp_path, ENDED, [GIB, GIB], others):
        assert shown(tmp_path) == ["1 GiB", "-"]
        assert watched(tmp_path) == ["1.0GiB", ""]


def test_what_is_set_goes_before_it_and_once_taken_back_nothing_is_known(tmp_path: Path) -> None:
    def ask(*words: str) -> list[list[str]]:
        gpufence("set", "web", *words, GPUFENCE_STATE_DIR=str(tmp_path))
        assert known_by_top(tmp_path) == exported(tmp_path)
        return [shown(tmp_path), watched(tmp_path)]

    with used_by(tmp_path, ENDED, [4 * GIB, 4 * GIB], ENDED):
        half = ask("--memory", "2g", "--cores", "10", "--soft-cores", "0")
        assert half == [["2 GiB", "10 %"], ["2.0GiB", "10%"]]
        assert ask("--memory", "0", "--cores", "0") == [["no limit", "no limit"], ["none", ""]]
        assert known_by_top(tmp_path) == (None, None, True, True)
        # What programs found may be what was set for them.
        assert ask("--reset") == [["-", "-"], ["-", ""]]
        assert known_by_top(tmp_path) == (None, None, False, False)


def test_a_part_that_is_set_of_a_gpu_that_nobody_can_ask_is_no_lack_of_a_limit(
    tmp_path: Path,
) -> None:
    with used_by(tmp_path, ENDED, [4 * GIB, 4 * GIB], ENDED):
        gpufence("set", "web", "--memory", "50%", GPUFENCE_STATE_DIR=str(tmp_path))

        assert shown(tmp_path)[0] == "50 % of the GPU"
        assert watched(tmp_path)[0] == "-"
        assert known_by_top(tmp_path) == exported(tmp_path) == (None, None, False, False)


def test_the_dead_say_nothing_beside_the_living(tmp_path: Path) -> None:
    with used_by(tmp_path, [*ENDED, this_process()], [4 * GIB, 4 * GIB, NONE], ENDED):
        assert shown(tmp_path) == ["no limit", "no limit"]
        assert watched(tmp_path) == ["none", ""]
        assert known_by_top(tmp_path) == exported(tmp_path) == (None, None, True, True)
