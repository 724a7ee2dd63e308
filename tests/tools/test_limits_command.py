"""`gpufence run --memory` and `gpufence config`: limits on the command line, and what applies."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path

import pytest
from gpufence import cli, locate
from gpufence.commands import run
from gpufence.config import library, nothing_set
from gpufence.config.option_table import rows
from gpufence.errors import ToolError

from .gpufence_command import gpufence

UUID = "GPU-22222222-2222-2222-2222-222222222222"


def variables(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The GPUFENCE_* variables of what env(1) printed."""
    assert done.returncode == 0, done.stderr
    pairs = (line.split("=", 1) for line in done.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if pair[0].startswith("GPUFENCE_")}


def test_a_limit_makes_a_container_of_its_own(library: Path) -> None:
    first, second = (
        variables(gpufence("run", "--memory", "4g", "--lib", library, "--", "env"))
        for _ in range(2)
    )

    assert first["GPUFENCE_MEMORY_LIMIT"] == second["GPUFENCE_MEMORY_LIMIT"] == "4g"
    assert re.fullmatch(r"run-[0-9]+(-[0-9a-f]+){3}", first["GPUFENCE_CONTAINER"])
    assert first["GPUFENCE_CONTAINER"] != second["GPUFENCE_CONTAINER"]


def test_limits_by_gpu_replace_every_inherited_one(library: Path) -> None:
    state = {"GPUFENCE_STATE_DIR": str(library.parent)}
    inherited = {"GPUFENCE_MEMORY_LIMIT": "9g", "GPUFENCE_MEMORY_LIMIT_7": "9g",
                 "GPUFENCE_CONTAINER": "outer", **state}  # fmt: skip

    done = gpufence("run", "--memory", "1=2g", "--memory", f"{UUID}=50%", "--container", "mine",
                    "--lib", library, "--", "env", **inherited)  # fmt: skip

    assert variables(done) == {
        "GPUFENCE_MEMORY_LIMIT_1": "2g",
        f"GPUFENCE_MEMORY_LIMIT_{UUID}": "50%",
        "GPUFENCE_CONTAINER": "mine",
        **state,
    }


def test_without_a_limit_the_inherited_ones_stay(library: Path) -> None:
    inherited = {"GPUFENCE_MEMORY_LIMIT_7": "9g", "GPUFENCE_CONTAINER": "outer"}

    assert variables(gpufence("run", "--lib", library, "--", "env", **inherited)) == inherited


@pytest.mark.parametrize("limit", ["1x", "-1g", "", "0=1x", "a=1g", "=1g", "01=1g", "GPU-1=1g"])
def test_a_limit_that_cannot_be_read_starts_nothing(library: Path, limit: str) -> None:
    done = gpufence("run", f"--memory={limit}", "--lib", library, "--", "echo", "started")

    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"gpufence: memory limit '{limit}' refused: ")


def test_two_limits_for_one_gpu_are_refused() -> None:
    with pytest.raises(ToolError, match="another one is for the same GPU"):
        run.limit_variables({"memory": ["0=1g", "0=2g"]})


def test_shares_become_variables_and_replace_their_kind_alone(library: Path) -> None:
    state = {"GPUFENCE_STATE_DIR": str(library.parent)}
    inherited = {"GPUFENCE_CORE_LIMIT_7": "9", "GPUFENCE_MEMORY_LIMIT": "1g", **state}

    done = gpufence("run", "--cores", "30", "--soft-cores", "1=60%", "--container", "mine",
                    "--lib", library, "--", "env", **inherited)  # fmt: skip

    assert variables(done) == {
        "GPUFENCE_CORE_LIMIT": "30",
        "GPUFENCE_CORE_SOFT_LIMIT_1": "60%",
        "GPUFENCE_MEMORY_LIMIT": "1g",
        "GPUFENCE_CONTAINER": "mine",
        **state,
    }


