"""What headers bring by value: how it is written down, compared, judged and shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from gen import changes, cli, diff, surface, verify
from gen.errors import HookgenError
from gen.surface import Fact, Key, Surface

REPO = Path(__file__).resolve().parents[3]
API = REPO / "lib" / "api"
DOMAIN = "CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN@13.4"


def texts() -> dict[str, str]:
    files = map(surface.file_of, ("cuda", "nvml"))
    return {file: (API / file).read_text(encoding="utf-8") for file in files}


@pytest.fixture
def api_copy(tmp_path: Path) -> Path:
    """The tables that judging reads, to be spoilt, beside the hooks."""
    folder = tmp_path / "lib" / "api"
    folder.mkdir(parents=True)
    (tmp_path / "lib" / "src").symlink_to(REPO / "lib" / "src")
    for name in (*texts(), changes.JUDGED, "passthrough.txt"):
        (folder / name).write_text((API / name).read_text(encoding="utf-8"), encoding="utf-8")
    return folder


@pytest.mark.parametrize("library", ["cuda", "nvml"])
def test_a_surface_is_read_as_it_was_written(library: str) -> None:
    text = (API / surface.file_of(library)).read_text(encoding="utf-8")

    assert surface.dumps(library, surface.loads(text, "x")) == text


def test_a_damaged_surface_is_refused_with_its_line() -> None:
    with pytest.raises(HookgenError, match="line 3 is no fact"):
        surface.loads("# one\nheaders 13.0 13.5\n  A = 1\n", "x")


def test_parts_of_a_gpu_reach_enforced_functions() -> None:
    found = diff.load(API, "cuda").at("13.5")

    fact = found[Key("enum", "CUmemLocationType", "CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN")]

    assert (fact.value, fact.first) == ("6", "13.4")
    assert fact.via == "cuGraphAddMemAllocNode"


def test_a_function_is_not_passed_through_by_the_beginning_of_its_name() -> None:
    handled = diff.judged(API).handled

    assert handled("cuGraphDestroy")
    assert handled("cuGraphDestroy_v9_ptsz")
    assert handled("cuGraphDestroyAtOnce") == ""


def test_everything_committed_is_judged() -> None:
    assert list(verify.unjudged(texts(), API)) == []


def test_a_value_without_a_line_is_told_with_what_it_reaches(api_copy: Path) -> None:
    path = api_copy / changes.JUDGED
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(DOMAIN)), "utf-8")

    (line,) = verify.unjudged(texts(), api_copy)

    assert f"{DOMAIN} = 6 reaches cuGraphAddMemAllocNode and nobody judged it" in line


def test_a_line_that_names_nothing_is_told(api_copy: Path) -> None:
    with (api_copy / changes.JUDGED).open("a", encoding="utf-8") as file:
        file.write("CU_NO_SUCH_VALUE@13.4 : nothing\n")

    (line,) = verify.unjudged(texts(), api_copy)

    assert "'CU_NO_SUCH_VALUE@13.4' names no change" in line


def test_every_line_speaks_of_one_series_of_headers() -> None:
    # A pattern without them would judge what comes tomorrow.
    rules = diff.judged(API).rules

    assert [r.pattern for r in rules if not re.search(r"@1[23]\.[\d\[\]-]+$", r.pattern)] == []


def test_what_is_judged_by_hand_is_named_in_the_library() -> None:
    sources = "".join(path.read_text("utf-8") for path in (REPO / "lib" / "src").rglob("*.cpp"))
    by_hand = [r.pattern for r in diff.judged(API).rules if r.reason.startswith("by hand")]

    missing = [p for p in by_hand if p.partition("@")[0].rpartition(".")[2] not in sources]

    assert len(by_hand) >= 6
    assert missing == []


def small(*facts: Fact) -> Surface:
    return Surface(("1.0", "2.0"), facts)


def judge(*_words: str) -> changes.Judgement:
    return changes.Judgement((), lambda _: "")


def test_new_changed_and_gone_are_told_apart() -> None:
    kept = Fact(Key("enum", "E", "A"), "1", "1.0", "1.0", "cuMemCreate")
    known = small(
        kept,
        replace(kept, value="2", first="2.0", last="2.0"),
        Fact(Key("enum", "E", "B"), "3", "2.0", "2.0", "cuMemCreate"),
        Fact(Key("enum", "E", "C"), "4", "1.0", "1.0", "cuMemCreate"),
        Fact(Key("enum", "F", "D"), "5", "2.0", "2.0", ""),
    )

    found = changes.between(known, "1.0", "2.0", judge())

    assert [(c.key.member, c.what, c.is_hole) for c in found] == [
        ("A", "changed", True),
        ("B", "new", True),
        ("C", "gone", False),
        ("D", "new", False),
    ]
    assert [c.name for c in changes.holes(known, judge())] == ["A@2.0", "B@2.0"]


def test_diff_shows_what_13_4_brought(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "13.3", "13.4"]) == 0

    out = capsys.readouterr().out
    assert f"+ {DOMAIN}  new enumerator: 6; reaches cuGraphAddMemAllocNode; by hand" in out
    assert "~ CU_LIMIT_MAX@13.4  changed enumerator: 10 -> 11" in out


def test_diff_tells_a_hole_by_its_status(
    api_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (api_copy / changes.JUDGED).write_text("CUDA_VERSION@13.4 : a number\n", encoding="utf-8")

    assert cli.main(["diff", "13.3", "13.4", "--api", str(api_copy), "--json"]) == 5

    rows = json.loads(capsys.readouterr().out)["changes"]
    (row,) = [r for r in rows if f"{r['name']}@{r['since']}" == DOMAIN]
    assert (row["hole"], row["judged"], row["new"], row["old"]) == (True, None, "6", None)


def test_diff_speaks_markdown_and_sarif(api_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (api_copy / changes.JUDGED).write_text("CUDA_VERSION@13.4 : a number\n", encoding="utf-8")

    assert cli.main(["diff", "13.3", "13.4", "--api", str(api_copy), "--markdown"]) == 5
    assert f"| `{DOMAIN}` | new enumerator |  | `6` |" in capsys.readouterr().out
    assert cli.main(["diff", "13.3", "13.4", "--api", str(api_copy), "--sarif"]) == 5
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert {r["ruleId"] for r in run["results"]} == {"unjudged-value", "changed-surface"}


def test_unknown_headers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "13.0", "14.0"]) == 2

    assert "headers '14.0' refused: the model holds 11.8" in capsys.readouterr().err
