"""The scripts of ci/: their form, their pins, and what they do where something is missing.

Each script runs from a copy in an empty folder, with its neighbours replaced, so that no test
installs or downloads anything.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (REPO / "ci").iterdir() if path.is_file() and not path.suffix)
LOCKS = sorted((REPO / "ci" / "locks").glob("*.txt"))
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))? \\$")
ELF = b"\x7fELF and more"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An empty checkout with the real scripts in ci/ and no .venv."""
    shutil.copytree(REPO / "ci", tmp_path / "ci")
    return tmp_path


def replace(script: Path, body: str) -> None:
    """Put another shell script in a script's place."""
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    script.chmod(0o755)


def run(script: Path, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with PATH and the given variables only."""
    return subprocess.run(
        [str(script), *map(str, arguments)],
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def path_with(tmp_path: Path, *tools: str) -> str:
    """A PATH that holds the named tools and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for tool in tools:
        found = shutil.which(tool)
        assert found, f"this machine has no {tool}"
        (folder / tool).symlink_to(found)
    return str(folder)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_short_executable_and_says_what_it_does(script: Path) -> None:
    lines = script.read_text(encoding="utf-8").splitlines()

    assert os.access(script, os.X_OK)
    assert lines[0] == "#!/bin/sh"
    assert lines[1].startswith(f"# ci/{script.name}: ")
    assert any("Usage:" in line for line in lines[1:3])
    assert "set -eu" in lines
    assert len(lines) <= 40


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize(
    "script", [path for path in SCRIPTS if path.name != "zig"], ids=lambda path: path.name
)
def test_help_says_how_a_script_is_used_and_does_nothing(
    script: Path, option: str, checkout: Path
) -> None:
    """The one left out is called as a compiler, which has a --help of its own."""
    before = sorted(checkout.rglob("*"))
    (checkout / "elsewhere").mkdir()
    words = [checkout / "ci" / script.name, option]

    done = subprocess.run(
        words,
        cwd=checkout / "elsewhere",
        env={"PATH": path_with(checkout / "elsewhere", "sed", "dirname")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"ci/{script.name}: ")
    assert "Usage: " in done.stdout
    shutil.rmtree(checkout / "elsewhere")
    assert sorted(checkout.rglob("*")) == before


def test_every_dependency_is_pinned_with_a_hash() -> None:
    for lock in LOCKS:
        text = lock.read_text(encoding="utf-8")
        for entry in text.replace("\\\n", "").splitlines():
            if entry and not entry.startswith("#"):
                assert re.search(r"==\S+ .*--hash=sha256:[0-9a-f]{64}", entry), entry[:60]


def test_every_group_has_its_lock_and_the_lock_has_the_group() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]

    assert {lock.stem for lock in LOCKS} == set(groups)
    for lock in LOCKS:
        pinned = {
            found[1] for found in map(PIN.match, lock.read_text("utf-8").splitlines()) if found
        }
        wanted = {re.split(r"[=<>;\[ ]", name.lower())[0] for name in groups[lock.stem]}
        assert wanted <= pinned, lock.name


def test_a_package_has_the_same_version_in_every_lock() -> None:
    versions: dict[tuple[str, str], set[str]] = {}
    for lock in LOCKS:
        for found in filter(None, map(PIN.match, lock.read_text(encoding="utf-8").splitlines())):
            versions.setdefault((found[1], found[3] or ""), set()).add(found[2])

    assert {name: seen for name, seen in versions.items() if len(seen) > 1} == {}


def test_setup_refuses_an_old_python_in_one_line(checkout: Path) -> None:
    replace(checkout / "old-python", "exit 1")

    done = run(checkout / "ci" / "setup", PYTHON=str(checkout / "old-python"))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "Install Python 3.10 or newer" in done.stderr


def test_setup_names_the_package_that_debian_leaves_out(checkout: Path) -> None:
    replace(checkout / "bare-python", 'case "$2" in *ensurepip*) exit 1 ;; esac')

    done = run(checkout / "ci" / "setup", PYTHON=str(checkout / "bare-python"))

    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


def test_setup_installs_each_lock_once(checkout: Path) -> None:
    shutil.copy(REPO / "pyproject.toml", checkout)
    calls = checkout / "calls"
    replace(checkout / ".venv" / "bin" / "python", f'echo "$@" >>"{calls}"')

    first = run(checkout / "ci" / "setup", "test")
    after_first = calls.read_text(encoding="utf-8").splitlines()
    second = run(checkout / "ci" / "setup", "test")
    unchanged = calls.read_text(encoding="utf-8").splitlines()
    with (checkout / "ci" / "locks" / "test.txt").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    run(checkout / "ci" / "setup", "test")
    after_change = calls.read_text(encoding="utf-8").splitlines()

    assert (first.returncode, second.returncode) == (0, 0)
    assert [line.split()[-1] for line in after_first] == [
        "ci/locks/build.txt",
        "ci/locks/test.txt",
        ".",
    ]
    assert unchanged == after_first
    assert [line.split()[-1] for line in after_change[3:]] == ["ci/locks/test.txt"]


def test_setup_does_not_take_a_failed_install_for_done(checkout: Path) -> None:
    shutil.copy(REPO / "pyproject.toml", checkout)
    replace(checkout / ".venv" / "bin" / "python", "exit 1")

    assert run(checkout / "ci" / "setup").returncode == 1
    assert run(checkout / "ci" / "setup").returncode == 1


def test_setup_knows_no_group_without_a_lock(checkout: Path) -> None:
    replace(checkout / ".venv" / "bin" / "python", ":")

    done = run(checkout / "ci" / "setup", "bogus")

    assert done.returncode == 1
    assert "no group 'bogus'" in done.stderr


def test_a_chosen_compiler_is_left_to_cmake(checkout: Path) -> None:
    done = run(checkout / "ci" / "compiler", CXX="my-c++")

    assert (done.returncode, done.stdout) == (0, "")


def test_a_system_compiler_is_used_when_it_knows_cpp20(checkout: Path) -> None:
    tools = checkout / "bin"
    replace(tools / "gcc", ":")
    replace(tools / "g++", "cat >/dev/null")
    replace(tools / "c++", "cat >/dev/null; exit 1")  # too old, or without its headers
    replace(tools / "cc", ":")
    path = path_with(checkout, "dirname", "cat", "sh")

    done = run(checkout / "ci" / "compiler", PATH=path)

    assert done.stdout == "-DCMAKE_C_COMPILER=gcc\n-DCMAKE_CXX_COMPILER=g++\n"


def test_zig_stands_in_where_there_is_no_compiler(checkout: Path) -> None:
    path = path_with(checkout, "dirname", "mkdir", "ln", "sh")
    wheel = checkout / "it's a" / "ziglang"
    replace(checkout / "ci" / "setup", f'echo "$@" >"{checkout}/groups"')
    replace(checkout / ".venv" / "bin" / "python", f'echo "{wheel}"')
    replace(wheel / "zig", 'printf "%s|" "$@" "${ZIG_GLOBAL_CACHE_DIR##*/}"')

    done = run(checkout / "ci" / "compiler", PATH=path)
    compiled = run(checkout / ".venv" / "zig" / "c++", "-c", "a b.cpp", PATH=path)

    assert done.stdout == f"-DCMAKE_TOOLCHAIN_FILE={checkout}/ci/zig.cmake\n"
    assert (checkout / "groups").read_text(encoding="utf-8") == "zig\n"
    assert compiled.stdout == "c++|-c|a b.cpp|cache|"


def test_zig_can_be_asked_for_beside_a_system_compiler(checkout: Path) -> None:
    replace(checkout / "ci" / "setup", f'echo "$@" >"{checkout}/groups"')
    replace(checkout / ".venv" / "bin" / "python", f'echo "{checkout}"')

    done = run(checkout / "ci" / "compiler", CXX="zig")

    assert done.stdout == f"-DCMAKE_TOOLCHAIN_FILE={checkout}/ci/zig.cmake\n"
    assert (checkout / "groups").read_text(encoding="utf-8") == "zig\n"


def drivers(folder: Path) -> Path:
    """All four branches, as far as the script looks."""
    for branch in ("470", "525", "535", "550"):
        (folder / branch).mkdir(parents=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (folder / branch / name).write_bytes(ELF)
    return folder


def without_apt(tmp_path: Path) -> str:
    """A PATH on which no package can be fetched."""
    path = path_with(tmp_path, "dirname", "sh")
    (Path(path) / "python3").symlink_to(sys.executable)
    return path


def test_drivers_that_are_there_are_kept_without_asking_anyone(tmp_path: Path) -> None:
    folder = drivers(tmp_path / "drivers")

    done = run(REPO / "ci" / "fetch-drivers", folder, PATH=without_apt(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("damage", [b"", b"404 Not Found", None])
def test_a_damaged_driver_does_not_count_as_there(tmp_path: Path, damage: bytes | None) -> None:
    folder = drivers(tmp_path / "drivers")
    library = folder / "535" / "libcuda.so.1"
    library.unlink()
    if damage is None:
        library.symlink_to("libcuda.so.535.261.03")  # a link without its target
    else:
        library.write_bytes(damage)

    done = run(REPO / "ci" / "fetch-drivers", folder, PATH=without_apt(tmp_path))

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "ci/fetch-drivers: skipped: not a Debian system\n"


@pytest.mark.skipif(not shutil.which("apt-get"), reason="this machine has no apt-get")
def test_an_archive_that_cannot_be_reached_is_a_reason_and_no_error(tmp_path: Path) -> None:
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}

    done = run(REPO / "ci" / "fetch-drivers", tmp_path / "drivers", **nowhere)

    assert (done.returncode, done.stdout) == (3, "")
    *steps, last = done.stderr.splitlines()
    assert last.startswith("ci/fetch-drivers: skipped: ")
    assert all(each.startswith("ci/fetch-drivers: ") for each in steps)


@pytest.mark.parametrize("arguments", [(), ("a", "b")])
def test_fetch_drivers_says_how_it_is_used(arguments: tuple[str, ...]) -> None:
    assert run(REPO / "ci" / "fetch-drivers", *arguments).returncode == 2


def sanitize(name: str) -> list[str]:
    """The words of a list in ci/sanitize."""
    script = (REPO / "ci" / "sanitize").read_text(encoding="utf-8")
    found = re.search(rf'\b{name}="([^"]*)"', script)
    assert found, name
    return found[1].split()


def test_the_sanitizers_build_what_their_tests_run() -> None:
    programs = {path for path in (REPO / "tests").glob("*/*.c*") if path.parts[-2] != "conformance"}
    sources = {path.stem for path in programs}
    named = {
        word
        for test in sanitize("tests")
        for word in re.findall(r'"(\w+)"', (REPO / test).read_text(encoding="utf-8"))
    }

    assert named & sources <= set(sanitize("programs")) <= sources


def test_under_the_thread_sanitizer_no_program_is_stepped_through() -> None:
    """Every call of its runtime is thousands of instructions: it would take hours."""
    left_out = [word for word in sanitize("left_out") if word != "or"]
    stepping = {
        path.stem
        for path in (REPO / "tests" / "state").glob("*.cpp")
        if "PTRACE_SINGLESTEP" in path.read_text(encoding="utf-8")
    }
    functions = [
        (function.name, text)
        for test in sanitize("tests")
        for function in ast.parse((REPO / test).read_text(encoding="utf-8")).body
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
        for text in [ast.unparse(function)]
    ]

    steps = [name for name, text in functions if any(repr(each) in text for each in stepping)]

    assert len(steps) == 2
    assert [name for name in steps if not any(word in name for word in left_out)] == []


@pytest.mark.parametrize("part", ["findsyms", "toolchain", "call_overhead"])
def test_a_target_that_a_part_misses_ends_no_bench(checkout: Path, part: str) -> None:
    """On a busy machine it often does."""
    (checkout / "libcuda.so.1").touch()
    replace(checkout / "ci" / "build", "exit 0")
    replace(
        checkout / ".venv" / "bin" / "python",
        f'echo "$1" >>ran\ncase $1 in bench/{part}.py | ci/demo_program.py) exit 1 ;; esac',
    )

    done = run(checkout / "ci" / "bench", checkout / "out", checkout)

    ran = (checkout / "ran").read_text(encoding="utf-8").split()
    assert done.returncode == 1
    assert f"missed its target, or failed: python bench/{part}.py" in done.stderr
    assert [name for name in ran if name.startswith("bench/")] == [
        "bench/findsyms.py",
        "bench/toolchain.py",
        "bench/call_overhead.py",
        "bench/scoreboard.py",
    ]