def test_terms_become_variables_and_need_no_name(library: Path) -> None:
    inherited = {"GPUFENCE_CORE_LIMIT": "9", "GPUFENCE_WEIGHT": "3", "GPUFENCE_PRIORITY": "high",
                 "GPUFENCE_CONTAINER": "outer"}  # fmt: skip

    done = gpufence("run", "--priority", "Low", "--core-burst=250ms", "--core-floor", "0",
                    "--lib", library, "--", "env", **inherited)  # fmt: skip

    assert variables(done) == {
        **inherited,
        "GPUFENCE_PRIORITY": "Low",
        "GPUFENCE_CORE_BURST": "250ms",
        "GPUFENCE_CORE_FLOOR": "0",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--priority=first"], ["--priority="], ["--weight=0"], ["--weight=1.5"], ["--weight"],
        ["--core-burst=20"], ["--core-burst=11s"], ["--core-floor=101"],
        ["--cores=101"], ["--cores=4g"], ["--cores="], ["--cores=a=3"], ["--cores=1", "--cores=2"],
        ["--soft-cores=50"], ["--cores=30", "--soft-cores=-1"], ["--cores"], ["--memory"],
        ["--container="], ["--unknown"], ["--sim-driver=1"], ["--lib=/does/not/exist"], [],
    ],
    ids=lambda arguments: " ".join(arguments) or "no command",
)  # fmt: skip
def test_wrong_usage_of_run_is_one_line_and_125(library: Path, arguments: list[str]) -> None:
    program = ["--", "echo", "started"] if arguments else []

    done = gpufence("run", "--lib", library, *arguments, *program)

    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gpufence")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["x"], 2), (["--x"], 2), (["config", "x"], 2), (["config", "--x"], 2),
        (["config", "--json=1"], 2), (["doctor", "x"], 2), (["doctor", "-1"], 1),
        (["doctor", "0"], 1), (["doctor", "999999999"], 1), (["doctor", "--x"], 2),
        (["run", "--", "/does/not/exist"], 127), (["run", "--", "/"], 126),
        (["run", "--", ""], 127),
        (["config\n"], 2),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line_and_its_documented_status(
    library: Path, arguments: list[str], status: int
) -> None:
    if arguments[:1] == ["run"]:
        arguments = ["run", "--lib", str(library), *arguments[1:]]

    done = gpufence(*arguments)

    assert (done.returncode, done.stdout) == (status, "")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("ERROR: ld.so:")]
    assert len(lines) == 1
    assert lines[0].startswith("gpufence")


@pytest.mark.parametrize(
    "env",
    [
        {"GPUFENCE_MEMORY_LIMIT": "1gg"},
        {"CUDA_MEM_LIMIT": "0"},
        {"TENSOR_FUSION_CUDA_MEM_LIMIT": "{"},
        {"CUDA_DEVICE_SM_LIMIT": "101"},
        {"ALNAIR_ID": "abcde"},
        {"GPUFENCE_CONFIG": "/does/not/exist"},
    ],
)
def test_an_inherited_limit_that_cannot_be_read_starts_nothing(
    library: Path, env: dict[str, str]
) -> None:
    done = gpufence("run", "--lib", library, "--", "echo", "started", **env)

    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("\n") == 1


def test_config_tells_what_applies() -> None:
    done = gpufence("config", CUDA_DEVICE_MEMORY_LIMIT="4g", VCUDA_MEMORY_LIMIT="2g",
                    GPUFENCE_CORE_LIMIT_1="12.5")  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "memory        every GPU: 2 GiB  VCUDA_MEMORY_LIMIT=2g",
        "cores         GPU 1: 12.5 %  GPUFENCE_CORE_LIMIT_1=12.5",
    ]


def test_config_explain_tells_what_was_overruled_and_where_it_looked(tmp_path: Path) -> None:
    file = tmp_path / "own.conf"
    file.write_text("memory_limit = 8g\nscope = process\n", encoding="utf-8")

    done = gpufence("config", "--explain", GPUFENCE_CONFIG=str(file), GPUFENCE_MEMORY_LIMIT="3g",
                    CUDA_DEVICE_MEMORY_LIMIT="4g", CUDA_REDIRECT="x")  # fmt: skip

    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "memory        every GPU: 3 GiB  GPUFENCE_MEMORY_LIMIT=3g",
        "              not 4 GiB  CUDA_DEVICE_MEMORY_LIMIT=4g [HAMi-core]",
        f"              not 8 GiB  memory_limit = 8g in {file} [gpufence]",
    ]
    assert "scope         process" in lines
    assert f"file          {file} read" in lines
    assert "no effect     CUDA_REDIRECT: internal to HAMi-core" in lines


