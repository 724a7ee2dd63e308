"""Limits from every kind of source, in the real library: what is granted, refused and said.

How texts are read is the business of test_limits*.py; here the sources are the machine's.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.support.machine import Finished, Sim

MIB = 1 << 20
GIB = 1 << 30
OOM = 2
INVALID_VALUE = 1


@pytest.fixture
def two(sim: Sim) -> Sim:
    """Two GPUs whose contexts cost nothing, so that a limit is granted to the last byte."""
    return sim.with_env(GPUS=2, MEMORY="8GiB", CONTEXT_BYTES=0)


def probe(sim: Sim, tmp_path: Path, *before: str | Path, **env: str) -> Finished:
    """Run limit_probe under the library, in a container of its own, behind `before`."""
    own = {"GPUFENCE_CONTAINER": uuid.uuid4().hex, "GPUFENCE_STATE_DIR": str(tmp_path), **env}
    program = sim.build / "tests" / "limit_probe"
    if before:
        return sim.run(before[0], *before[1:], program, preload=True, env=own)
    return sim.run(program, preload=True, env=own)


def granted(done: Finished) -> list[int]:
    """Bytes granted by each device; the rest must have been refused as out of memory."""
    facts = done.facts
    assert facts["init"] == 0, done.stderr
    sizes = [facts[f"granted {device}"] for device in range(2)]
    codes = [facts[f"refused {device}"] for device in range(2)]
    assert codes == [OOM if size < 4 * GIB else 0 for size in sizes]
    return sizes


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, [4 * GIB, 4 * GIB]),
        ({"GPUFENCE_MEMORY_LIMIT": "1GiB"}, [GIB, GIB]),
        ({"GPUFENCE_MEMORY_LIMIT": "1g", "GPUFENCE_MEMORY_LIMIT_1": "12.5%"}, [GIB, GIB]),
        ({"GPUFENCE_MEMORY_LIMIT_1": "512m"}, [4 * GIB, 512 * MIB]),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m", "CUDA_DEVICE_MEMORY_LIMIT_1": "2048m"},
         [GIB, 2 * GIB]),
        ({"VCUDA_MEMORY_LIMIT": "1g"}, [GIB, GIB]),
        ({"TF_CUDA_MEMORY_LIMIT": "1024"}, [GIB, GIB]),
        ({"GPUFENCE_MEMORY_LIMIT": "0"}, [4 * GIB, 4 * GIB]),
    ],
)  # fmt: skip
def test_a_limit_is_granted_to_the_last_piece_and_no_further(
    two: Sim, tmp_path: Path, env: dict[str, str], expected: list[int]
) -> None:
    done = probe(two, tmp_path, **env)

    assert granted(done) == expected
    assert done.stderr == ""


def refusal(asked_mib: int, device: int, used_mib: int) -> str:
    """How the line about a first refusal begins, at a limit of 1 GiB."""
    return (
        f"gpufence: refused {asked_mib} MiB on device {device}: {used_mib} MiB of its memory limit "
        "of 1024 MiB are used."
    )


def test_a_container_names_its_first_refusal_on_each_gpu(two: Sim, tmp_path: Path) -> None:
    """Once while a process that counted it lives: frameworks meet the limit again and again."""
    container = {
        "GPUFENCE_MEMORY_LIMIT": "1g",
        "GPUFENCE_CONTAINER": "first",
        "GPUFENCE_STATE_DIR": str(tmp_path),
    }
    first = two.spawn("view_commands", preload=True, env=container)
    assert first.stdin
    assert first.stdout
    print("cuda 0", f"alloc {2 * GIB}", f"alloc {4 * GIB}", sep="\n", file=first.stdin, flush=True)
    assert [first.stdout.readline().split()[0] for _ in range(4)] == ["ready", "0", "2", "2"]

    second = probe(two, tmp_path, **container)
    _, said = first.communicate(timeout=30)

    assert [line.startswith(refusal(2048, 0, 0)) for line in said.splitlines()] == [True]
    assert granted(second) == [GIB, GIB]
    assert [line.startswith(refusal(64, 1, 1024)) for line in second.refused] == [True]


@pytest.mark.parametrize(
    "env",
    [
        {"GPUFENCE_MEMORY_LIMIT": "10GBB"},
        {"CUDA_MEM_LIMIT_0": "0"},
        {"CUDA_DEVICE_SM_LIMIT": "101"},
        {"TENSOR_FUSION_CUDA_MEM_LIMIT": '{"0": "2g"}'},
        {"VCUDA_MEMORY_LIMIT": "(1024 * 1024 * 1024 * 10)"},
        {"ALNAIR_ID": "abcde"},
        {"GPUFENCE_CONFIG": "/does/not/exist"},
        {"GPUFENCE_OVERSUBSCRIBE": "sometimes"},
    ],
)
def test_what_cannot_be_read_fails_cuinit_with_one_line(
    two: Sim, tmp_path: Path, env: dict[str, str]
) -> None:
    done = probe(two, tmp_path, **env)

    assert done.facts == {"init": INVALID_VALUE}
    assert done.stderr.startswith("gpufence: cuInit fails on purpose: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("limit", [{}, {"GPUFENCE_MEMORY_LIMIT": "1GiB"}])
def test_an_unknown_name_of_ours_fails_cuinit_with_or_without_a_limit(
    two: Sim, tmp_path: Path, limit: dict[str, str]
) -> None:
    done = probe(two, tmp_path, GPUFENCE_MEMORY_LIMT="4g", **limit)

    assert done.facts == {"init": INVALID_VALUE}
    assert done.stderr == (
        "gpufence: cuInit fails on purpose: unknown variable GPUFENCE_MEMORY_LIMT. "
        "Did you mean GPUFENCE_MEMORY_LIMIT?\n"
    )


def test_names_that_the_tools_and_kubernetes_set_are_no_typos(two: Sim, tmp_path: Path) -> None:
    known = {"GPUFENCE_RUN_SIM": "1", "GPUFENCE_STATUS_JSON": "1", "GPUFENCE_PORT_80_TCP": "x"}
    done = probe(two, tmp_path, GPUFENCE_MEMORY_LIMIT="1GiB", **known)

    assert granted(done) == [GIB, GIB]
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["GPUFENCE_MEMORY_LIMIT", "GPUFENCE_MEMORY_LIMT"])
def test_a_program_without_the_gpu_does_not_notice_an_unreadable_limit(sim: Sim, name: str) -> None:
    done = sim.run("/bin/echo", "x", preload=True, env={name: "x"})

    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")


def test_of_two_dialects_the_lower_holds_with_one_warning(two: Sim, tmp_path: Path) -> None:
    done = probe(two, tmp_path, CUDA_DEVICE_MEMORY_LIMIT="2g", VCUDA_MEMORY_LIMIT="1g")

    assert granted(done) == [GIB, GIB]
    assert done.stderr == (
        "gpufence: VCUDA_MEMORY_LIMIT=1g applies, because it is lower than "
        "CUDA_DEVICE_MEMORY_LIMIT=2g\n"
    )


def test_what_has_no_effect_is_said_once(two: Sim, tmp_path: Path) -> None:
    done = probe(two, tmp_path, GPUFENCE_CORE_LIMIT="25", GPUFENCE_OVERSUBSCRIBE="1.5")

    assert granted(done) == [4 * GIB, 4 * GIB]
    assert done.stderr == (
        "gpufence: GPUFENCE_OVERSUBSCRIBE=1.5 has no effect without a memory limit\n"
    )


@pytest.mark.parametrize(
    ("env", "line"),
    [
        (
            {"CUDA_CORE_SOFT_LIMIT": "60"},
            "CUDA_CORE_SOFT_LIMIT=60 has no effect without CUDA_CORE_LIMIT",
        ),
        (
            {"TENSOR_FUSION_CUDA_MEM_LIMIT": '{"0": 1073741824}', "ENABLE_CUDA_HOOKS": "false"},
            "ENABLE_CUDA_HOOKS=false switches off the limits of vgpu.rs",
        ),
        (
            {"GPUFENCE_MEMORY_LIMIT": "1g", "GPUFENCE_DISABLE": "1"},
            "GPUFENCE_DISABLE=1 switches off the limits of all variables",
        ),
    ],
)
def test_what_leaves_no_limit_at_all_is_said(
    two: Sim, tmp_path: Path, env: dict[str, str], line: str
) -> None:
    done = probe(two, tmp_path, **env)

    assert granted(done) == [4 * GIB, 4 * GIB]
    assert done.stderr == f"gpufence: {line}\n"


def test_the_config_file_holds_where_the_environment_is_silent(two: Sim, tmp_path: Path) -> None:
    file = tmp_path / "gpufence.conf"
    file.write_text("memory_limit = 1g\nlog_level = info\n", encoding="utf-8")

    done = probe(two, tmp_path, GPUFENCE_CONFIG=str(file))
    overruled = probe(two, tmp_path, GPUFENCE_CONFIG=str(file), GPUFENCE_MEMORY_LIMIT="2g")

    assert granted(done) == [GIB, GIB]
    assert f"(memory_limit = 1g in {file}"[:60] in done.stderr  # the file's level lets info pass
    assert granted(overruled) == [2 * GIB, 2 * GIB]


def test_alnairs_workspace_is_read(two: Sim, tmp_path: Path) -> None:
    (tmp_path / "limits").write_text("vmem:1073741824", encoding="utf-8")

    done = probe(two, tmp_path, ALNAIR_ID="abcde", ALNAIR_WORKSPACE_PATH=str(tmp_path))

    assert granted(done) == [GIB, GIB]


def test_vgpu_rs_names_gpus_as_nvml_does(two: Sim, tmp_path: Path) -> None:
    limits = {"TENSOR_FUSION_CUDA_MEM_LIMIT": '{"1": 1073741824}'}

    done = probe(two, tmp_path, **limits)

    assert granted(done) == [4 * GIB, GIB]


@pytest.mark.parametrize(
    "level", ["LIBCUDA_LOG_LEVEL=0", "VCUDA_LOG_LEVEL=off", "TF_LOG_LEVEL=error"]
)
def test_a_dialects_log_level_silences_warnings(two: Sim, tmp_path: Path, level: str) -> None:
    name, _, text = level.partition("=")

    done = probe(two, tmp_path, GPUFENCE_MEMORY_LIMIT="100g", **{name: text})
    ours = probe(two, tmp_path, GPUFENCE_MEMORY_LIMIT="100g", GPUFENCE_LOG_LEVEL="warn",
                 **{name: text})  # fmt: skip

    assert done.stderr == ""
    assert "is more than the GPU has" in ours.stderr


def test_disabled_holds_what_files_say_and_nothing_else(two: Sim, tmp_path: Path) -> None:
    file = tmp_path / "gpufence.conf"
    file.write_text("memory_limit_1 = 1g\n", encoding="utf-8")

    done = probe(two, tmp_path, GPUFENCE_DISABLE="1", VCUDA_MEMORY_LIMIT="512m",
                 GPUFENCE_CONFIG=str(file))  # fmt: skip

    assert granted(done) == [4 * GIB, GIB]
    assert done.stderr == (
        "gpufence: GPUFENCE_DISABLE=1 switches off the limits of all variables\n"
    )


def test_unequal_ordinals_are_warned_of_where_cuda_counts_otherwise(
    two: Sim, tmp_path: Path
) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "1g", "CUDA_DEVICE_MEMORY_LIMIT_1": "2g"}

    plain = probe(two, tmp_path, **limits)
    turned = probe(two, tmp_path, CUDA_VISIBLE_DEVICES="1,0", **limits)

    assert granted(plain) == granted(turned) == [GIB, 2 * GIB]
    assert plain.stderr == ""
    assert turned.stderr == (
        "gpufence: CUDA_DEVICE_MEMORY_LIMIT_0=1g numbers GPUs as CUDA does in this process: "
        "CUDA's GPU 0 is GPU 1 of NVML and nvidia-smi. Name GPUs by UUID\n"
    )


def test_the_hypervisors_file_limits_the_gpu_it_names(two: Sim, tmp_path: Path) -> None:
    second = uuid.UUID(two.run("sim_devices").facts["devices"][1]["uuid"])
    content = bytearray(35504)
    struct.pack_into("<I", content, 0, 1)
    at = 8 + 5 * 136
    content[at : at + 40] = f"GPU-{second}".encode()
    struct.pack_into("<I4xQ", content, at + 64, 100, GIB)
    struct.pack_into("<I", content, at + 128, 1)
    (tmp_path / "shm").write_bytes(content)

    done = probe(two, tmp_path, SHM_PATH=str(tmp_path))

    assert granted(done) == [4 * GIB, GIB]


TOO_MUCH = {"GPUFENCE_MEMORY_LIMIT": "100g"}  # which is worth a warning


@pytest.mark.parametrize(
    ("env", "file"),
    [
        ({"GPUFENCE_LOG_FILE": "{}/ours", "VCUDA_LOG_SINK": "none"}, "ours"),
        ({"VCUDA_LOG_SINK": "file:{}/sink"}, "sink"),
        ({"VCUDA_LOG_SINK": "file", "VCUDA_LOG_FILE": "{}/named"}, "named"),
        ({"TF_LOG_PATH": "{}"}, "tf.log.%Y-%m-%d"),
        ({"TF_LOG_PATH": "{}/prefix"}, "prefix.%Y-%m-%d"),
    ],
)
def test_lines_go_where_a_dialect_sends_them(
    two: Sim, tmp_path: Path, env: dict[str, str], file: str
) -> None:
    named = {name: text.format(tmp_path) for name, text in env.items()}
    days = [time.strftime(file, time.gmtime())]

    done = probe(two, tmp_path, **TOO_MUCH, **named)

    days.append(time.strftime(file, time.gmtime()))
    said = "".join((tmp_path / day).read_text() for day in set(days) if (tmp_path / day).exists())
    assert "is more than the GPU has" in said
    assert (done.stderr, done.facts["init"]) == ("", 0)


@pytest.mark.parametrize(("sink", "silent"), [("null", True), ("stdout", False), ("x", False)])
def test_a_sink_is_nothing_or_stderr_but_never_stdout(
    two: Sim, tmp_path: Path, sink: str, silent: bool
) -> None:
    done = probe(two, tmp_path, VCUDA_LOG_SINK=sink, **TOO_MUCH)

    assert (done.stderr == "") == silent
    assert done.facts["init"] == 0  # stdout is the program's own


@pytest.mark.parametrize(
    ("api", "variable", "library", "other"),
    [
        ("cuda", "TF_CUDA_LIB_PATH", "libcuda.so.1", "libnvidia-ml.so.1"),
        ("nvml", "TF_NVML_LIB_PATH", "libnvidia-ml.so.1", "libcuda.so.1"),
    ],
)
def test_a_library_path_is_tried_first(
    sim: Sim, api: str, variable: str, library: str, other: str
) -> None:
    def status(path: Path | str) -> str:
        env = {"LD_LIBRARY_PATH": "/nowhere", variable: str(path), "GPUFENCE_LOG_LEVEL": "off"}
        done = sim.run("library_path", api, preload=True, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    if status("/nowhere/lib.so") == "0":
        pytest.skip("this machine has a driver that the loader finds")
    assert status(sim.build / "sim" / library) == "0"
    # The other of the two, and the library itself, are no driver of this kind.
    for wrong in (sim.build / "sim" / other, sim.build / "lib" / "libgpufence.so"):
        assert status(wrong) == status("/nowhere/lib.so")


def namespaces_or_skip(*options: str) -> list[str]:
    """unshare(1) with these options, where this machine allows it."""
    tool = shutil.which("unshare")
    if tool is None or subprocess.run([tool, *options, "true"], check=False).returncode != 0:
        pytest.skip(f"this machine does not allow `unshare {' '.join(options)}`")
    return [str(tool), *options]


def test_a_shell_beside_the_first_process_falls_back_to_its_variables(
    two: Sim, tmp_path: Path
) -> None:
    unshare = namespaces_or_skip("--user", "--map-root-user", "--mount", "--pid", "--fork",
                                 "--mount-proc")  # fmt: skip
    # The shell is process 1 and keeps the variable; the program starts without it.
    script = 'env -u GPUFENCE_MEMORY_LIMIT "$0"; true'

    done = probe(two, tmp_path, *unshare, "sh", "-c", script, GPUFENCE_MEMORY_LIMIT="1g")

    assert granted(done) == [GIB, GIB]


def in_etc(two: Sim, tmp_path: Path, name: str, content: bytes, **env: str) -> Finished:
    """Probe with one more file in /etc, which only that process sees."""
    unshare = namespaces_or_skip("--user", "--map-root-user", "--mount")
    etc = tmp_path / "etc"
    (etc / name).parent.mkdir(parents=True)
    (etc / name).write_bytes(content)
    for kept in ("passwd", "ld.so.cache"):
        if Path("/etc", kept).exists():
            shutil.copy(Path("/etc", kept), etc / kept)
    script = f'mount --bind {etc} /etc && exec "$0"'
    return probe(two, tmp_path, *unshare, "sh", "-c", script, **env)


def test_vcudas_file_beats_its_variable(two: Sim, tmp_path: Path) -> None:
    content = b"# of the node\nmemory_limit: 1g\n"

    done = in_etc(two, tmp_path, "vcuda/config.yaml", content, VCUDA_MEMORY_LIMIT="2g")

    assert granted(done) == [GIB, GIB]


def test_vgpu_managers_file_is_joined_by_uuid(two: Sim, tmp_path: Path) -> None:
    second = uuid.UUID(two.run("sim_devices").facts["devices"][1]["uuid"])
    content = bytearray(8192)
    struct.pack_into("<4I", content, 0, 0x56474346, 1, 2560, 16)
    # The host's GPU 9 is our second one.
    at = 512 + 9 * 128
    content[at + 8 : at + 48] = f"GPU-{second}".encode()
    struct.pack_into("<Q", content, at + 56, GIB)
    struct.pack_into("<I", content, at + 88, 1)
    struct.pack_into("<I", content, at + 96, 1)

    done = in_etc(two, tmp_path, "vgpu-manager/config/vgpu.config", bytes(content))

    assert granted(done) == [4 * GIB, GIB]
