"""`hookgen verify`: the committed model and the golden files are what would be written now.

Owns the three proofs and their report: the model extracted again, the golden API rendered again,
and a C probe compiled against the real headers. Must not write anything.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import extract, ir, probe, wheels
from .errors import ExitCode, HookgenError
from .facts import HeaderSet
from .join import LIBRARIES
from .render import default_api_dir

_CONTEXT = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `hookgen verify`."""
    parser.add_argument("--api", type=Path, metavar="DIR", help="the model (default: lib/api)")
    parser.add_argument(
        "--golden",
        type=Path,
        metavar="DIR",
        help="the folder with api and rendered (default: tests/golden of the repository)",
    )


def run(args: argparse.Namespace) -> int:
    """Print a unified diff, or what the compiler says, for whatever is not as committed.

    Returns:
        OK, or DIFFERS (5).

    Raises:
        HookgenError: exit 1; a proof cannot be made.
    """
    api = args.api or default_api_dir()
    pins = wheels.read_pins(api / "headers.json")
    sets = wheels.header_sets(pins, wheels.cache_folder())
    findings = [*check_model(api, sets, [pin.source() for pin in pins])]
    findings += check_golden(args.golden or _golden_folder())
    findings += check_headers(api, sets[-1])
    for finding in findings:
        print(finding)
    if findings:
        print(
            f"hookgen: {len(findings)} difference(s) in '{api}' or the goldens: if they are "
            "meant, run `hookgen extract` or `pytest --update-golden`, and commit the result",
            file=sys.stderr,
        )
        return ExitCode.DIFFERS
    print("hookgen: the model and the goldens are what would be written now", file=sys.stderr)
    return ExitCode.OK


def check_model(api: Path, sets: tuple[HeaderSet, ...], sources: list[ir.Source]) -> Iterator[str]:
    """Extract again; a diff for each model file that is not exactly that."""
    for library, model in extract.extract(api, sets, sources).items():
        name = f"{library}.json"
        yield from _difference(name, _read(api / name), ir.dumps(model), "extracted")


def check_golden(folder: Path) -> Iterator[str]:
    """Render the golden API again; a diff for each file that is not exactly that."""
    if not (folder / "api").is_dir():
        print(f"hookgen: no golden files in '{folder}': not compared", file=sys.stderr)
        return
    committed = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((folder / "rendered").iterdir())
    }
    yield from compare(committed, _render(folder / "api"), "rendered")


def compare(committed: Mapping[str, str], now: Mapping[str, str], label: str) -> Iterator[str]:
    """A diff for each text that differs, is missing or is left over."""
    for name in sorted(committed.keys() | now.keys()):
        yield from _difference(name, committed.get(name, ""), now.get(name, ""), label)


def check_headers(api: Path, headers: HeaderSet) -> Iterator[str]:
    """Compile the probe of each committed model against the newest headers."""
    compiler = probe.find_compiler()
    if not compiler:
        print(
            "hookgen: no C compiler (CC, cc, gcc, clang): sizes, offsets and prototypes are not "
            "probed",
            file=sys.stderr,
        )
        return
    for library in LIBRARIES:
        try:
            model = ir.loads(_read(api / f"{library}.json"))
        except ValueError:
            continue  # damaged, which check_model has shown line by line
        complaints = probe.complaints(model, headers, compiler)
        if complaints:
            head = f"{library}.json contradicts the headers {headers.version}, says {compiler[0]}:"
            yield "\n".join([head, *complaints])


# Implementation.


def _golden_folder() -> Path:
    return Path(__file__).resolve().parents[2] / "tests" / "golden"


def _render(api: Path) -> dict[str, str]:
    from . import model, render

    return render.render(model.load(api))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise HookgenError(
            f"'{path}' cannot be read", str(error), "Run `hookgen extract`."
        ) from error


def _difference(name: str, committed: str, now: str, label: str) -> Iterator[str]:
    """A unified diff, or nothing.

    Equal heads and tails are cut off first: difflib needs a second for 20,000 lines.
    """
    if committed == now:
        return
    old, new = committed.splitlines(), now.splitlines()
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    first, keep = max(head - _CONTEXT, 0), max(tail - _CONTEXT, 0)
    lines = difflib.unified_diff(
        old[first : len(old) - keep],
        new[first : len(new) - keep],
        f"committed/{name} (from line {first + 1})",
        f"{label}/{name}",
        n=_CONTEXT,
        lineterm="",
    )
    yield "\n".join(lines) or f"{name}: only the end of a line differs"