@pytest.mark.parametrize(
    ("env", "lines"),
    [
        (
            {"CUDA_DEVICE_MEMORY_LIMIT": "0", "VCUDA_MEMORY_LIMIT": "0"},
            ["memory        every GPU: no limit  CUDA_DEVICE_MEMORY_LIMIT=0"],
        ),
        (
            {"CUDA_MEM_LIMIT": "2g", "CUDA_MEM_LIMIT_0": ""},
            [
                "memory        every GPU: 2 GiB  CUDA_MEM_LIMIT=2g",
                "memory        GPU 0 of NVML: no limit  CUDA_MEM_LIMIT_0=",
                "              not 2 GiB  CUDA_MEM_LIMIT=2g [vgpu-manager]",
            ],
        ),
        ({"CUDA_MEM_RATIO": "1.0"}, ["oversubscribe every GPU: off  CUDA_MEM_RATIO=1.0"]),
    ],
)
def test_config_names_who_says_that_there_is_no_limit(
    env: dict[str, str], lines: list[str]
) -> None:
    told = gpufence("config", "--explain", **env).stdout.splitlines()

    assert told[: len(lines) + 1] == [*lines, "scope         container"]


@pytest.mark.parametrize(
    ("env", "lines"),
    [
        (
            {"CUDA_CORE_LIMIT": "30", "CUDA_CORE_SOFT_LIMIT": "20"},
            [
                "cores, idle   every GPU: as cores",
                "              not 20 %  CUDA_CORE_SOFT_LIMIT=20 [vgpu-manager]",
            ],
        ),
        (
            {"GPUFENCE_CORE_LIMIT": "30", "CUDA_CORE_LIMIT": "40", "CUDA_CORE_SOFT_LIMIT": "60"},
            [
                "cores, idle   every GPU: as cores",
                "              not 60 %  CUDA_CORE_SOFT_LIMIT=60 [vgpu-manager]",
            ],
        ),
        (
            {"CUDA_DEVICE_SM_LIMIT": "50", "CUDA_CORE_LIMIT": "30", "CUDA_CORE_SOFT_LIMIT": "80"},
            [
                "cores, idle   every GPU: 50 %  CUDA_DEVICE_SM_LIMIT=50",
                "              not 80 %  CUDA_CORE_SOFT_LIMIT=80 [vgpu-manager]",
            ],
        ),
        (
            {"GPUFENCE_CORE_LIMIT_1": "30", "GPUFENCE_CORE_SOFT_LIMIT": "60"},
            [
                "cores, idle   every GPU: as cores",
                "              not 60 %  GPUFENCE_CORE_SOFT_LIMIT=60 [gpufence]",
                "cores, idle   GPU 1: 60 %  GPUFENCE_CORE_SOFT_LIMIT=60",
            ],
        ),
    ],
)
def test_config_tells_a_soft_share_only_where_it_lifts_the_hard_one(
    env: dict[str, str], lines: list[str]
) -> None:
    told = gpufence("config", "--explain", **env).stdout.splitlines()
    first = next(row for row, line in enumerate(told) if line.startswith("cores, idle"))

    assert told[first : first + len(lines) + 1] == [*lines, "scope         container"]


def test_config_explain_says_who_tells_of_the_drivers_own_limits() -> None:
    told = gpufence("config", "--explain").stdout

    assert "native        not asked: `gpufence doctor` tells the driver's own limits" in told


def test_config_explain_tells_where_lines_go_and_what_the_gpu_is_called(tmp_path: Path) -> None:
    named = gpufence("config", "--explain", VCUDA_DEVICE_NAME="Small", VCUDA_LOG_LEVEL="debug",
                     VCUDA_LOG_SINK="file:/x").stdout.splitlines()  # fmt: skip
    daily = gpufence("config", "--explain", TF_LOG_PATH=str(tmp_path)).stdout.splitlines()
    silent = gpufence("config", "--explain", GPUFENCE_LOG_LEVEL="off").stdout.splitlines()

    assert "log           debug and worse, to /x" in named
    assert "device name   Small, by NVML" in named
    assert f"log           warn and worse, to {tmp_path}/tf.log.YYYY-MM-DD" in daily
    assert "log           off" in silent


