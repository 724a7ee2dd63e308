"""`hookgen render`: the model and the templates become the sources of a build.

Owns jinja2 (imported here only, and only when something is rendered), the banner and the writing of
files. Must not know what any output means; outputs.py has the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import filters, model, standalone
from .errors import ExitCode, HookgenError
from .ir import AliasType, FunctionType
from .outputs import OUTPUTS, Output
from .written import write_if_changed

if TYPE_CHECKING:
    import jinja2

# Raised when the same model and templates begin to give another text.
GENERATOR_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `hookgen render`."""
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--output", "--out", type=Path, metavar="DIR", help="write the rendered files here"
    )
    target.add_argument(
        "--standalone",
        type=Path,
        metavar="DIR",
        help="write a tree that builds with cmake and without Python",
    )
    target.add_argument("--list", action="store_true", help="print the names of the files and stop")
    parser.add_argument(
        "--api", type=Path, metavar="DIR", help="the model folder (default: lib/api)"
    )
    parser.add_argument(
        "--depfile",
        type=Path,
        metavar="F",
        help="write F for ninja: what F with the suffix .stamp depends on",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=(), help="render these files, not all"
    )


def run(args: argparse.Namespace) -> int:
    """Render; see `add_arguments`.

    Raises:
        HookgenError: exit 1 for a damaged model or an unwritable folder, 2 for an unknown --only.
    """
    outputs = _chosen(args.only)
    if args.list:
        print("\n".join(output.file for output in outputs))
        return ExitCode.OK
    api_dir = args.api or default_api_dir()
    if args.standalone is not None:
        checkout = standalone.checkout_for(args.standalone)
        standalone.write_tree(checkout, args.standalone, render(model.load(api_dir)))
        return ExitCode.OK
    texts = render(model.load(api_dir), outputs)
    for name, text in texts.items():
        write_if_changed(args.output / name, text)
    if args.depfile is not None:
        write_if_changed(args.depfile, depfile_text(args.depfile, api_dir))
    return ExitCode.OK


def default_api_dir() -> Path:
    """`<package>/../api` when installed, else `<repo>/lib/api`."""
    return _beside_package("api", "lib/api")


def templates_dir() -> Path:
    """`<package>/../templates` when installed, else `<repo>/templates`."""
    return _beside_package("templates", "templates")


def render(rendered: model.Model, outputs: Sequence[Output] = OUTPUTS) -> dict[str, str]:
    """The text of each output by file name.

    A pure function of the model, the templates and GENERATOR_VERSION.
    """
    environment = make_environment(templates_dir())
    texts = {}
    for output in outputs:
        template = environment.get_template(output.template)
        context = output.context(rendered)
        texts[output.file] = template.render(
            model=rendered, banner=banner(rendered, output), **context
        )
    return texts


def banner(rendered: model.Model, output: Output) -> str:
    """One line that tells where a file came from; no time, host or path."""
    return (
        f"{output.file}: hookgen {GENERATOR_VERSION}, templates/{output.template}, "
        f"model {rendered.digest}"
    )


def make_environment(folder: Path) -> jinja2.Environment:
    """Jinja2 as the style sheet wants it, with every filter and test that templates may use."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(
        constant_type=filters.constant_type,
        cpp_type=filters.cpp_type,
        declare=filters.declare,
        driver_number=filters.driver_number,
        enumerators=filters.enumerators,
        record_asserts=filters.record_asserts,
        record_body=filters.record_body,
    )
    environment.tests.update(
        alias_type=lambda decl: isinstance(decl, AliasType),
        function_type=lambda decl: isinstance(decl, FunctionType),
    )
    return environment


def depfile_text(depfile: Path, api_dir: Path) -> str:
    """A make rule: the stamp beside the depfile depends on model, templates and generator."""
    inputs = (
        *model.input_files(api_dir),
        *sorted(templates_dir().glob("*.j2")),
        *sorted(Path(__file__).parent.glob("*.py")),
    )
    escaped = " \\\n  ".join(_escape(path.resolve()) for path in inputs)
    return f"{_escape(depfile.with_suffix('.stamp'))}: {escaped}\n"


# Implementation.


def _chosen(only: Iterable[str]) -> tuple[Output, ...]:
    wanted = set(only)
    unknown = sorted(wanted - {output.file for output in OUTPUTS})
    if unknown:
        raise HookgenError(
            f"--only {unknown[0]} refused",
            "no such output",
            "`hookgen render --list` prints all.",
            ExitCode.USAGE,
        )
    return tuple(output for output in OUTPUTS if not wanted or output.file in wanted)


def _beside_package(installed: str, in_repository: str) -> Path:
    package = Path(__file__).resolve().parent
    beside = package.parent / installed
    return beside if beside.is_dir() else package.parent.parent / in_repository


def _escape(path: Path) -> str:
    return str(path).replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$")
