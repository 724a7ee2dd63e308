"""Every format says the same, in its own grammar."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import jsonschema
import pytest

from .conftest import REPOSITORY, ElfSpec, RunTool, WriteElf, functions
from .sarif_schema import SCHEMA

Exports = list[tuple[str, int, int]]
LIBRARY_KEYS = {"soname", "path", "driver", "arch", "functions", "data", "covered", "overridden"}
LIBRARY_KEYS |= {"new", "removed", "holes", "build_id", "self_calls", "statuses", "baseline"}


@pytest.fixture
def newer(write_elf: WriteElf, cuda_550: Exports) -> Path:
    """A driver 560 with two names that nobody knows, and one name of 550 less."""
    exports = [e for e in cuda_550 if e[0] != "cuMemcpyHtoD_v2"]
    exports += functions("cuMemAllocSideways", "cuFlush")
    return write_elf("libcuda.so.560.10.01", ElfSpec(exports, self_calls=["cuMemAlloc"]))


@pytest.fixture
def built(write_elf: WriteElf, cuda_550: Exports) -> Path:
    """A built library that hooks one variant of cuMemAlloc only."""
    names = [e[0] for e in cuda_550 if not e[0].startswith("cudbg")]
    weak = functions(*(n for n in names if n != "cuMemAlloc"), binding=2)
    return write_elf("libgpufence.so", ElfSpec([*weak, *functions("cuMemAlloc")], "libgpufence.so"))


def test_json_holds_everything(run_tool: RunTool, newer: Path, built: Path) -> None:
    done = run_tool(newer, "--hooked", built, "--json")

    document = done.json()
    (library,) = document["libraries"]
    assert done.status == document["status"] == 4 | 8 | 16
    assert document["schema"] == 1
    assert library.keys() >= LIBRARY_KEYS
    assert library["path"] == str(newer)
    assert (library["soname"], library["driver"], library["arch"]) == (
        "libcuda.so.1",
        "560.10.01",
        "x86_64",
    )
    assert (library["functions"], library["data"]) == (9, 1)
    assert (library["covered"], library["overridden"]) == (7, 1)
    assert library["new"] == ["cuFlush", "cuMemAllocSideways"]
    assert library["removed"] == ["cuMemcpyHtoD_v2"]
    assert library["holes"] == [
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuMemAllocSideways",
        "cuMemAlloc_v2",
    ]
    assert library["self_calls"] == [{"name": "cuMemAlloc", "through": "plt", "overridden": True}]
    assert sum(library["statuses"].values()) == len(document["symbols"]) == 10
    found = {symbol["name"]: symbol for symbol in document["symbols"]}
    assert found["cuMemAlloc_v2"] == {
        "library": "libcuda.so.1",
        "name": "cuMemAlloc_v2",
        "type": "function",
        "status": "passthrough",
        "reason": None,
        "kind": "alloc",
        "kind_reason": "alloc of cuMemAlloc",
        "prototype": "CUresult cuMemAlloc_v2(size_t bytesize)",
        "header": "cuda.h 11.8",
        "first_driver": "550.163.01",
        "new": False,
        "hole": "its sibling cuMemAlloc is overridden",
    }
    assert found["cudbgIpcFlag"]["type"] == "data"
    assert found["cudbgIpcFlag"]["status"] == "driver"


def test_json_of_a_list_has_no_self_calls(run_tool: RunTool) -> None:
    document = run_tool("--driver", "550", "--json").json()

    assert [library["self_calls"] for library in document["libraries"]] == [None, None]
    assert [library["functions"] for library in document["libraries"]] == [8, 4]


def test_json_keeps_refusals_apart(run_tool: RunTool, newer: Path) -> None:
    done = run_tool("./missing.so", newer, "--hooked", "model", "--fail-on", "none", "--json")

    document = done.json()
    assert done.status == 1
    assert len(document["libraries"]) == 1
    assert document["errors"] == [
        {
            "library": "./missing.so",
            "what": "'./missing.so' refused",
            "why": "no such file",
            "fix": "Check the path.",
        }
    ]


def test_sarif_is_valid_and_complete(run_tool: RunTool, newer: Path, built: Path) -> None:
    done = run_tool(newer, "./missing.so", "--hooked", built, "--sarif")

    document = done.json()
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    results = {(r["ruleId"], r["partialFingerprints"]["symbol/v1"]) for r in run["results"]}
    assert all(rules[r["ruleIndex"]] == r["ruleId"] for r in run["results"])
    assert len(results) == len(run["results"]) == 4 + 2 + 2 + 1 + 1
    assert ("removed-symbol", "libcuda.so.1:cuMemcpyHtoD_v2:removed-symbol") in results
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert Path(urlparse(uri).path) == newer
    assert run["invocations"][0]["exitCode"] == done.status == 1 | 4 | 8 | 16
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1


def test_markdown_tables_are_rectangular(
    run_tool: RunTool, newer: Path, built: Path, api_folder: Path
) -> None:
    model = api_folder / "cuda.json"
    model.write_text(model.read_text().replace("launch of cuLaunchKernel", "a <b> | c"))

    done = run_tool(newer, "--hooked", built, "--markdown")

    lines = done.out.splitlines()
    assert "| `libcuda.so.1` | 560.10.01 | x86_64 | 9 | 7 | 1 | 1 | 2 | 1 | 4 |" in lines
    width = 0
    for line in lines:
        if not line.startswith("|"):
            width = 0
            continue
        columns = len(re.findall(r"(?<!\\)\|", line))
        assert width in (0, columns), line
        width = columns
    assert done.out.count("<details>") == done.out.count("</details>") == 5
    assert "* `cuMemcpyHtoD_v2`" in lines
    assert "| a &lt;b> \\| c |" in done.out


def test_text_in_a_pipe_is_plain(run_tool: RunTool, newer: Path, built: Path) -> None:
    done = run_tool(newer, "--hooked", built, env={"COLUMNS": "40"})

    assert "\x1b" not in done.out
    assert "…" not in done.out
    assert "libcuda.so.1  driver 560.10.01  x86_64" in done.out
    assert (
        "  covered   7 of 9 functions: 1 overridden, 4 passthrough, 1 without prototype, "
        "1 left to driver, 2 not covered" in done.out
    )
    assert "  since     driver 550.163.01: 2 new, 1 gone" in done.out
    assert re.search(r"^Holes \(4 in 3 families\)$", done.out, re.M)
    assert re.search(r"^  cuMemAlloc +allocates +1 +its sibling cuMemAlloc is", done.out, re.M)
    assert "Self-calls (1 through the PLT, 0 through data)" in done.out


def test_verbose_text_lists_every_symbol(run_tool: RunTool, newer: Path, built: Path) -> None:
    done = run_tool(newer, "--hooked", built, "--verbose")

    table = done.out[done.out.index("Symbols (10)") :]
    assert len(table.splitlines()) == 2 + 10
    assert "kind: launch of cuLaunchKernel" in table


def on_terminal(arguments: list[str], columns: int, **env: str) -> str:
    """Run the tool on a pseudo-terminal of a given width; returns what it showed."""
    leader, follower = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    environ |= {"PYTHONPATH": str(REPOSITORY / "tools"), "TERM": "xterm", "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "findsyms", *arguments]
    with subprocess.Popen(command, stdout=follower, env=environ | env) as process:
        os.close(follower)
        shown = b""
        while select.select([leader], [], [], 30)[0]:
            try:
                data = os.read(leader, 65536)
            except OSError:  # how Linux says that the other side has closed
                break
            if not data:
                break
            shown += data
        process.wait()
    os.close(leader)
    return shown.decode()


def test_text_on_a_terminal_is_coloured_and_fits(
    newer: Path, built: Path, api_folder: Path
) -> None:
    arguments = [str(newer), "--hooked", str(built), "--api", str(api_folder)]

    shown = on_terminal(arguments, 90)
    plain = on_terminal(arguments, 90, NO_COLOR="1")

    assert "\x1b[31m" in shown
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", shown) == plain
    tables = [line for line in plain.splitlines() if line.startswith("  cu")]
    assert any(line.endswith("…") for line in tables)
    assert max(len(line) for line in tables) <= 90
