"""`gpufence run`: the program starts as if by exec, only with the library in front.

No test here needs a compiler: the loader's own list of preloads is the environment, which the
started program prints. What the library then does is the business of tests/host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpufence import locate
from gpufence.commands import run

from . import warm_commands
from .gpufence_command import REPO, gpufence, header

LIBRARY = Path("/opt/gpufence/libgpufence.so")


def without_loader_warnings(stderr: str) -> str:
    """The loader complains about the dummy library once per process; that is not our text."""
    return "".join(line for line in stderr.splitlines(True) if not line.startswith("ERROR: ld.so"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, f"{LIBRARY}"),
        ({"LD_PRELOAD": ""}, f"{LIBRARY}"),
        ({"LD_PRELOAD": "/a.so"}, f"/a.so:{LIBRARY}"),
        ({"LD_PRELOAD": "/a.so /b.so"}, f"/a.so /b.so:{LIBRARY}"),
        ({"LD_PRELOAD": f"{LIBRARY}"}, f"{LIBRARY}"),
        ({"LD_PRELOAD": f"{LIBRARY} /a.so"}, f"{LIBRARY} /a.so"),
        ({"LD_PRELOAD": f"{LIBRARY}.old"}, f"{LIBRARY}.old:{LIBRARY}"),
    ],
)
def test_the_library_is_added_behind_other_preloads_and_once(
    before: dict[str, str], after: str
) -> None:
    assert run.fenced(before, LIBRARY, None, None) == {"LD_PRELOAD": after}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "/sim"),
        ({"LD_LIBRARY_PATH": ""}, "/sim"),  # an empty entry would mean the current folder
        ({"LD_LIBRARY_PATH": "/a:/b"}, "/sim:/a:/b"),
        ({"LD_LIBRARY_PATH": "/sim:/a"}, "/sim:/a"),
        ({"LD_LIBRARY_PATH": "/a:/sim"}, "/sim:/a:/sim"),
    ],
)
def test_the_simulator_comes_before_every_other_driver(before: dict[str, str], after: str) -> None:
    result = run.fenced(before, LIBRARY, Path("/sim"), None)

    assert result["LD_LIBRARY_PATH"] == after
    assert "GPUFENCE_SIM_DRIVER" not in result


def test_the_wish_for_a_driver_beats_an_inherited_one() -> None:
    inherited = {"GPUFENCE_SIM_DRIVER": "470"}

    assert run.fenced(inherited, LIBRARY, Path("/sim"), None)["GPUFENCE_SIM_DRIVER"] == "470"
    assert run.fenced(inherited, LIBRARY, Path("/sim"), "550")["GPUFENCE_SIM_DRIVER"] == "550"
    assert inherited == {"GPUFENCE_SIM_DRIVER": "470"}


@pytest.mark.parametrize("dashes", [["--"], []])
def test_the_programs_own_options_stay_its_own(library: Path, dashes: list[str]) -> None:
    done = gpufence("run", "--lib", library, *dashes, "echo", "--sim", "--", "-x", "")

    assert done.stdout == "--sim -- -x \n"
    assert done.returncode == 0


def test_the_program_gets_the_environment_it_would_have_had(library: Path) -> None:
    # Without a locale Python adds LC_CTYPE to its own environment (PEP 538); nobody asked for it.
    odd = {"ODD": "a b\tc=d", "EMPTY": ""}

    done = gpufence("run", "--lib", library, "--", "env", "-0", **odd)

    assert dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry) == {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPO / "tools"),
        "LD_PRELOAD": str(library),
        **odd,
    }


def test_a_locale_that_the_user_chose_is_passed_on(library: Path) -> None:
    # Started anew: what was chosen is told by what the process was given at its start.
    done = subprocess.run(
        [sys.executable, "-m", "gpufence", "run", "--lib", library, "printenv", "LC_CTYPE"],
        env={**warm_commands.BARE, "LC_CTYPE": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout == "C.UTF-8\n"


def test_a_closed_pipe_ends_the_program_as_it_would_without_us(library: Path) -> None:
    # Python ignores SIGPIPE, and an ignored signal survives exec: yes(1) would see EPIPE instead.
    script = f"'{sys.executable}' -m gpufence run --lib '{library}' -- yes | head -n 1; "
    done = subprocess.run(
        ["bash", "-c", script + 'echo "${PIPESTATUS[0]}"'],
        env=warm_commands.BARE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout == f"y\n{128 + signal.SIGPIPE}\n"
    assert without_loader_warnings(done.stderr) == ""


@pytest.mark.parametrize("status", [0, 1, 3, 125, 255])
def test_the_status_is_the_programs_own(library: Path, status: int) -> None:
    assert (
        gpufence("run", "--lib", library, "--", "sh", "-c", f"exit {status}").returncode == status
    )


def test_a_signal_ends_the_program_and_us_alike(library: Path) -> None:
    done = gpufence("run", "--lib", library, "--", "sh", "-c", "kill -TERM $$")

    assert done.returncode == -signal.SIGTERM


def test_the_program_reads_our_input(library: Path) -> None:
    assert gpufence("run", "--lib", library, "--", "cat", text="a\0b").stdout == "a\0b"


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        (["/does/not/exist"], 127, "no such command"),
        (["does-not-exist"], 127, "no such command"),
        (["/etc/passwd"], 126, "permission denied"),
        (["/tmp"], 126, "permission denied"),
        ([], 125, "no command was given"),
        (["--"], 125, "no command was given"),
        (["--bogus", "--", "true"], 125, "unrecognized arguments: --bogus"),
    ],
)
def test_a_command_that_cannot_run_is_one_line_and_the_agreed_status(
    library: Path, command: list[str], status: int, reason: str
) -> None:
    done = gpufence("run", "--lib", library, *command)

    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert reason in done.stderr


def test_a_file_without_an_interpreter_is_not_executable(library: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("echo hello\n", encoding="utf-8")
    program.chmod(0o755)

    done = gpufence("run", "--lib", library, "--", program)

    assert (done.returncode, "exec format error" in done.stderr) == (126, True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        (b"", "not an ELF file"),
        (b"\x7fEL", "not an ELF file"),
        (b"/* GNU ld script */\nINPUT(libgpufence.so.1)\n", "not an ELF file"),
        (header(bits=1), "a 32-bit library"),
        (header(machine=40), "built for another machine"),
        (header()[:20], "another library"),
    ],
)
def test_what_the_loader_would_ignore_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    # The loader warns and goes on; the program would then run unfenced, which nobody asked for.
    path = tmp_path / "libgpufence.so"
    if content is not None:
        path.write_bytes(content)

    done = gpufence("run", "--lib", path, "--", "echo", "unfenced")

    assert (done.returncode, done.stdout) == (125, "")
    assert reason in done.stderr


@pytest.mark.parametrize("character", [":", " ", "$"])
def test_a_path_that_ld_preload_cannot_hold_is_refused(tmp_path: Path, character: str) -> None:
    path = tmp_path / f"odd{character}folder" / "libgpufence.so"
    path.parent.mkdir()
    path.write_bytes(header())

    done = gpufence("run", "--lib", path, "--", "echo", "unfenced")

    assert (done.returncode, done.stdout) == (125, "")


def test_a_relative_library_still_counts_after_the_program_moves(library: Path) -> None:
    relative = os.path.relpath(library)

    done = gpufence("run", "--lib", relative, "--", "sh", "-c", 'cd / && echo "$LD_PRELOAD"')

    assert done.stdout == f"{library}\n"


def test_a_driver_nobody_knows_is_refused_and_the_known_ones_are_named(library: Path) -> None:
    done = gpufence("run", "--lib", library, "--sim-driver", "999", "--", "true")

    assert done.returncode == 125
    assert "470.256.02" in done.stderr


@pytest.mark.parametrize("text", ["off", "no", "0", "false", "OFF", ""])
def test_a_variable_that_says_no_leaves_the_real_driver(text: str, library: Path) -> None:
    words = ("run", "--lib", library, "--", "sh", "-c", 'echo "${LD_LIBRARY_PATH:-none}"')

    done = gpufence(*words, GPUFENCE_RUN_SIM=text)

    assert (done.returncode, done.stdout) == (0, "none\n")
    assert "simulated" not in done.stderr


def test_a_variable_that_says_neither_yes_nor_no_is_refused(library: Path) -> None:
    done = gpufence("run", "--lib", library, "--", "true", GPUFENCE_RUN_SIM="maybe")

    assert done.returncode == 125
    assert "GPUFENCE_RUN_SIM='maybe' refused" in done.stderr


@pytest.mark.parametrize("version", ["470", "550.163", "580.159.04", "latest"])
def test_a_bare_branch_names_a_driver(version: str) -> None:
    assert run._driver(version) == version


def test_the_known_drivers_are_in_order_and_without_doubles() -> None:
    drivers = locate.known_drivers()

    assert drivers == sorted(set(drivers), key=lambda v: [int(part) for part in v.split(".")])
    assert {"470.256.02", "550.163.01", "580.159.04"} <= set(drivers)
