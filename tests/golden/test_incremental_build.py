"""ci/build after a change: what it leaves was compiled from one model, or it fails.

A number of the driver's function is compiled into every hook; a new name shifts the numbers behind
it. So a hook that is not compiled anew calls a wrong function of the driver.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gen import cli, codec, model

from .conftest import REPO
from .smallest_tree import SmallestTree, plant

OF_LISTS = {"option_names.h", "option_table.h", "shared_layouts.h"}
BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build")).resolve()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> SmallestTree:
    """The smallest tree, built; every test leaves one that builds."""
    if not (REPO / ".venv" / "locks").is_dir():
        pytest.skip("no .venv of ci/setup, and the tree's ci/build would install one")
    tree = plant(tmp_path_factory.mktemp("smallest"))
    done = tree.build()
    assert done.returncode == 0, done.stdout
    return tree


def number(tree: SmallestTree, name: str) -> int:
    """The number that the model of the tree gives a function now."""
    found = model.load(tree.api).find(name)
    assert found is not None
    return found.index


def learn(tree: SmallestTree, *names: str) -> None:
    """Let the model know more names, as `hookgen extract` does after a new driver."""
    path = tree.api / "cuda.json"
    api = codec.loads(path.read_text(encoding="utf-8"))
    like = api.untyped[0]
    more = tuple(replace(like, name=name) for name in names)
    untyped = tuple(sorted((*api.untyped, *more), key=lambda each: each.name))
    path.write_text(codec.dumps(replace(api, untyped=untyped)), encoding="utf-8")


def test_names_of_a_new_driver_reach_every_object(tree: SmallestTree) -> None:
    before = number(tree, "cuGadgetFree")
    assert tree.answer("cuGadgetFree") == before
    learn(tree, "cuGadgetAbove", "cuGadgetAcross")

    done = tree.build()

    assert done.returncode == 0, done.stdout
    assert number(tree, "cuGadgetFree") == before + 2
    assert tree.answer("cuGadgetFree") == before + 2


def test_a_new_row_of_the_list_of_options_reaches_the_library(tree: SmallestTree) -> None:
    user = tree.root / "lib" / "src" / "config" / "config.cpp"
    user.write_text(
        '#include "option_names.h"\n'
        'extern "C" __attribute__((visibility("default"))) int cuGadgetVersion(int*);\n'
        "int cuGadgetVersion(int*) {\n"
        "  return static_cast<int>(gpufence::kDialectCount);\n"
        "}\n",
        encoding="utf-8",
    )
    assert tree.build().returncode == 0
    assert tree.answer("cuGadgetVersion") == 2
    path = tree.root / "lib" / "limits" / "options.txt"
    path.write_text(path.read_text(encoding="utf-8") + "dialect NEW | new\n", encoding="utf-8")

    done = tree.build()

    assert done.returncode == 0, done.stdout
    assert tree.answer("cuGadgetVersion") == 3
    user.write_text("", encoding="utf-8")
    assert tree.build().returncode == 0


def test_a_new_number_in_the_list_of_layouts_reaches_the_library(tree: SmallestTree) -> None:
    user = tree.root / "lib" / "src" / "state" / "state.cpp"
    user.write_text(
        '#include "shared_layouts.h"\n'
        'extern "C" __attribute__((visibility("default"))) int cuGadgetVersion(int*);\n'
        "int cuGadgetVersion(int*) { return static_cast<int>(gpufence::kMask); }\n",
        encoding="utf-8",
    )
    assert tree.build().returncode == 0
    assert tree.answer("cuGadgetVersion") == 255
    path = tree.root / "lib" / "layouts" / "shared_files.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("0xff", "0x7f"), encoding="utf-8")

    done = tree.build()

    assert done.returncode == 0, done.stdout
    assert tree.answer("cuGadgetVersion") == 127
    user.write_text("", encoding="utf-8")
    assert tree.build().returncode == 0


def test_what_did_not_change_is_not_built_again(tree: SmallestTree) -> None:
    assert "no work to do" in tree.build().stdout


def test_object_of_an_earlier_model_is_not_linked(tree: SmallestTree) -> None:
    made = tree.objects("gpufence_hooks") / "src" / "hooks" / "memory" / "free.cpp.o"
    old = made.with_suffix(".old")
    shutil.copyfile(made, old)
    learn(tree, "cuGadgetAgain")
    assert tree.build().returncode == 0
    assert tree.link().returncode == 0

    shutil.copyfile(old, made)
    done = tree.link()

    assert done.returncode != 0
    assert "gpufence_compiled_from_model_" in done.stdout
    assert tree.build().returncode == 0


def test_new_output_of_the_generator_is_known_to_the_next_build(tree: SmallestTree) -> None:
    table = tree.root / "tools" / "gen" / "outputs.py"
    text = table.read_text(encoding="utf-8")
    more = 'OUTPUTS = (\n    Output("more.md", "coverage.md.j2", coverage.context),\n'
    table.write_text(text.replace("OUTPUTS = (\n", more), encoding="utf-8")

    done = tree.build()

    assert done.returncode == 0, done.stdout
    assert (tree.root / "build" / "gen" / "more.md").is_file()
    assert re.search(r"\bgen/more\.md\b", (tree.root / "build" / "build.ninja").read_text())


def test_pasted_stub_of_a_hook_is_built(
    tree: SmallestTree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", "cuGadgetVersion", "--api", str(tree.api)]) == 0
    said = capsys.readouterr().out
    stub = said[said.index('#include "real.h"') :]
    spoken = re.sub(r"return real::.*;", "return static_cast<CUresult>(77);", stub)
    assert spoken != stub
    place = tree.root / "lib" / "src" / "hooks" / "gadgets" / "version.cpp"
    place.parent.mkdir()
    place.write_text(spoken, encoding="utf-8")

    done = tree.build()

    assert done.returncode == 0, done.stdout
    assert tree.answer("cuGadgetVersion") == 77
    place.unlink()
    assert tree.build().returncode == 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """An object, and the rendered files it depends on, by the compiler's names for them."""

    name: str
    rendered: frozenset[str]


