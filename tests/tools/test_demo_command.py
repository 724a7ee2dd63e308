"""`gpufence demo` over the library and the simulated driver of the checkout.

What shares come out depends on how busy the machine is, so no test compares them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpufence import locate
from gpufence.demo import show, tenant
from gpufence.errors import ToolError

REPO = Path(__file__).resolve().parents[2]
GIB = 1 << 30
# Of every command here: a limit of the shell that must reach neither program.
SHELL = {"GPUFENCE_MEMORY_LIMIT": "1GiB", "GPUFENCE_CORE_LIMIT": "1"}

pytestmark = pytest.mark.skipif(
    not (REPO / "build" / "sim" / "libcuda.so.1").exists(),
    reason="no build/: the command finds the library of its own checkout only",
)


def demo(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    """The command, started; its temporary folder is made in that one."""
    return subprocess.Popen(
        [sys.executable, "-m", "gpufence", "demo", *words],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPO / "tools"),
            "TMPDIR": str(folder),
            **SHELL,
            **env,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_tells_what_both_programs_were_given(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "1", "--json") as started:
        said, complaint = started.communicate(timeout=120)

    report = json.loads(said)
    schema = json.loads((REPO / "docs" / "schemas" / "demo.json").read_text("utf-8"))
    jsonschema.validate(report, schema)
    assert (started.returncode, complaint) == (0, "")
    assert (report["schema"], report["seconds"]) == (1, 1)
    assert [(each["name"], each["core_limit_ratio"]) for each in report["containers"]] == [
        ("train", 0.6),
        ("serve", 0.3),
    ]
    for each, limit in zip(report["containers"], (6 * GIB, 2 * GIB), strict=True):
        assert each["memory_limit_bytes"] == each["memory_seen_bytes"] == limit
        assert limit - GIB < each["memory_granted_bytes"] < limit
        assert each["memory_refused_status"] == 2
        assert each["stalled_ns"] >= 0
        # None where the machine is too busy to run the programs.
        assert each["core_share_ratio"] is None or each["core_share_ratio"] >= 0


def test_it_shows_the_commands_the_table_and_the_next_step_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with demo(tmp_path, "--seconds", "2") as started:
        said, complaint = started.communicate(timeout=120)

    assert (started.returncode, complaint) == (0, "")
    order = (
        "No real GPU is used.",
        "$ gpufence run --sim --name train --memory 6GiB --cores 60 -- PROGRAM",
        "$ gpufence run --sim --name serve --memory 2GiB --cores 30 -- PROGRAM",
        "$ gpufence top",
        "gpufence simulated GPU",
        "What was seen",
        "  train  GPU time: a limit of 60%, ",
        "  serve  GPU time: a limit of 30%, ",
        "Next: ",
    )
    places = [said.find(each) for each in order]
    assert -1 not in places
    assert places == sorted(places)
    assert said.count("then refused: out of memory") == 2
    assert all(len(line) <= 80 for line in said.split("What was seen")[1].splitlines())
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_both_programs_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "600") as started:
        assert started.stdout
        while "$ gpufence top" not in started.stdout.readline():
            pass
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=120)

    assert len(children) == 2
    assert started.returncode == 130
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def report(**changed: object) -> dict[str, Any]:
    """Of one program that was held."""
    return {
        "name": "train",
        "core_limit_ratio": 0.6,
        "core_share_ratio": 0.6,
        "stalled_ns": 0,
        "memory_limit_bytes": 6 * GIB,
        "memory_seen_bytes": 6 * GIB,
        "memory_granted_bytes": 5 * GIB,
        "memory_refused_status": 2,
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, True),
        ({"memory_granted_bytes": 6 * GIB}, True),
        ({"memory_granted_bytes": 6 * GIB + 1}, False),
        ({"memory_refused_status": 0}, False),
    ],
)
def test_memory_beyond_the_limit_is_told_and_a_status(changed: dict[str, Any], held: bool) -> None:
    text = "\n".join(show._as_text([report(**changed)]))

    assert show._memory_held(report(**changed)) is held
    assert ("NOT refused" in text) is not held


@pytest.mark.parametrize(
    ("share", "load", "told"), [(0.6, 99.0, False), (0.3, 99.0, True), (0.3, 0.0, False)]
)
def test_busy_processors_are_named_where_a_share_is_short(
    share: float, load: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load * (os.cpu_count() or 1), 0.0, 0.0))

    assert ("are busy now" in "\n".join(show._as_text([report(core_share_ratio=share)]))) is told


@pytest.mark.parametrize(("stalled_ns", "told"), [(50_000_000, True), (50_000_001, False)])
def test_shares_are_not_told_where_a_program_stood_still(
    stalled_ns: int,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shares: list[float] = []

    def report_of(of: show.Tenant, _: object) -> dict[str, Any]:
        shares.append(0.6 if of.name == "train" else 0.3)
        found = report(name=of.name, core_share_ratio=shares[-1])
        return {**found, "stalled_ns": stalled_ns if of.name == "train" else 0}

    monkeypatch.setattr(show, "_report", report_of)
    monkeypatch.setattr(show, "_program", lambda *_: nullcontext())
    args = Namespace(seconds=1.0, json=True)

    assert show.show(args) == 0

    found = json.loads(capsys.readouterr().out)["containers"]
    assert [each["core_share_ratio"] for each in found] == (shares if told else [None, None])
    text = "\n".join(show._as_text(found))
    assert ("not measured" in text) is not told
    assert ("too busy: a program stood still for 50 ms" in text) is not told
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_program_counts_the_time_that_it_stood_still() -> None:
    stalls = tenant.Stalls()
    begin = stalls._last_s
    for at_s in (0.02, 0.16, 0.4, 0.42, 2.92):
        stalls.tick(begin + at_s)

    stalls.start()

    # 0.14 s is merely late; 0.24 s and 2.5 s are stalls.
    assert stalls.end() == pytest.approx(2_740_000_000, abs=1000)


@pytest.mark.parametrize(
    ("complaint", "why"),
    [
        ("gpufence: x not found: y. Build it.", "x not found: y. Build it"),
        ("tenant: cuInit returned 3", "tenant: cuInit returned 3"),
        ("", "its exit status is 1"),
    ],
)
def test_the_line_of_a_failed_program_ends_once(complaint: str, why: str) -> None:
    code = f"import sys; print({complaint!r}, file=sys.stderr); sys.exit(1)"
    failing = subprocess.Popen(
        [sys.executable, "-c", code if complaint else "import sys; sys.exit(1)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    with pytest.raises(ToolError) as refused:
        show._report(show.TENANTS[0], failing)

    assert refused.value.why == why


def test_a_program_that_fails_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    failing = subprocess.Popen(
        [sys.executable, str(tenant.__file__), "1", "10"],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    with pytest.raises(ToolError) as refused:
        show._report(show.TENANTS[0], failing)

    assert refused.value.status == 1
    assert "program 'train' failed: tenant: " in str(refused.value)


def test_without_the_library_nothing_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpufence import cli

    monkeypatch.setattr(locate, "_LIBRARY", (Path("/nowhere/a"), Path("/nowhere/b")))

    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().out == ""
