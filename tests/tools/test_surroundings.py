"""`gpufence doctor` on made-up surroundings: every finding, its remedy, and what stays quiet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpufence.checks import gpu_checks, namespaces, surroundings
from gpufence.checks.finding import Finding
from gpufence.checks.surroundings import Scene
from gpufence.machine import process

MACHINE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]


def elf(path: Path, machine: int = MACHINE, width: int = 2, needs: str = "") -> Path:
    """A file that begins like a library, with the name of a version in it."""
    start = b"\x7fELF" + bytes([width, 1, 1])
    head = start.ljust(16, b"\0") + (3).to_bytes(2, "little") + machine.to_bytes(2, "little")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"\0" + needs.encode() + b"\0")
    path.chmod(0o644)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root folder of an imagined container, with the usual folders."""
    for name in ("run", "tmp", "dev/shm", "etc"):
        (tmp_path / "root" / name).mkdir(parents=True)
    for name in ("tmp", "dev/shm"):
        (tmp_path / "root" / name).chmod(0o1777)
    return tmp_path / "root"


def scene(root: Path, libc: str = "", **variables: str) -> Scene:
    """A process in that container; `libc` is the text in its C library."""
    maps = ""
    if libc:
        (root / "lib").mkdir(exist_ok=True)
        (root / "lib" / "libc.so.6").write_text(libc, encoding="utf-8")
        maps = "7f0000000000-7f0000001000 r-xp 00000000 fe:00 2 /lib/libc.so.6\n"
    environment = tuple(f"{name}={value}" for name, value in variables.items())
    subject = process.Process(os.getpid(), "app", process.parse_maps(maps), (), False, environment)
    return Scene(subject, str(root))


def whys(found: Finding) -> tuple[list[str], list[str]]:
    """Problems and notes as text."""
    return [str(each) for each in found.problems], [str(each) for each in found.notes]


LIBC = "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n"


@pytest.mark.parametrize(
    ("libc", "needs", "facts", "problem"),
    [
        (LIBC, "GLIBC_2.34", {"here": "2.36", "needed": "2.34"}, ""),
        (LIBC, "GLIBC_2.9\0GLIBC_2.10", {"here": "2.36", "needed": "2.10"}, ""),
        (LIBC, "GLIBC_2.36", {"here": "2.36", "needed": "2.36"}, ""),
        (LIBC, "GLIBC_2.2.5", {"here": "2.36", "needed": "2.2"}, ""),
        (LIBC, "", {"here": "2.36", "needed": None}, ""),
        (LIBC, "GLIBC_2.38", {"here": "2.36", "needed": "2.38"}, "glibc 2.36 is too old"),
        (
            LIBC.replace("2.36", "2.31"),
            "GLIBC_2.17\0GLIBC_ABI_DT_RELR",
            {"here": "2.31", "needed": "2.36"},
            "glibc 2.31 is too old",
        ),
    ],
)
def test_the_librarys_floor_is_compared_with_the_c_library(
    root: Path, libc: str, needs: str, facts: dict[str, str], problem: str
) -> None:
    elf(root / "usr" / "libgpufence.so", needs=needs)

    found = surroundings.glibc(scene(root, libc), "/usr/libgpufence.so")
    problems, notes = whys(found)

    assert found.facts == facts
    assert (len(problems), notes) == (1 if problem else 0, [])
    assert all(problem in text and "glibc 2.17" in text for text in problems)


def test_another_c_library_is_told(root: Path) -> None:
    found = surroundings.glibc(scene(root), None)

    assert found.facts["here"] is None
    assert "Use an image with glibc" in whys(found)[1][0]