def test_config_as_json_counts_bytes() -> None:
    done = gpufence("config", "--json", GPUFENCE_MEMORY_LIMIT_0="1g", GPUFENCE_CONTAINER="mine")
    report = json.loads(done.stdout)

    assert (report["schema"], report["container"]) == (1, "mine")
    assert [(each["gpu"], each["applies"]) for each in report["limits"]] == [
        ("GPU 0", {"bytes": 1 << 30, "source": "GPUFENCE_MEMORY_LIMIT_0=1g", "dialect": "gpufence"})
    ]


def test_config_tells_terms_and_where_they_stand() -> None:
    env = {"GPUFENCE_CORE_LIMIT": "9", "GPUFENCE_WEIGHT": "3", "CUDA_TASK_PRIORITY": "0",
           "GPUFENCE_CORE_FLOOR": "0"}  # fmt: skip
    terms = json.loads(gpufence("config", "--json", **env).stdout)["terms"]

    assert terms == {
        "priority": {"value": "high", "source": "CUDA_TASK_PRIORITY=0"},
        "weight": {"value": 3, "source": "GPUFENCE_WEIGHT=3"},
        "core_burst_ns": None,
        "core_floor_millipercent": {"value": 0, "source": "GPUFENCE_CORE_FLOOR=0"},
    }
    assert gpufence("config", **env).stdout.splitlines()[1:] == [
        "priority      every GPU: high  CUDA_TASK_PRIORITY=0",
        "weight        every GPU: 3  GPUFENCE_WEIGHT=3",
        "floor         every GPU: 0 %  GPUFENCE_CORE_FLOOR=0",
    ]


def test_a_part_and_bytes_of_two_dialects_wait_for_the_gpu() -> None:
    done = gpufence("config", GPUFENCE_MEMORY_LIMIT="50%", VCUDA_MEMORY_LIMIT="2g")

    assert done.stdout.splitlines() == [
        "memory        every GPU: the lowest  of the following, which depends on the GPU",
        "              or 50 % of the GPU  GPUFENCE_MEMORY_LIMIT=50% [gpufence]",
        "              or 2 GiB  VCUDA_MEMORY_LIMIT=2g [vcuda-hook]",
    ]


@pytest.mark.parametrize("as_json", [True, False])
def test_limits_that_cannot_be_read_are_status_four(as_json: bool) -> None:
    done = gpufence("config", *(["--json"] if as_json else []), GPUFENCE_MEMORY_LIMIT="-1g")

    line = "GPUFENCE_MEMORY_LIMIT='-1g' is negative"
    assert done.returncode == 4
    if as_json:
        assert json.loads(done.stdout)["problem"] == {
            "what": "limits refused", "why": line, "fix": "Unset it for no limit"
        }  # fmt: skip
    else:
        expected = f"gpufence: limits refused: {line}. Unset it for no limit.\n"
        assert (done.stdout, done.stderr) == ("", expected)


@pytest.mark.parametrize(("words", "status"), [(("config",), 4), (("run", "--", "env"), 125)])
def test_an_unknown_name_of_ours_is_refused_with_the_nearest(
    library: Path, words: tuple[str, ...], status: int
) -> None:
    if words[0] == "run":
        words = ("run", "--lib", str(library), *words[1:])
    done = gpufence(*words, GPUFENCE_MEMORY_LIMT="4g")

    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == (
        "gpufence: limits refused: unknown variable GPUFENCE_MEMORY_LIMT. "
        "Did you mean GPUFENCE_MEMORY_LIMIT?\n"
    )


def test_config_tells_whom_a_program_would_ask_and_asks_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = str(listener.getsockname()[1])
        done = gpufence("config", HYPERVISOR_IP="127.0.0.1", HYPERVISOR_PORT=port)
        with pytest.raises(BlockingIOError):
            listener.accept()

    asked = f"vgpu.rs's hypervisor at 127.0.0.1 port {port}"
    assert (done.stdout, done.stderr) == (f"to be asked   {asked}, at cuInit\n", "")


