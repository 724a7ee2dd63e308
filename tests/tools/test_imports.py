"""Who may know whom among the Python tools, read from every import statement (design, section 5).

The walls are checked on the syntax tree, so a lazy import inside a function counts as well.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .gpufence_command import bare, cold
from .region_files import RegionFile, Signed

REPO = Path(__file__).resolve().parents[2]
TOOLS = REPO / "tools"

# Each costs a slow import or brings foreign types in; exactly one file may know it.
ONLY_HOME = {
    "lief": "findsyms/elf.py",
    "clang": "gen/headers.py",
    "jinja2": "gen/render.py",
}
# The live screen's classes stand on textual's, so it is the whole file that is imported lazily.
SCREEN = "gpufence/top/app.py"
# So it is with the agent, which speaks with the kubelet: only what imports it lazily starts it.
AGENT = {"google": "gpufence/node/messages.py", "grpc": "gpufence/node/wire.py"}
# What a command asks for when it is wanted, in a function: package -> files.
ASKED_FOR = {
    "jsonschema": {"gpufence/cdi/cdi_spec.py"},
    "prometheus_client": {"gpufence/export/metrics.py"},
    "rich": {"gpufence/console/screen.py"},
    "shtab": {"gpufence/commands/completion.py"},
    "yaml": {"gpufence/cdi/yaml_text.py"},
}
AGENT_FILES = ("agent", "dra", "messages", "plugin", "wire")


def modules(package: str) -> list[Path]:
    """Every Python file of a package under tools/."""
    return sorted((TOOLS / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module of a file, absolute, and whether it is imported as the file loads."""
    package = list(path.relative_to(TOOLS).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        eager = id(node) not in lazy
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, eager
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield ".".join([*base, *((node.module or "").split("."))]).rstrip("."), eager


def known_modules(path: Path) -> set[str]:
    """The modules of tools/ that a file imports, now or later; a package itself counts as none."""
    package = list(path.relative_to(TOOLS).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    names = {name for name, _ in imports(path)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = [part for part in [*base, *(node.module or "").split(".")] if part]
            names |= {".".join([*whole, alias.name]) for alias in node.names}
    return {name for name in names if (TOOLS / (name.replace(".", "/") + ".py")).is_file()}


def circle(edges: dict[str, set[str]]) -> list[str]:
    """One circle of imports, or nothing."""
    free: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in free:
            return []
        for following in sorted(edges.get(name, set())):
            if found := walk(following, [*path, name]):
                return found
        free.add(name)
        return []

    return next((found for name in sorted(edges) if (found := walk(name, []))), [])


@pytest.mark.parametrize("package", ["findsyms", "gen", "gpufence"])
def test_no_module_imports_itself_over_others(package: str) -> None:
    edges = {
        ".".join(path.relative_to(TOOLS).with_suffix("").parts): known_modules(path)
        for path in modules(package)
    }

    assert edges
    assert circle(edges) == []


def test_the_folders_of_the_command_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for path in modules("gpufence"):
        here = path.relative_to(TOOLS / "gpufence")
        if len(here.parts) > 1:
            known = {name.split(".")[1] for name in known_modules(path)}
            edges.setdefault(here.parts[0], set()).update(known - {here.parts[0]})

    assert len(edges) > 8
    assert circle(edges) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def is_type_checking(node: ast.AST) -> bool:
    """Whether the node is an `if TYPE_CHECKING:` block, which never runs."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@pytest.mark.parametrize(("module", "home"), sorted(ONLY_HOME.items()))
def test_a_heavy_module_has_one_home_and_is_imported_lazily(module: str, home: str) -> None:
    uses = {
        (str(path.relative_to(TOOLS)), eager)
        for package in ("findsyms", "gen", "gpufence")
        for path in modules(package)
        for name, eager in imports(path)
        if name.split(".")[0] == module
    }

    assert uses == {(home, False)}


def test_the_live_screen_is_one_file_that_is_imported_lazily() -> None:
    uses = {
        (str(path.relative_to(TOOLS)), name.split(".")[0], eager)
        for path in modules("gpufence")
        for name, eager in imports(path)
        if name.split(".")[0] in ("rich", "textual") or name == "gpufence.top.app"
        if str(path.relative_to(TOOLS)) not in ASKED_FOR["rich"]
    }

    assert uses == {
        (SCREEN, "rich", True),
        (SCREEN, "textual", True),
        ("gpufence/top/show.py", "gpufence", False),
    }


def test_grpc_and_its_messages_are_known_to_one_file_each() -> None:
    uses = {
        (name.split(".")[0], str(path.relative_to(TOOLS)))
        for path in modules("gpufence")
        for name, _ in imports(path)
        if name.split(".")[0] in AGENT
    }

    assert uses == set(AGENT.items())


def test_only_the_running_agent_loads_what_speaks_grpc() -> None:
    inside = {TOOLS / "gpufence" / "node" / f"{name}.py" for name in AGENT_FILES}
    uses = {
        (str(path.relative_to(TOOLS)), eager)
        for path in set(modules("gpufence")) - inside
        for name, eager in imports(path)
        if name.startswith("gpufence.node.") and name.split(".")[2] in AGENT_FILES
    }

    assert uses == set()
    # `from gpufence.node import agent` names the package alone: what loads at once is little.
    eager = {name for name, now in imports(TOOLS / "gpufence/commands/node.py") if now}
    assert eager == {"__future__", "argparse", "gpufence.errors", "pathlib"}


@pytest.mark.parametrize(
    ("package", "strangers"),
    [("gen", {"findsyms", "gpufence"}), ("findsyms", {"gen", "gpufence"})],
)
def test_gen_and_findsyms_know_neither_each_other_nor_the_product(
    package: str, strangers: set[str]
) -> None:
    # CMake runs both straight from tools/, before anything called gpufence is installed.
    known = {name.split(".")[0] for path in modules(package) for name, _ in imports(path)}

    assert modules(package)
    assert known & strangers == set()


def test_no_command_loads_a_package_that_is_not_asked_for() -> None:
    uses = {
        (name.split(".")[0], str(path.relative_to(TOOLS)), eager)
        for path in modules("gpufence")
        if path != TOOLS / SCREEN and str(path.relative_to(TOOLS)) not in AGENT.values()
        for name, eager in imports(path)
        if name != "gpufence" and not name.startswith("gpufence.")
    }
    foreign = {use for use in uses if use[0] not in sys.stdlib_module_names}

    assert foreign == {(name, path, False) for name in ASKED_FOR for path in ASKED_FOR[name]}
    assert "os" in {name for name, _, _ in uses}


# What an operator needs in any container, where Python may have its standard library only.
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("run", "--memory", "1g", "--", "echo", "started"), 0),
        (("config",), 0),
        (("set", "web", "--memory", "1g"), 0),
        (("status",), 0),
        (("doctor",), 5),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_operators_commands_need_the_standard_library_only(
    words: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    told = []
    for run in (bare, cold):
        folder = tmp_path / run.__name__
        folder.mkdir()
        env = {"GPUFENCE_STATE_DIR": str(folder), "GPUFENCE_MEMORY_LIMIT": "1g"}
        with RegionFile(folder, "web") as region:
            region.device(0)
            region.process(0, Signed())
            region.use(0, 0, held=3, limit=1 << 30)
            done = run(*words, **env)
        assert done.returncode == status, done.stderr
        assert done.stdout
        # A process's own number is another one each time.
        told.append(re.sub(rf"\d{{3,}}|{folder}", "N", done.stdout + done.stderr))

    assert told[0] == told[1]
