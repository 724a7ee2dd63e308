"""`hookgen render --standalone`: a tree that builds with cmake and without Python.

The library is not compiled a second time: the tree's build has the commands of the checkout's, and
every text that went into the checkout's objects lies in the tree.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from gen import cli

from .conftest import REPO
from .smallest_tree import plant

BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build"))
LIBRARY = "lib/libgpufence.so"
# An object is named after its source's path, which is where trees differ.
_OBJECT = re.compile(r"CMakeFiles/(\w+)\.dir/\S*?([^/\s]+\.o)\b")


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder with lib/, where what is rendered lies, a build of it, and the ninja for that."""

    root: Path
    rendered: Path
    build: Path
    ninja: str

    def tell(self, *words: str) -> str:
        """What ninja knows about the build."""
        return subprocess.check_output([self.ninja, "-C", self.build, "-t", *words], text=True)

    def commands(self) -> list[str]:
        """How the library is made, with its parts called by the names of this class."""
        text = _OBJECT.sub(r"\1/\2", self.tell("commands", LIBRARY)).replace("/lib/../", "/")
        for part, path in (("rendered", self.rendered), ("build", self.build), ("root", self.root)):
            text = text.replace(str(path), f"<{part}>")
        return text.splitlines()

    def sources(self) -> set[Path]:
        """Every file of ours that the library's objects were made from, links resolved."""
        inputs = {line.strip() for line in self.tell("inputs", LIBRARY).splitlines()}
        found: set[Path] = set()
        for block in self.tell("deps").split("\n\n"):
            name, *lines = block.strip().splitlines() or [""]
            made = name.partition(":")[0]
            if made in inputs and made.endswith(".o"):
                found |= {Path(self.build, line.strip()).resolve() for line in lines}
        ours = (self.root / "lib", self.rendered)
        return {each for each in found if any(each.is_relative_to(folder) for folder in ours)}

    def twin(self, other: Tree, source: Path) -> Path:
        """Where the other tree has a source of this one."""
        if source.is_relative_to(self.rendered):
            return other.rendered / source.relative_to(self.rendered)
        return other.root / source.relative_to(self.root)


def cached(name: str) -> str:
    """A variable of the checkout's build, "" where cmake did not have to remember it."""
    text = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:\w+=(.*)$", text, re.MULTILINE)
    return found[1] if found else ""


@pytest.fixture
def checkout() -> Tree:
    if not (BUILD / "lib" / "libgpufence.so").is_file():
        pytest.skip(f"{BUILD} holds no build: run ci/build first")
    return Tree(REPO, BUILD.resolve() / "gen", BUILD.resolve(), cached("CMAKE_MAKE_PROGRAM"))


def test_standalone_tree_builds_the_library_without_python(tmp_path: Path, checkout: Tree) -> None:
    tree = Tree(tmp_path / "tree", tmp_path / "tree" / "gen", tmp_path / "build", checkout.ninja)
    assert cli.main(["render", "--standalone", str(tree.root)]) == 0
    same = ("CMAKE_BUILD_TYPE", "CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_MAKE_PROGRAM",
            "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER",
            "CMAKE_TOOLCHAIN_FILE", "GPUFENCE_LTO")  # fmt: skip
    options = [f"-D{name}={cached(name)}" for name in same if cached(name)]
    options.append("-DPython3_EXECUTABLE=/bin/false")
    cmake = cached("CMAKE_COMMAND")
    # A PATH with the compiler's tools and nothing that could be a Python of ours.
    env = {**os.environ, "PATH": "/usr/bin:/bin"}

    configure = [cmake, "-S", tree.root / "lib", "-B", tree.build, "-G", "Ninja", *options]
    subprocess.run(configure, env=env, check=True, capture_output=True)

    # One layer as evidence that the commands run here.
    one = [cmake, "--build", tree.build, "--target", "gpufence_base"]
    subprocess.run(one, env=env, check=True, capture_output=True)
    rendering = [line for line in checkout.commands() if " -m gen " in line]
    assert tree.commands() == [line for line in checkout.commands() if line not in rendering]
    sources = checkout.sources()
    assert len(sources) > 120
    for source in sources:
        assert checkout.twin(tree, source).read_bytes() == source.read_bytes(), source
    assert not list(tree.root.rglob("*.py"))


def test_standalone_tree_is_installed_by_cmake(tmp_path: Path) -> None:
    small = plant(tmp_path / "checkout")
    tree, build, prefix = tmp_path / "tree", tmp_path / "build", tmp_path / "prefix"
    render = [sys.executable, "-B", "-m", "gen", "render", "--standalone", tree]
    subprocess.run(render, cwd=small.root / "tools", check=True)
    tools = small.root / ".venv" / "bin"
    # The simulated driver knows the real API only.
    options = ["-DGPUFENCE_SIM=OFF", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}",
               "-DPython3_EXECUTABLE=/bin/false"]  # fmt: skip

    for words in (
        ["-S", tree / "lib", "-B", build, "-G", "Ninja", *options],
        ["--build", build],
        ["--install", build, "--prefix", prefix],
    ):
        subprocess.run([tools / "cmake", *words], check=True, capture_output=True)

    assert sorted(path.name for path in (prefix / "gpufence" / "lib").iterdir()) == [
        "ld.so.preload",
        "ld.so.preload.addpath",
        "libgpufence-addpath.so",
        "libgpufence-limits.so",
        "libgpufence.so",
    ]


def test_configuring_without_jinja2_says_what_to_type(tmp_path: Path) -> None:
    small = plant(tmp_path / "checkout")
    bare = tmp_path / "python3"  # this Python without its packages
    bare.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I -S "$@"\n')
    bare.chmod(0o755)
    words = ["-S", small.root / "lib", "-B", tmp_path / "build", "-G", "Ninja"]
    words += [f"-DPython3_EXECUTABLE={bare}"]

    tools = small.root / ".venv" / "bin"
    done = subprocess.run(
        [tools / "cmake", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", *words],
        capture_output=True,
        text=True,
        check=False,
    )

    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert f"{bare} has no jinja2" in said
    assert f"{bare} -m pip install jinja2" in said


def test_hookgen_without_jinja2_says_what_is_missing(tmp_path: Path) -> None:
    blocker = (
        "import sys\n"
        "sys.modules['jinja2'] = None\n"
        "from gen.cli import main\n"
        f"sys.exit(main(['render', '--out', {str(tmp_path)!r}]))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO / "tools")}

    done = subprocess.run(
        [sys.executable, "-c", blocker], env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "render needs the Python package 'jinja2'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_standalone_tree_is_never_written_over_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("keep")

    status = cli.main(["render", "--standalone", str(tmp_path)])

    assert status == 1
    assert "something is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
