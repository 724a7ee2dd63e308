"""What the soak calls lost, passed or grown, and that some rounds of it are none of these."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.machine import REPO

from . import judging
from .judging import MIB, SAVED_NS, Allowance, Share
from .quota import PERIOD_US, Quota

SECOND = 1_000_000_000


def soak(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPO / "ci" / "soak", *map(str, words)],
        env={**os.environ, "PYTHON": str(REPO / ".venv" / "bin" / "python")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_some_rounds_lose_nothing_and_pass_nothing(build: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    done = soak("--rounds", "6", "--seed", "5", "--build", build, "--output", report)

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(report.read_text(encoding="utf-8"))
    assert (told["seed"], told["rounds"], told["problems"]) == (5, 6, [])
    assert told["counts"]["granted"] > 0
    assert told["counts"]["refused"] > 0
    assert "seed 5\n" in done.stdout


def test_a_folder_without_test_programs_is_named(tmp_path: Path) -> None:
    done = soak("--build", tmp_path)

    assert (done.returncode, done.stdout) == (3, "")
    assert "Run ci/build --tests" in done.stderr


def test_a_byte_more_or_less_in_the_ledger_is_a_problem() -> None:
    assert judging.ledger({1: 4 * MIB}, {1: 4 * MIB}) == []
    assert len(judging.ledger({1: 4 * MIB}, {1: 4 * MIB + 1})) == 1
    assert len(judging.ledger({1: 4 * MIB}, {2: 4 * MIB})) == 2


def test_a_lowered_limit_lets_stay_what_was_used_and_nothing_grow() -> None:
    container = Allowance(100)
    assert container.settle(90) == ""

    container.change(50)

    assert container.settle(90) == ""
    assert container.settle(70) == ""
    assert "70 are allowed" in container.settle(71)
    assert container.settle(40) == ""
    assert "50 are allowed" in container.settle(51)


def test_a_raised_limit_may_be_filled_at_once() -> None:
    container = Allowance(100)
    container.change(200)

    assert container.settle(200) == ""
    assert container.settle(201) != ""


def test_a_share_is_judged_by_the_time_that_each_limit_held() -> None:
    share = Share(10, 0)
    share.change(30, 10 * SECOND)
    allowed = 1 * SECOND + 3 * SECOND + int(0.01 * 20 * SECOND) + SAVED_NS

    assert share.settle(allowed, 20 * SECOND) == ""
    assert share.settle(SAVED_NS, 20 * SECOND) == ""
    assert share.settle(SAVED_NS + 1, 20 * SECOND) != ""


def test_what_grows_to_the_end_is_told_and_a_warm_up_is_not() -> None:
    warm = [float(min(each, 10)) for each in range(80)]
    leak = [float(each) for each in range(80)]

    flat, grown = (judging.growth("memory", samples, 5) for samples in (warm, leak))

    assert flat is not None
    assert grown is not None
    assert flat.problem == ""
    assert grown.problem == "memory grew from 29.5 to 69.5"
    assert judging.growth("memory", warm[:39], 5) is None


def test_who_is_under_the_quota_is_stopped_by_the_kernel_and_goes_home_afterwards() -> None:
    quota = Quota.made()
    if quota is None:
        pytest.skip("no cgroup with a CPU quota can be made here: that needs root")
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])

    try:
        quota.take(busy.pid)
        patience = time.monotonic() + 60
        while quota.times() < 5 and time.monotonic() < patience:
            time.sleep(PERIOD_US / 1e6)
        quota.give_back(busy.pid)
        stopped = quota.times()
        quota.end()  # only an empty group can be removed
    finally:
        busy.kill()
        busy.wait()

    assert stopped >= 5
    assert not quota.group.exists()
