"""ci/pythons: what a report comes to, what is said where no system can be had, and time limits."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from . import pythons

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.tools.test_a" name="test_passes" />
<testcase classname="tests.tools.test_a" name="test_fails"><failure>t</failure></testcase>
<testcase classname="tests.tools.test_b" name="test_has_no_fixture"><error>t</error></testcase>
<testcase classname="" name="tests.tools.test_c"><skipped message="no fish: a" /></testcase>
<testcase classname="tests.tools.test_d" name="test_x[1]"><skipped message="no fish" /></testcase>
</testsuite></testsuites>"""
RAN = pythons.Ran(
    1, ("test_a::test_fails", "test_b::test_has_no_fixture"), Counter({"no fish": 2}), 61.7
)


def test_each_test_of_a_report_is_counted_once() -> None:
    assert pythons.counted(REPORT, 61.7) == RAN


def test_what_failed_before_the_tests_counts_too() -> None:
    ran = pythons.counted(REPORT, 1, ("gpufence demo: 1: it said this",))

    assert ran.failed == ("gpufence demo: 1: it said this", *RAN.failed)


def test_the_table_names_failures_and_reasons() -> None:
    clean = pythons.Ran(2770, (), Counter(), 300)

    assert pythons.table({"3.13": RAN, "3.14": clean}).splitlines() == [
        "| Python | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|",
        "| 3.13 | 1 | 2 | 2 | 62 |",
        "| 3.14 | 2,770 | 0 | 0 | 300 |",
        "",
        "Python 3.13:",
        "* failed: test_a::test_fails",
        "* failed: test_b::test_has_no_fixture",
        "* 2 skipped: no fish",
    ]


def test_a_python_that_no_debian_has_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pythons.main(tmp_path, ("3.14", "3.12")) == 2
    assert capsys.readouterr().err == (
        "ci/pythons: no Python 3.12: it knows 3.11, 3.13, 3.14, 3.15\n"
    )


def test_a_machine_without_the_means_is_a_reason_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert pythons.main(tmp_path, ("3.13",)) == 3
    assert capsys.readouterr().err.splitlines() == [
        "ci/pythons: 3.13: a Debian of trixie, at most 20 minutes",
        "ci/pythons: skipped: only root can make systems, with debootstrap",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has namespaces of its own")
def test_no_process_outlives_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "_INSIDE", 'shift 3 && exec "$@"')
    script = f"(sleep 60 && echo {tmp_path}) & sleep 60"

    ended = pythons.inside(tmp_path, tmp_path, tmp_path, 1, "sh", "-c", script)

    assert ended == (124, "ended after 1 seconds")
    # The kernel ends the others of a namespace with its first process, and says so to nobody.
    deadline = time.monotonic() + 30
    while left := _processes_with(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _processes_with(word: str) -> list[str]:
    """Command lines of this machine with that word, but for this process's."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if int(path.parent.name) != os.getpid():
            with contextlib.suppress(OSError):
                found.append(path.read_text(encoding="utf-8", errors="replace"))
    return [line for line in found if word in line]
