"""`gpufence run --mode mps`, devices of `gpufence cdi`, and what `gpufence config` says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .gpufence_command import gpufence, header

THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"


@pytest.fixture
def daemon(tmp_path: Path) -> dict[str, str]:
    """The variable of a folder that looks as an MPS daemon's does."""
    folder = tmp_path / "pipes"
    folder.mkdir()
    (folder / "control").touch()
    return {PIPES: str(folder)}


def mode_of(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The variables of a core limit and of MPS among what env(1) printed."""
    assert done.returncode == 0, done.stderr
    pairs = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return {name: pairs[name] for name in pairs if "CORE" in name or name == THREADS}


def started(library: Path, *arguments: str, **env: str) -> dict[str, str]:
    """The same of a program that `gpufence run` started."""
    return mode_of(gpufence("run", "--lib", library, *arguments, "--", "env", **env))


@pytest.mark.parametrize(
    ("cores", "percent"),
    [(["50"], "50"), (["12.9"], "12"), (["1=30", "0=30"], "30"), (["99.9"], "99"), (["1"], "1")],
)
def test_the_core_limit_becomes_a_percentage_of_threads(
    library: Path, daemon: dict[str, str], cores: list[str], percent: str
) -> None:
    words = [word for each in cores for word in ("--cores", each)]

    found = started(library, *words, "--mode", "mps", **daemon)

    assert (found.pop("GPUFENCE_CORE_MODE"), found.pop(THREADS)) == ("mps", percent)
    assert sorted(found.values()) == sorted(each.rpartition("=")[2] for each in cores)


@pytest.mark.parametrize(
    ("inherited", "kept"), [("20", "20"), ("12.5", "12.5"), ("70", "50"), ("0", "50"), ("x", "50")]
)
def test_a_percentage_that_is_set_stays_if_it_is_lower(
    library: Path, daemon: dict[str, str], inherited: str, kept: str
) -> None:
    env = {**daemon, THREADS: inherited}

    assert started(library, "--cores", "50", "--mode", "mps", **env)[THREADS] == kept


@pytest.mark.parametrize("none", ["0", "100"])
def test_no_limit_sets_no_percentage_and_needs_no_daemon(library: Path, none: str) -> None:
    found = started(library, "--cores", none, "--mode", "mps", **{PIPES: "/nonexistent"})

    assert THREADS not in found


def test_a_mode_that_is_inherited_counts_for_a_limit_that_is_given(
    library: Path, daemon: dict[str, str]
) -> None:
    env = {**daemon, "GPUFENCE_CORE_MODE": "mps"}

    assert started(library, "--cores", "40", **env)[THREADS] == "40"
    assert THREADS not in started(library, "--memory", "1g", **env)
    back = started(library, "--cores", "40", "--mode", "time", **env)
    assert (back["GPUFENCE_CORE_MODE"], THREADS in back) == ("time", False)


@pytest.mark.parametrize(
    ("arguments", "env", "text"),
    [
        (["--mode", "mps"], {}, "--mode mps refused: there is no core limit. Give --cores, too"),
        (["--memory", "1g", "--mode", "mps"], {}, "there is no core limit"),
        (["--cores", "9", "--mode", "threads"], {}, "mode 'threads' refused"),
        (["--cores", "0=9", "--cores", "1=8", "--mode", "mps"], {}, "8 % and 9 % refused"),
        (["--cores", "0=9", "--cores", "1=0", "--mode", "mps"], {}, "MPS has one percentage"),
        (["--cores", "0.9", "--mode", "mps"], {}, "MPS gives 1 % or more"),
        (["--cores", "9", "--soft-cores", "20", "--mode", "mps"], {}, "--soft-cores beside"),
        (["--cores", "9", "--priority", "low", "--mode", "mps"], {}, "--priority beside"),
        (["--cores", "9", "--weight", "2", "--mode", "mps"], {}, "--weight beside"),
        (["--cores", "9", "--core-burst", "1s", "--mode", "mps"], {}, "--core-burst beside"),
        (["--cores", "9", "--core-floor", "2", "--mode", "mps"], {}, "--core-floor beside"),
        (["--cores", "9", "--mode", "mps"], {"GPUFENCE_WEIGHT": "2"}, "GPUFENCE_WEIGHT=2 has no"),
        (["--cores", "9", "--mode", "mps"], {PIPES: "/nonexistent"}, "has its pipes in /nonexist"),
    ],
)
def test_what_mode_mps_cannot_do_starts_nothing(
    library: Path, daemon: dict[str, str], arguments: list[str], env: dict[str, str], text: str
) -> None:
    done = gpufence("run", "--lib", library, *arguments, "--", "echo", "x", **{**daemon, **env})

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    assert text in done.stderr


def test_config_says_that_threads_are_limited() -> None:
    env = {"GPUFENCE_CORE_LIMIT": "30", "GPUFENCE_CORE_MODE": "mps"}

    text = gpufence("config", **env).stdout.splitlines()
    mode = json.loads(gpufence("config", "--json", **env).stdout)["mode"]
    time = json.loads(gpufence("config", "--json", GPUFENCE_CORE_LIMIT="30").stdout)["mode"]

    assert text == [
        "cores         every GPU: 30 %  GPUFENCE_CORE_LIMIT=30",
        "mode          every GPU: mps: cores are MPS's threads, not GPU time  "
        "GPUFENCE_CORE_MODE=mps",
    ]
    assert mode == {"value": "mps", "source": "GPUFENCE_CORE_MODE=mps"}
    assert time is None


def test_a_device_brings_percentage_and_pipes_and_a_file_without_them(
    tmp_path: Path, daemon: dict[str, str]
) -> None:
    lib = tmp_path / "libgpufence.so"
    lib.write_bytes(header())
    words = ["--lib", lib, "--limits-dir", tmp_path / "limits", "--mps-dir", daemon[PIPES]]
    words += ["--name", "a", "--cores", "30.5", "--mode", "mps", "--name", "b", "--cores", "20"]

    done = gpufence("cdi", "generate", "--format", "json", *words, **{THREADS: "7"})
    first, second = (each["containerEdits"] for each in json.loads(done.stdout)["devices"])

    assert first["env"] == [
        "GPUFENCE_CORE_LIMIT=30.5", "GPUFENCE_CORE_MODE=mps", f"{THREADS}=30",
        f"{PIPES}=/run/nvidia-mps",
    ]  # fmt: skip
    limit, pipes = first["mounts"]
    assert (pipes["hostPath"], pipes["containerPath"]) == (daemon[PIPES], "/run/nvidia-mps")
    text = Path(limit["hostPath"]).read_text(encoding="utf-8")
    assert text.splitlines()[1:3] == ["core_limit = 30.5", "core_mode = mps"]
    assert "CUDA" not in text
    assert second["env"] == ["GPUFENCE_CORE_LIMIT=20"]
    assert len(second["mounts"]) == 1
    assert "MPS" not in done.stderr


def test_a_missing_daemon_of_a_device_is_told(tmp_path: Path) -> None:
    lib = tmp_path / "libgpufence.so"
    lib.write_bytes(header())
    words = ["--lib", lib, "--limits-dir", tmp_path / "limits", "--mps-dir", tmp_path, "--no-node"]

    done = gpufence("cdi", "generate", *words, "--cores", "9", "--mode", "mps", "--private-state")

    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert f"start MPS: no MPS control daemon has its pipes in {tmp_path}." in done.stderr