def test_nothing_set_is_told_as_such() -> None:
    assert gpufence("config").stdout == "no limit is set\n"


def test_limits_can_be_for_some_gpus(library: Path) -> None:
    words = ("run", "--lib", library, "--memory", "1g", "--cores", "2=30", "--cores", "40")

    flagged = variables(gpufence(*words, "--gpu", "0", "--gpu", UUID, "--", "env"))
    named = variables(gpufence(*words, "--", "env", GPUFENCE_RUN_GPU=f"0,{UUID}"))

    assert flagged.items() >= {
        ("GPUFENCE_MEMORY_LIMIT_0", "1g"),
        (f"GPUFENCE_MEMORY_LIMIT_{UUID}", "1g"),
        ("GPUFENCE_CORE_LIMIT_0", "40"),
        (f"GPUFENCE_CORE_LIMIT_{UUID}", "40"),
        ("GPUFENCE_CORE_LIMIT_2", "30"),
    }
    assert "GPUFENCE_MEMORY_LIMIT" not in flagged
    assert {n: t for n, t in named.items() if "LIMIT" in n} == {
        n: t for n, t in flagged.items() if "LIMIT" in n
    }


def test_oversold_memory_is_a_ratio(library: Path) -> None:
    words = ("run", "--lib", library, "--memory", "4g", "--oversubscribe")

    assert variables(gpufence(*words, "1.5", "--", "env"))["GPUFENCE_OVERSUBSCRIBE"] == "1.5"
    refused = gpufence(*words, "0.5", "--", "env")
    assert (refused.returncode, refused.stdout) == (125, "")


def test_a_gpu_without_a_limit_is_refused(library: Path) -> None:
    done = gpufence("run", "--lib", library, "--gpu", "0", "--", "env")

    assert (done.returncode, "there is no limit for it" in done.stderr) == (125, True)


def test_what_is_plain_at_first_sight_covers_every_name_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nothing_set, "_first_process", list)
    monkeypatch.setattr(nothing_set.os.path, "lexists", lambda _: False)
    names = {name for name, *_ in rows()}
    harmless = {name for name, _, setting, _ in rows() if setting == "IGNORED"}
    harmless.add("NVIDIA_VISIBLE_DEVICES")

    assert nothing_set.nothing_is_set(["PATH", "HOME", *harmless])
    assert not nothing_set.nothing_is_set(["GPUFENCE_MEMORY_LIMT"])
    for name in names - harmless:
        assert not nothing_set.nothing_is_set([name]), name
        assert not nothing_set.nothing_is_set([f"{name}_0"]), name
    assert set(nothing_set.files()) == {
        "/etc/gpufence/gpufence.conf",
        "/overrideEnv",
        "/etc/vgpu-manager/config/vgpu.config",
        "/etc/vcuda/config.yaml",
        "/run/tensor-fusion/shm/shm",
    }


def test_a_file_is_enough_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nothing_set, "_first_process", list)
    monkeypatch.setattr(nothing_set.os.path, "lexists", lambda path: path == "/overrideEnv")

    assert not nothing_set.nothing_is_set(["PATH"])


@pytest.mark.parametrize("found", [(), ("empty.so",)])
def test_without_the_library_that_reads_limits_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...]
) -> None:
    for name in found:
        (tmp_path / name).touch()
    library._function.cache_clear()
    monkeypatch.setattr(locate, "_LIMITS", tuple(tmp_path / name for name in (*found, "none")))

    with pytest.raises(ToolError, match=r"not found|cannot be used") as refused:
        library.parse("size", "1g")

    assert "\n" not in str(refused.value)
    library._function.cache_clear()


@pytest.mark.parametrize(("words", "status"), [(["config"], 1), (["run", "--memory=1g", "x"], 125)])
def test_a_command_without_that_library_fails_with_its_own_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int
) -> None:
    library._function.cache_clear()
    monkeypatch.setattr(locate, "_LIMITS", (tmp_path / "none",))

    assert cli.main(words) == status

    library._function.cache_clear()