def test_no_preload_file_is_fine(root: Path) -> None:
    found = surroundings.preload(scene(root))

    assert (found.facts["present"], whys(found)) == (False, ([], []))


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("/a.so\n", ("/a.so",)),
        ("/a.so:/b.so /c.so\t/d.so\n\n", ("/a.so", "/b.so", "/c.so", "/d.so")),
        ("# /a.so\n/b.so # /c.so\n", ("/b.so",)),
        ("# /a.so\r/b.so\v/c.so\n", ()),
        ("/a.so\r\n/b\u00a0c.so\n", ("/a.so\r", "/b\u00a0c.so")),
        ("", ()),
    ],
)
def test_the_preload_file_is_read_as_the_loader_does(text: str, entries: tuple[str, ...]) -> None:
    assert surroundings.parse_preload_file(text) == entries


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("missing", "it does not exist"),
        ("machine", "built for another machine"),
        ("width", "a 32-bit library"),
        ("text", "not an ELF file"),
        ("folder", "is a directory"),
        ("private", "not everybody may read it"),
    ],
)
def test_a_preload_that_the_loader_would_skip_is_a_problem(
    root: Path, content: str, why: str
) -> None:
    (root / "etc" / "ld.so.preload").write_text("/opt/libgpufence.so\n/opt/other.so\n")
    path = root / "opt" / "libgpufence.so"
    elf(root / "opt" / "other.so")
    if content == "machine":
        elf(path, machine=MACHINE ^ 1)
    elif content == "width":
        elf(path, width=1)
    elif content == "text":
        path.write_text("INPUT(x)")
    elif content == "folder":
        path.mkdir()
    elif content == "private":
        elf(path).chmod(0o600)

    problems, notes = whys(surroundings.preload(scene(root)))

    assert (len(problems), notes) == (1, [])
    assert problems[0].startswith("/etc/ld.so.preload names '/opt/libgpufence.so': ")
    assert why in problems[0]


def test_a_foreign_preload_that_is_missing_is_a_note(root: Path) -> None:
    elf(root / "opt" / "libgpufence.so")
    (root / "etc" / "ld.so.preload").write_text("/opt/libgpufence.so\n/gone.so\n/$LIB/x.so\n")

    problems, notes = whys(surroundings.preload(scene(root)))

    assert (problems, len(notes)) == ([], 1)
    assert "'/gone.so'" in notes[0]


def test_a_preload_file_that_cannot_be_read_is_a_problem(root: Path) -> None:
    (root / "etc" / "ld.so.preload").mkdir()

    assert "cannot be read" in whys(surroundings.preload(scene(root)))[0][0]


def test_a_preload_file_of_one_user_is_a_problem(root: Path) -> None:
    (root / "etc" / "ld.so.preload").write_text("")
    (root / "etc" / "ld.so.preload").chmod(0o600)

    assert "not for everybody" in whys(surroundings.preload(scene(root)))[0][0]


def test_terms_are_told_beside_the_limits(root: Path) -> None:
    found, _ = surroundings.limits(
        scene(root, GPUFENCE_CORE_LIMIT="30", GPUFENCE_PRIORITY="low", GPUFENCE_CORE_BURST="0")
    )

    assert found.facts["terms"] == [
        {"term": "priority", "value": "low", "source": "GPUFENCE_PRIORITY=low"},
        {"term": "burst", "value": "none", "source": "GPUFENCE_CORE_BURST=0"},
    ]
    assert "priority: low  GPUFENCE_PRIORITY=low" in found.told


def test_limits_are_told_as_the_library_reads_them(root: Path) -> None:
    found, claims = surroundings.limits(
        scene(root, CUDA_DEVICE_MEMORY_LIMIT="4g", VCUDA_MEMORY_LIMIT="2g")
    )

    assert found.facts["limits"] == [
        {"kind": "memory", "gpu": "every GPU", "amount": "2 GiB", "source": "VCUDA_MEMORY_LIMIT=2g"}
    ]
    assert claims is not None


def test_an_unreadable_limit_is_a_problem(root: Path) -> None:
    found, claims = surroundings.limits(scene(root, GPUFENCE_MEMORY_LIMIT="10GBB"))

    assert (found.facts["readable"], claims) == (False, None)
    assert "so cuInit fails" in whys(found)[0][0]


def folders(root: Path, **variables: str) -> Finding:
    """The finding about folders, with the limits of these variables."""
    here = scene(root, **variables)
    return surroundings.folders(here, surroundings.limits(here)[1])


