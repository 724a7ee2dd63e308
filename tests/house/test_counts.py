"""What the pages count of this repository is what it holds, and bounds are those of the code.

Figures that were measured belong to the day they were measured on, and are not looked at here.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from findsyms import cli, errors
from gen import ir, model
from gen.outputs import OUTPUTS
from gpufence.state import shared_layout

REPO = Path(__file__).resolve().parents[2]
API = REPO / "lib" / "api"
LIBRARY = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build")) / "lib" / "libgpufence.so"
LISTS = [str(API / "symbols" / f"{name}-550.163.01.txt") for name in ("libcuda", "libnvidia-ml")]
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def page(name: str) -> str:
    """The text of a page with every run of blanks as one, since its lines may break anywhere."""
    return " ".join((REPO / name).read_text(encoding="utf-8").split())


# Page, what it says with the figure as a group, source, and what makes the figure there.
BOUNDS = [
    (
        "docs/memory-limiter-details.md",
        r"processes, (\d+) GPUs",
        "config/limits.h",
        "kMostLimitedDevices",
    ),
    (
        "docs/core-limiter-details.md",
        r"more than ([\d,]+) nodes",
        "hooks/graphs/graph_needs.cpp",
        "kMostNodes",
    ),
    (
        "docs/core-limiter-details.md",
        r"or ([\d,]+) edges",
        "hooks/graphs/graph_needs.cpp",
        "kMostEdges",
    ),
    ("docs/addpath.md", r"first ([\d,]+) paths", "addpath/path_list.h", "kMostComponents"),
]


@pytest.mark.parametrize(("name", "says", "source", "constant"), BOUNDS)
def test_a_bound_is_the_one_of_the_code(name: str, says: str, source: str, constant: str) -> None:
    text = (REPO / "lib/src" / source).read_text(encoding="utf-8")
    value = re.search(rf"constexpr \w+ {constant} = (?:size_t\{{(\d+)\}} << )?(\d+);", text)
    told = re.findall(says, page(name))

    assert value
    held = int(value[2]) if value[1] is None else int(value[1]) << int(value[2])
    assert [int(figure.replace(",", "")) for figure in told] == [held]


# The same of the files that processes share: page, what it says, the constant of the list.
PLACES = [
    ("docs/troubleshooting.md", r"([\d,]+) living processes", "MAX_PROCESSES"),
    ("docs/memory-limiter-details.md", r"([\d,]+) living processes", "MAX_PROCESSES"),
    ("docs/core-limiter-details.md", r"free place \(([\d,]+) processes\)", "MAX_CORE_MEMBERS"),
    ("docs/core-limiter.md", r"has places for (\d+) containers", "MAX_CORE_TENANTS"),
]


@pytest.mark.parametrize(("name", "says", "constant"), PLACES)
def test_a_file_has_as_many_places_as_a_page_says(name: str, says: str, constant: str) -> None:
    told = re.findall(says, page(name))

    assert [int(figure.replace(",", "")) for figure in told] == [getattr(shared_layout, constant)]


def test_the_sizes_that_contributors_are_told_are_those_that_lint_holds() -> None:
    rules = (REPO / "ci/house_rules.py").read_text(encoding="utf-8")
    held = re.search(r"^COLUMNS, LINES_LIMIT, .*, FUNCTION_LIMIT = (.*)$", rules, re.MULTILINE)
    told = re.search(r"has at most (\d+) lines, .* at most (\d+):", page("CONTRIBUTING.md"))

    assert held
    assert told
    _, limit, _, function = ast.literal_eval(f"({held[1]})")
    assert [int(figure) for figure in told.groups()] == [limit, function]


def test_the_page_of_findsyms_shows_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    if not LIBRARY.is_file():
        pytest.skip("build/lib/libgpufence.so is not built")
    text = (REPO / "docs/findsyms.md").read_text(encoding="utf-8")
    shown = text.partition("$ findsyms ")[2].partition("```")[0].splitlines()[1:]
    cli.main([*LISTS, "--since", "535", "--hooked", str(LIBRARY)])
    said = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}

    lines = [" ".join(line.split()) for line in shown if line.strip() not in ("", "…")]

    assert len(lines) == 8
    assert [line for line in lines if line not in said] == []


def test_the_functions_known_of_driver_550_are_counted_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main([*LISTS, "--hooked", "model", "--json"])
    libraries = json.loads(capsys.readouterr().out)["libraries"]
    functions, covered = ([each[key] for each in libraries] for key in ("functions", "covered"))
    row = r"of driver 550 \(libcuda (\d+) \+ NVML (\d+)\) \| (\d+) \+ (\d+) \("

    told = re.search(row, page("docs/comparison.md"))

    assert told
    assert [int(figure) for figure in told.groups()] == [*functions, *covered]


MEMORY = ("WAYS", "ADDRESSES", "FIRST_ADDRESSES", "HANDLES")  # of tests/gpu/memory_families.py


def test_the_ways_to_memory_are_counted_right() -> None:
    tree = ast.parse((REPO / "tests/gpu/memory_families.py").read_text(encoding="utf-8"))
    held = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in MEMORY
    }
    addresses = len(held["ADDRESSES"]) + len(held["FIRST_ADDRESSES"])
    families, ways = addresses + len(held["HANDLES"]), len(held["WAYS"])
    results = page("docs/results/2026-11-23-h200-memory.md")

    assert f"{families} families of memory, each by {NUMBERS[ways]} ways" in results
    assert f"all {families * ways} are refused" in results
    told = f"{addresses} families of addresses and {len(held['HANDLES'])} of handles"
    assert told in results


def test_the_conformance_programs_are_counted_right() -> None:
    recorded = json.loads((REPO / "tests/conformance/facts/h200-580.json").read_bytes())["programs"]

    assert f" facts of {len(recorded)} conformance programs " in page("docs/simulator.md")


def test_other_systems_are_counted_right() -> None:
    configuration = (REPO / "docs/configuration.md").read_text(encoding="utf-8")
    part = configuration.partition("\n## Variables\n")[2].partition("\n## ")[0]
    others = [name for name in re.findall(r"^### (.+)$", part, re.MULTILINE) if name != "gpufence"]
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    comparison = (REPO / "docs/comparison.md").read_text(encoding="utf-8")
    columns = set(re.findall(r"^\| \| gpufence \| (.+) \|$", comparison, re.MULTILINE))
    count = NUMBERS[len(others)]

    limiters = [name for name in others if name != "NVIDIA"]  # its driver limits by itself

    assert [set(row.split(" | ")) for row in columns] == [set(limiters)]
    assert f"variables of {count} other systems" in readme
    assert f"{NUMBERS[len(limiters)].capitalize()} other systems do this job" in comparison
    assert f"of gpufence and {count} other systems" in page("docs/README.md")
    assert f"The variables and files of {count} systems" in page("docs/containers.md")


def test_the_drivers_that_the_simulator_can_be_are_those_on_record() -> None:
    told = re.search(r"a branch of `lib/api/branches.txt` \((.+?);", page("docs/simulator.md"))
    stems = [path.stem.split("-") for path in (API / "symbols").glob("libcuda-*.txt")]
    branches = sorted({int(parts[1].partition(".")[0]) for parts in stems})

    assert told
    assert re.findall(r"\d+", told[1]) == [str(branch) for branch in branches]


def test_decisions_count_the_model_right() -> None:
    symbols = model.load(API).symbols
    text = page("docs/decisions.md")
    by_value = sum(not symbol.tail for symbol in symbols)
    owned = (API / "symbols" / "libnvidia-ml-450.248.02.txt").read_text(encoding="utf-8").split()
    elsewhere = sum(name.startswith("nscq_") for name in owned)

    assert f"is {sum(symbol.typed for symbol in symbols):,} more functions" in text
    assert f"twice, once through its stub: {2 * len(symbols):,} calls" in text
    assert f"{NUMBERS[by_value].capitalize()} functions are concerned" in text
    assert f"{NUMBERS[elsewhere].capitalize()} names that only libnvidia-ml 450 exported" in text


def test_the_tables_of_the_seams_name_every_file() -> None:
    seams = (REPO / "docs/interfaces.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\| (`.+?) \|", seams, re.M))))
    committed = {path.name for path in API.iterdir() if path.is_file()}

    assert {output.file for output in OUTPUTS} - named == set()
    assert committed - named == set()
    assert f"* `kind`: `{' '.join(ir.KINDS)}`" in seams


def statuses(text: str) -> Mapping[str, str]:
    """The table behind the heading "Exit status": what each line says by its number."""
    rows = text.partition("## Exit status\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (\d+) \| (.+) \|$", rows, re.MULTILINE))


def test_the_exit_statuses_of_findsyms_are_those_of_its_page() -> None:
    told = statuses((REPO / "docs/findsyms.md").read_text(encoding="utf-8"))

    assert [int(status) for status in told] == [each.value for each in errors.Exit if each.value]


def test_the_page_of_findsyms_names_every_rule_of_its_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not LIBRARY.is_file():
        pytest.skip("build/lib/libgpufence.so is not built")
    text = (REPO / "docs/findsyms.md").read_text(encoding="utf-8").partition("## findsyms check")[2]
    told = {
        (rule, int(invariant))
        for rules, invariant in re.findall(r"^\| (`.+?) \| (\d+) \|", text, re.MULTILINE)
        for rule in re.findall(r"`(.+?)`", rules)
    }
    cli.main(["check", str(LIBRARY), "--json"])

    rules = json.loads(capsys.readouterr().out)["rules"]

    assert told == {(each["rule"], each["invariant"]) for each in rules}


def test_folders_of_hooks_are_all_told() -> None:
    seams = (REPO / "docs/interfaces.md").read_text(encoding="utf-8")
    part = seams.partition("| folder of `hooks` |")[2].partition("\n\n")[0]
    folders = {path.name for path in (REPO / "lib/src/hooks").iterdir() if path.is_dir()}

    assert set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)) == folders