def compiled(build: Path) -> list[Compiled]:
    """The objects of a build that depend on something below its gen/."""
    known = outputs(build)
    found = []
    for block in tell(build, "deps").split("\n\n"):
        head, *lines = block.strip().splitlines() or [""]
        taken = {line.strip() for line in lines}
        below = {each for each in taken if (build / each).resolve().is_relative_to(build / "gen")}
        name = head.partition(":")[0]
        if (
            below and name in known
        ):  # ninja remembers objects that are no part of the build any more
            found.append(Compiled(name, frozenset(below)))
    return found


def outputs(build: Path) -> set[str]:
    """Every file that ninja knows how to make."""
    return {line.rpartition(": ")[0] for line in tell(build, "targets", "all").splitlines()}


def tell(build: Path, *words: str) -> str:
    """What ninja knows about a build."""
    ninja = REPO / ".venv" / "bin" / "ninja"
    return subprocess.check_output([ninja, "-C", build, "-t", *words], text=True)


@pytest.fixture
def builds(tree: SmallestTree) -> list[Path]:
    """The build of the small tree and, where there is one, that of the checkout."""
    return [tree.root / "build", *([BUILD] if (BUILD / "build.ninja").is_file() else [])]


def test_ninja_knows_what_is_rendered_by_the_names_that_compilers_give(
    builds: list[Path],
) -> None:
    for build in builds:
        rendered = {name for each in compiled(build) for name in each.rendered}

        assert {Path(name).name for name in rendered} >= {"symbols.h", "real.h"}
        assert rendered - outputs(build) == set()


def test_objects_that_depend_on_a_model_carry_its_mark(builds: list[Path]) -> None:
    """Of the library and of the simulated driver; test programs link none of these."""
    for build in builds:
        ours = [each for each in compiled(build) if not each.name.startswith("tests/")]

        assert len(ours) >= 5
        for each in ours:
            names = {Path(name).name for name in each.rendered}
            # The assembler's file defines what the others ask for; lists know no function.
            assert names & {"model.h", "trampolines.S"} or names <= OF_LISTS