def test_the_first_folder_for_every_user_is_told(root: Path) -> None:
    (root / "run" / "gpufence").mkdir(mode=0o755)

    found = folders(root)

    assert found.facts["state"] == {
        "/run/gpufence": "is not for every user to write to",
        "/dev/shm": None,
    }
    assert "in /dev/shm" in found.told[0]
    assert whys(found) == ([], [])


def test_without_any_folder_a_limit_cannot_hold(root: Path) -> None:
    for name in ("run", "dev/shm", "tmp"):
        (root / name).rmdir()
        (root / name).write_text("")

    limited = folders(root, GPUFENCE_MEMORY_LIMIT="1g")
    process_scope = folders(root, GPUFENCE_MEMORY_LIMIT="1g", GPUFENCE_SCOPE="process")
    unlimited = folders(root)

    assert "no folder for the container's ledger" in whys(limited)[0][0]
    assert whys(process_scope)[0] == []
    assert (len(unlimited.problems), len(unlimited.notes)) == (0, 1)


def test_a_named_state_folder_is_the_only_one(root: Path) -> None:
    found = folders(root, GPUFENCE_MEMORY_LIMIT="1g", GPUFENCE_STATE_DIR="/srv/state/a")

    assert list(found.facts["state"]) == ["/srv/state/a"]
    assert "does not exist, nor does the folder above it" in whys(found)[0][0]


def test_a_node_folder_that_cannot_be_used_is_a_problem(root: Path) -> None:
    (root / "etc" / "node").write_text("")

    found = folders(root, GPUFENCE_CORE_LIMIT="30", GPUFENCE_NODE_DIR="/etc/node")

    assert "GPUFENCE_NODE_DIR=/etc/node: it is no folder" in whys(found)[0][0]


def test_the_containers_name_is_the_librarys(root: Path) -> None:
    named = folders(root, GPUFENCE_MEMORY_LIMIT="1g", GPUFENCE_CONTAINER="a")
    of_pod = folders(root, CUDA_MEM_LIMIT="1g", VGPU_POD_UID="uid", VGPU_CONTAINER_NAME="main")
    derived = folders(root)

    assert (named.facts["container"], of_pod.facts["container"]) == ("a", "uid_main")
    assert str(derived.facts["container"]).startswith("ns")


V1 = "12:memory:/docker/abc\n1:name=systemd:/docker/abc\n"
V2 = "0::/system.slice/docker-abc.scope\n"


@pytest.mark.parametrize(
    ("lines", "version", "path"),
    [
        (V1, "v1", "/docker/abc"),
        (V2, "v2", "/system.slice/docker-abc.scope"),
        (V1 + "0::/\n", "hybrid", "/docker/abc"),
        ("1:name=systemd:/\n0::/x\n", "v2", "/x"),
        ("", "none", None),
        ("garbage\n", "none", None),
        (None, "unknown", None),
    ],
)
def test_the_cgroup_layout_is_read_from_proc(
    tmp_path: Path, lines: str | None, version: str, path: str | None
) -> None:
    if lines is not None:
        (tmp_path / "cgroup").write_text(lines, encoding="utf-8")

    found = namespaces.cgroup(tmp_path, {})

    assert (found.facts["version"], found.facts["path"]) == (version, path)
    assert whys(found) == ([], [])


@pytest.mark.parametrize("name", ["MANAGER_COMPATIBILITY_MODE", "ENV_COMPATIBILITY_MODE"])
@pytest.mark.parametrize(
    ("text", "lines", "note"),
    [
        ("0", V1, ""),
        ("1", V1, ""),
        ("2", V2, ""),
        ("102", V2, ""),
        ("100", V1, ""),
        ("201", V1 + V2, ""),
        ("1", V2, "it says cgroup v1, and this is v2"),
        ("102", V1, "it says cgroup v2, and this is v1"),
        ("3", V1, "no sum of"),
        ("400", V1, "no sum of"),
        ("-1", V1, "no sum of"),
        ("", V1, "no sum of"),
        ("99999999999", V1, "no sum of"),
    ],
)
def test_a_compatibility_mode_is_compared_with_what_is_there(
    tmp_path: Path, name: str, text: str, lines: str, note: str
) -> None:
    (tmp_path / "cgroup").write_text(lines, encoding="utf-8")

    found = namespaces.cgroup(tmp_path, {name: text})
    problems, notes = whys(found)

    assert (problems, len(notes)) == ([], 1 if note else 0)
    assert note in "".join(notes)


