"""The command line keeps its promises: statuses, streams, files, one line per failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import DEBUGGER, REPOSITORY, ElfSpec, RunTool, WriteElf, elf_bytes, functions

Exports = list[tuple[str, int, int]]


@pytest.fixture
def driver(write_elf: WriteElf, cuda_550: Exports) -> Path:
    return write_elf("libcuda.so.550.163.01", ElfSpec(cuda_550))


def hooks(*strong: str) -> ElfSpec:
    names = ["cuDriverGetVersion", "cuEGLApiInit", "cuLaunchKernel", "cuLaunchKernel_ptsz"]
    names += ["cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2"]
    weak = functions(*(name for name in names if name not in strong), binding=2)
    return ElfSpec([*weak, *functions(*strong)], "libgpufence.so")


ENFORCED = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemAlloc", "cuMemAlloc_v2")


def test_same_and_covered_is_zero(run_tool: RunTool, driver: Path, write_elf: WriteElf) -> None:
    built = write_elf("built.so", hooks(*ENFORCED))

    done = run_tool(driver, "--hooked", built)

    assert (done.status, done.err) == (0, "")


def test_an_open_hook_is_sixteen(run_tool: RunTool, driver: Path, write_elf: WriteElf) -> None:
    built = write_elf("built.so", hooks("cuMemAlloc_v2"))

    assert run_tool(driver, "--hooked", built).status == 16


def test_an_older_baseline_is_four_and_a_newer_one_eight(run_tool: RunTool, driver: Path) -> None:
    newer = run_tool(driver, "--hooked", "model", "--since", "535")
    older = run_tool("--driver", "535", "libcuda.so.1", "--hooked", "model", "--since", "550")

    assert newer.status == 4
    assert "driver 535.261.03: 1 new, 0 gone" in newer.out
    assert older.status == 8
    assert "driver 550.163.01: 0 new, 1 gone" in older.out


@pytest.mark.parametrize(
    ("fail_on", "status"),
    [("all", 20), ("additions", 4), ("unhandled", 16), ("removals", 0), ("none", 0)],
)
def test_fail_on_chooses_what_counts(
    run_tool: RunTool, driver: Path, write_elf: WriteElf, fail_on: str, status: int
) -> None:
    built = write_elf("built.so", hooks())

    done = run_tool(driver, "--hooked", built, "--since", "535", "--fail-on", fail_on)

    assert done.status == status


def test_fail_on_never_hides_an_error(run_tool: RunTool) -> None:
    assert run_tool("./missing.so", "--fail-on", "none", "--hooked", "model").status == 1


def test_against_compares_with_a_file_of_the_same_kind(
    run_tool: RunTool, driver: Path, write_elf: WriteElf
) -> None:
    old = write_elf("old/libcuda.so.530.10.01", ElfSpec(functions("cuMemAlloc", *DEBUGGER)))
    nvml = write_elf("libnvidia-ml.so.1", ElfSpec(functions("nvmlInit_v2"), "libnvidia-ml.so.1"))

    done = run_tool(driver, "--hooked", "model", "--against", old, "--json")
    wrong = run_tool(driver, "--hooked", "model", "--against", nvml)

    assert done.status == 4
    assert done.json()["libraries"][0]["baseline"] == f"{old} (driver 530.10.01)"
    assert len(done.json()["libraries"][0]["new"]) == 6
    assert wrong.status == 2
    assert "no LIB is one" in wrong.err


def test_a_list_is_accepted_as_a_library_and_as_a_baseline(
    run_tool: RunTool, api_folder: Path
) -> None:
    new, old = (api_folder / f"symbols/libcuda-{d}.txt" for d in ("550.163.01", "535.261.03"))

    done = run_tool(new, "--against", old, "--hooked", "model", "--json")

    (library,) = done.json()["libraries"]
    assert (library["driver"], library["data"], library["new"]) == (
        "550.163.01",
        1,
        ["cuMemAlloc_v2"],
    )


def test_sonames_are_searched_and_the_default_is_both(
    run_tool: RunTool, write_elf: WriteElf, cuda_550: Exports, tmp_path: Path
) -> None:
    write_elf("lib/libcuda.so.1", ElfSpec(cuda_550))

    done = run_tool("--hooked", "model", "--json", env={"LD_LIBRARY_PATH": str(tmp_path / "lib")})

    document = done.json()
    assert [library["asked"] for library in document["libraries"]] == ["libcuda.so.1"]
    assert [error["library"] for error in document["errors"]] == ["libnvidia-ml.so.1"]
    assert done.status == 1
    assert done.err.count("\n") == 1


REFUSED = {
    "gone.so": None,
    "folder": "",
    "empty.so": b"",
    "short.so": b"\x7fELF\x02\x01\x01",
    "text.so": b"hello",
    "script.so": b"INPUT(libcuda.so.1)",
    "narrow.so": b"\x7fELF\x01\x01\x01" + bytes(60),
    "riscv.so": elf_bytes(ElfSpec(functions("cuInit"), machine=243)),
    "stub.so": elf_bytes(ElfSpec(functions("cuInit"))),
    "corrupt.so": elf_bytes(ElfSpec(functions("cuInit"))).replace(b"cuInit", b"cu\x07nit"),
    "list.txt": b"cuInit\n",
}


def test_each_bad_library_is_one_line_and_the_good_one_is_reported(
    run_tool: RunTool, driver: Path, tmp_path: Path
) -> None:
    for name, content in REFUSED.items():
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()

    done = run_tool(*(f"./{name}" for name in REFUSED), driver, "--hooked", "model")

    lines = done.err.splitlines()
    assert done.status == 1
    assert [line.split("'")[1] for line in lines] == [f"./{name}" for name in REFUSED]
    assert all(line.startswith("findsyms: '") and line.endswith(".") for line in lines)
    assert "8 of 8 functions" in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "999", "--driver", "550"],
        ["--driver", "999"],
        ["--fail-on", "everything"],
        ["--since", "535", "--against", "x.so"],
        ["--json", "--sarif"],
        ["--nonsense"],
    ],
)
def test_usage_errors_are_two(run_tool: RunTool, arguments: list[str]) -> None:
    done = run_tool(*arguments, "--hooked", "model")

    assert done.status == 2
    assert done.out == "" or "--json" in arguments
    assert "Traceback" not in done.err


def test_a_bad_built_library_ends_the_run_with_advice(run_tool: RunTool, driver: Path) -> None:
    done = run_tool(driver, "--hooked", "missing.so")

    assert done.status == 1
    assert done.err.count("\n") == 1
    assert "--hooked model" in done.err


def test_without_a_model_the_run_ends_with_advice(run_tool: RunTool, api_folder: Path) -> None:
    (api_folder / "cuda.json").unlink()

    done = run_tool("--driver", "550", "--hooked", "model")

    assert done.status == 1
    assert "hookgen extract" in done.err


@pytest.mark.parametrize(
    ("name", "flag", "start"),
    [
        ("r.json", None, "{"),
        ("r.md", None, "# findsyms"),
        ("r.sarif", None, '{\n  "$schema"'),
        ("r.txt", None, "libcuda.so.1"),
        ("r.out", None, "libcuda.so.1"),
        ("r.json", "--markdown", "# findsyms"),
    ],
)
def test_the_output_file_chooses_the_format_unless_a_flag_does(
    run_tool: RunTool, tmp_path: Path, name: str, flag: str | None, start: str
) -> None:
    done = run_tool("--driver", "550", "--hooked", "model", "-o", name, *([flag] if flag else []))

    assert (done.status, done.out, done.err) == (0, "", "")
    assert (tmp_path / name).read_text().startswith(start)


def test_an_unwritable_output_is_one_line(run_tool: RunTool) -> None:
    done = run_tool("--driver", "550", "--hooked", "model", "-o", "nowhere/r.json")

    assert done.status == 1
    assert done.err.startswith("findsyms: output 'nowhere/r.json' failed: no such file")


def test_a_reader_that_leaves_early_is_no_error(api_folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY / "tools")}
    command = [sys.executable, "-m", "findsyms", "--driver", "550", "--hooked", "model"]

    done = subprocess.run(
        [*command, "--api", str(api_folder)],
        stdout=write,
        stderr=subprocess.PIPE,
        env=environ,
        check=False,
    )
    os.close(write)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_one_line(api_folder: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY / "tools")}
    command = [sys.executable, "-m", "findsyms", "--driver", "550", "--hooked", "model"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command, "--api", str(api_folder)],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environ,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.decode().startswith("findsyms: output 'stdout' failed: no space left")
    assert b"Traceback" not in done.stderr


def test_help_explains_statuses_and_exit_codes(run_tool: RunTool) -> None:
    done = run_tool("--help")

    assert done.status == 0
    for word in ("overridden", "without prototype", "left to driver", "not covered", "  16  "):
        assert word in done.out


def test_a_refused_run_does_not_import_lief(api_folder: Path) -> None:
    # It costs a third of a second, and nothing of it is needed for a list or a bad file.
    script = (
        "import sys; from findsyms.cli import main; "
        f"main(['--driver', '550', '--hooked', 'model', '--api', {str(api_folder)!r}]); "
        "sys.exit('lief' in sys.modules)"
    )
    environ = os.environ | {"PYTHONPATH": str(REPOSITORY / "tools")}

    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, stdout=subprocess.DEVNULL, check=False
    )

    assert done.returncode == 0
