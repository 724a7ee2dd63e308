"""`gpufence doctor`: what /proc says of a process, and the reason when it is not fenced.

The formats of proc(5) are tested as text; real processes are the business of tests/host.
"""

from __future__ import annotations

import json
import struct
import subprocess

import pytest
from gpufence.commands import doctor
from gpufence.errors import ExitCode, ToolError
from gpufence.machine import process

from .gpufence_command import gpufence

MAPS = """\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:00 1 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 fe:00 2 /opt/my apps/libgpufence.so
7f0000002000-7f0000003000 rw-p 00002000 fe:00 2 /opt/my apps/libgpufence.so
7f0000010000-7f0000020000 r-xp 00000000 fe:00 3 /usr/lib/libcuda.so.550.163.01
7f0000030000-7f0000040000 r-xp 00000000 fe:00 4 /old/libnvidia-ml.so.1 (deleted)
7f0000050000-7f0000060000 rw-p 00000000 00:00 0
7f0000070000-7f0000080000 r-xp 00000000 fe:00 5 /lib64/ld-linux-x86-64.so.2
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0 [vdso]
"""


def subject(
    maps: str = MAPS, preloads: tuple[str, ...] = (), secure: bool = False
) -> process.Process:
    """A process with the given files and start."""
    return process.Process(7, "app", process.parse_maps(maps), preloads, secure)


def test_a_mapped_file_keeps_its_whole_path_and_all_its_segments() -> None:
    library = subject().find("libgpufence.so")

    assert library is not None
    assert library.path == "/opt/my apps/libgpufence.so"
    assert library.ranges == ((0x7F0000000000, 0x7F0000001000), (0x7F0000002000, 0x7F0000003000))
    assert [library.holds(a) for a in (0x7F0000000000, 0x7F0000001000, 0x7F0000002FFF)] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("odd", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_mapped_files_name_ends_with_its_line_alone(odd: str) -> None:
    """A name may hold whatever else Python takes for the end of a line."""
    path = f"/tmp/a{odd}b-c r-xp 0 0 0 /lib/libcuda.so.1"

    (file,) = process.parse_maps(f"7f0000000000-7f0000001000 r-xp 00000000 08:01 12 {path}\n")

    assert (file.path, file.ranges) == (path, ((0x7F0000000000, 0x7F0000001000),))


def test_a_replaced_file_is_recognised_and_anonymous_memory_is_not_a_file() -> None:
    files = process.parse_maps(MAPS)

    assert [(file.name, file.deleted) for file in files] == [
        ("python3.11", False),
        ("libgpufence.so", False),
        ("libcuda.so.550.163.01", False),
        ("libnvidia-ml.so.1", True),
        ("ld-linux-x86-64.so.2", False),
    ]


@pytest.mark.parametrize(
    ("environ", "preloads"),
    [
        ("", ()),
        ("A=1\0LD_PRELOAD=\0", ()),
        ("XLD_PRELOAD=/no.so\0", ()),
        ("A=1\0LD_PRELOAD=/a.so:/b.so /c.so\0B=2\0", ("/a.so", "/b.so", "/c.so")),
    ],
)
def test_both_separators_of_ld_preload_are_known(environ: str, preloads: tuple[str, ...]) -> None:
    assert process.parse_preloads(environ) == preloads


@pytest.mark.parametrize(
    ("pairs", "secure"),
    [
        ([(23, 1), (0, 0)], True),
        ([(3, 64), (23, 0), (0, 0)], False),
        ([(0, 0), (23, 1)], False),
        ([], False),
    ],
)
def test_a_privileged_start_is_read_from_the_auxiliary_vector(
    pairs: list[tuple[int, int]], secure: bool
) -> None:
    assert process.parse_secure(b"".join(struct.pack("QQ", *pair) for pair in pairs)) is secure


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (subject("", ("/x/libgpufence.so",)), "not a dynamically linked glibc program"),
        (subject(secure=True), "set-uid"),
        (subject(), "without LD_PRELOAD"),
        (subject(preloads=("/x/other.so",)), "does not name libgpufence.so"),
        (subject(preloads=("/gone/libgpufence.so",)), "which does not exist"),
        (subject(preloads=("/proc/self/exe", "/x/libgpufence.so")), "/x/libgpufence.so"),
    ],
)
def test_the_reason_why_a_process_is_not_fenced_is_the_most_certain_one(
    seen: process.Process, reason: str
) -> None:
    problem = doctor._why_not_loaded(seen)

    assert reason in problem.why
    assert problem.status is ExitCode.CHECK_FAILED


def test_a_driver_is_named_by_the_version_in_its_file_name() -> None:
    drivers = doctor._drivers(subject())

    assert [(driver.soname, driver.version, driver.simulated) for driver in drivers] == [
        ("libcuda.so.1", "550.163.01", False),
        ("libnvidia-ml.so.1", "", False),
    ]


def run_doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run doctor unfenced, with no driver in the loader's reach."""
    return gpufence("doctor", *arguments)


def test_an_unfenced_doctor_says_so_and_fails() -> None:
    done = run_doctor()

    assert done.returncode == 5
    assert "is not fenced: it was started without LD_PRELOAD" in done.stdout


def test_json_names_the_same_problem_in_three_parts() -> None:
    done = run_doctor("--json")
    report = json.loads(done.stdout)

    assert report["schema"] == 1
    assert report["library"] is None
    assert sorted(report["problems"][0]) == ["fix", "what", "why"]


@pytest.mark.parametrize("pid", ["0", "4194305", "99999999999999999999"])
def test_a_process_that_is_not_there_is_one_line(pid: str) -> None:
    done = run_doctor(pid)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_a_process_that_ends_while_it_is_read_is_an_error_and_no_traceback() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    with pytest.raises(ToolError, match="does not exist or has ended"):
        process.read(ended.pid)