def test_numbers_in_nested_pid_namespaces_are_told(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nNSpid:\t4711\t1\n", encoding="utf-8")
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns" / "pid").write_text("")

    found = namespaces.pid_namespace(tmp_path)

    assert (found.facts["numbers"], found.facts["first"]) == ([4711, 1], False)


def test_a_missing_proc_is_a_note(tmp_path: Path) -> None:
    found = namespaces.pid_namespace(tmp_path)

    assert (found.facts["namespace"], len(found.notes)) == (None, 1)


def library(version: str, simulated: bool = False) -> gpu_checks.Driver:
    """An open driver library."""
    return gpu_checks.Driver("libcuda.so.1", f"/x/libcuda.so.{version}", version, simulated)


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 2024\n"


@pytest.mark.parametrize(
    ("text", "kind", "version"),
    [(OPEN, "open", "580.159.04"), (CLOSED, "proprietary", "470.256.02"), ("", None, None)],
)
def test_the_kernel_module_is_told_with_its_kind(
    root: Path, text: str, kind: str | None, version: str | None
) -> None:
    (root / "proc" / "driver" / "nvidia").mkdir(parents=True)
    (root / "proc" / "driver" / "nvidia" / "version").write_text(text)
    for name in ("nvidiactl", "nvidia0", "nvidia-uvm"):
        (root / "dev" / name).write_text("")

    found = gpu_checks.kernel_module([library(version or "1.2")], root)

    assert found.facts == {"kind": kind, "version": version, "devices": ["nvidia0"]}
    assert whys(found) == ([], [])


def test_libraries_of_another_driver_and_missing_devices_are_problems(root: Path) -> None:
    (root / "proc" / "driver" / "nvidia").mkdir(parents=True)
    (root / "proc" / "driver" / "nvidia" / "version").write_text(OPEN)

    problems, _ = whys(gpu_checks.kernel_module([library("550.54.15")], root))
    simulated = gpu_checks.kernel_module([library("550.54.15", simulated=True)], root)

    assert "the kernel module is 580.159.04" in problems[0]
    assert "the GPU cannot be opened" in problems[1]
    assert whys(simulated) == ([], [])


@pytest.mark.parametrize(
    ("gpu", "identity", "notes"),
    [
        ({"listed": [7]}, "not asked", 0),
        ({"listed": [], "with_context": [4711]}, "listed by our pid", 0),
        ({"listed": [1], "with_context": [99]}, "listed by another number", 0),
        ({"listed": [1], "with_context": []}, "not listed", 1),
        ({"listed": None}, "no list", 1),
    ],
)
def test_what_nvml_knows_of_us(
    monkeypatch: pytest.MonkeyPatch, gpu: dict[str, object], identity: str, notes: int
) -> None:
    answer = {"pid": 4711, "gpus": [{"uuid": "GPU-x", "mig": True, **gpu}]}
    monkeypatch.setattr(gpu_checks, "_answer", lambda command: answer)
    nvml = gpu_checks.Driver("libnvidia-ml.so.1", "/x", "", False)

    found = gpu_checks.nvml(gpu_checks.ask_nvml([nvml], with_context=True))

    (told,) = found.facts["gpus"]  # type: ignore[misc]
    assert (told["we_are"], told["mig"]) == (identity, True)  # type: ignore[index]
    assert (len(found.problems), len(found.notes)) == (0, notes)


@pytest.mark.parametrize("answer", [None, {"pid": 1, "problem": "nvmlInit_v2 returned 9"}])
def test_a_silent_nvml_is_a_note(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, object] | None
) -> None:
    monkeypatch.setattr(gpu_checks, "_answer", lambda command: answer)
    nvml = gpu_checks.Driver("libnvidia-ml.so.1", "/x", "", False)

    found = gpu_checks.nvml(gpu_checks.ask_nvml([nvml], with_context=False))

    assert (len(found.problems), len(found.notes)) == (0, 1)
