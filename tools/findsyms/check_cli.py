"""`findsyms check LIBGPUFENCE.so`: reads a library, applies `check.py`, spells the verdicts."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import api, check, vet
from .arguments import Parser
from .errors import CHECK_FAILED, ToolError, UnreadableError
from .reader import Reader, Request
from .session import hooked_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .elf import Library, Shape

_SCHEMA = 1
_SHOWN = 8
_EPILOG = """\
exit status:
  0    every rule is kept
  1    the library cannot be read
  2    wrong usage
  5    a rule is broken
A driver library in a file called `check` is reported on with `findsyms ./check`.
"""


def parser(package: Path) -> argparse.ArgumentParser:
    """The arguments of the subcommand."""
    found = Parser(
        prog="findsyms check",
        description="Prove that a built libgpufence.so, or its libgpufence-addpath.so, has the "
        "shape it must have.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("library", metavar="LIBGPUFENCE.so", help="path of the built library")
    found.add_argument("--glibc", metavar="VERSION", default="", help="fail above this, e.g. 2.17")
    found.add_argument(
        "--enforced", action="store_true", help="fail on enforced functions without hook or excuse"
    )
    found.add_argument("--json", action="store_true", help="schema 1, instead of text")
    found.add_argument("--verbose", "-v", action="store_true", help="name every offender")
    found.add_argument(
        "--api",
        metavar="DIR",
        type=Path,
        default=api.default_folder(package),
        help="the API model (default: the installed one, else lib/api)",
    )
    found.add_version()
    return found


def run(arguments: Sequence[str], package: Path) -> tuple[str, int]:
    """Judge one library: the text to print and the exit status.

    Raises:
        ToolError: the library cannot be read, or there is no API model.
    """
    arguments_parser = parser(package)
    options = arguments_parser.parse_args(arguments)
    if options.glibc and not re.fullmatch(r"\d+(\.\d+)+", options.glibc):
        arguments_parser.error(f"--glibc '{options.glibc}' is no version; write it like 2.17")
    path = Path(options.library)
    library, shape, model = _read(path, options.api)
    if library.soname == check.ADDPATH_SONAME:
        found = check.addpath_verdicts(library, shape, glibc_ceiling=options.glibc)
    else:
        found = check.verdicts(
            library,
            shape,
            model,
            hooked_of(path, library),
            glibc_ceiling=options.glibc,
            demand_enforced=options.enforced,
        )
    ok = all(verdict.ok for verdict in found)
    floor = check.glibc_floor(shape)
    text = _json(path, found, floor) if options.json else _text(path, found, options.verbose)
    return text, 0 if ok else CHECK_FAILED


def _read(path: Path, folder: Path) -> tuple[Library, Shape, api.Api]:
    try:
        reader = Reader([Request(path, vet.vet(path, must_export=False), shape=True)])
        model = api.load(folder)
        reading = reader.results()[0]
        return reading.facts(), reading.form(), model
    except UnreadableError as error:
        raise ToolError(f"'{path}' refused", error.why, error.fix) from None


def _text(path: Path, found: Sequence[check.Verdict], verbose: bool) -> str:
    lines = []
    for verdict in found:
        mark = "note" if verdict.is_note else "ok  " if verdict.ok else "FAIL"
        lines.append(f"{mark}  {verdict.rule:<20}  {verdict.detail}".rstrip())
        if verdict.ok and not verbose:
            continue
        shown = verdict.items if verbose else verdict.items[:_SHOWN]
        lines += [f"      {item}" for item in shown]
        if len(shown) < len(verdict.items):
            lines.append(f"      ... {len(verdict.items) - len(shown)} more; see --verbose")
        if not verdict.ok:
            lines.append(f"      (invariant {verdict.invariant})")
    broken = sum(not verdict.ok for verdict in found)
    rules = len(found)
    end = f"all {rules} rules kept" if not broken else f"{broken} of {rules} rules broken"
    return "\n".join([*lines, f"{path}: {end}"]) + "\n"


def _json(path: Path, found: Sequence[check.Verdict], floor: str) -> str:
    rules: list[dict[str, Any]] = [
        {
            "rule": verdict.rule,
            "invariant": verdict.invariant,
            "ok": verdict.ok,
            "note": verdict.is_note,
            "detail": verdict.detail,
            "items": list(verdict.items),
        }
        for verdict in found
    ]
    document = {
        "schema": _SCHEMA,
        "path": str(path),
        "ok": all(verdict.ok for verdict in found),
        "glibc": floor or None,
        "rules": rules,
    }
    return json.dumps(document, indent=2) + "\n"
