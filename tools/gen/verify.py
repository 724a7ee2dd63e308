"""`hookgen verify`: the committed model and the golden files are what would be written now.

Owns the four proofs and their report: the model extracted again, every change of it judged, the
golden API rendered again, and a C probe compiled against the real headers. Must not write anything.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from . import changes, codec, diff, extract, ir, probe, signatures, surface, wheels
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
    now = extract.extract(api, sets, [pin.source() for pin in pins])
    texts = {name: _read(api / name) for name in now}
    findings = list(compare(texts, now))
    findings += unjudged(now, api)
    models = _whole({name: text for name, text in texts.items() if name.endswith(".json")})
    findings += check_golden(args.golden or _golden_folder(), models)
    findings += check_headers(models, sets[-1])
    for finding in findings:
        print(finding)
    _say(
        f"{len(findings)} difference(s). If they are meant: `hookgen extract` for the model, "
        "`pytest --update-golden` for the goldens, then commit the result"
        if findings
        else "the model and the goldens are what would be written now"
    )
    return ExitCode.DIFFERS if findings else ExitCode.OK


def unjudged(texts: Mapping[str, str], api: Path) -> Iterator[str]:
    """A line for each new or changed value that nobody judged, and for each idle judgement.

    Args:
        texts: the surfaces, by file name, among other files.
        api: the folder that holds judged.txt.
    """
    judged = diff.judged(api)
    surfaces = []
    for library in LIBRARIES:
        file = surface.file_of(library)
        surfaces.append(surface.loads(texts[file], file))
        for change in changes.holes(surfaces[-1], judged):
            what = f"reaches {change.via} and nobody judged it"
            fix = f"Handle it, then add '{change.name} : reason' to {changes.JUDGED}"
            yield f"{file}: {change.name} = {change.new} {what}. {fix}."
    for rule in changes.idle(judged.rules, surfaces):
        yield f"{changes.JUDGED}: '{rule.pattern}' names no change of any headers. Remove the line."


def check_golden(folder: Path, models: Sequence[ir.Api]) -> Iterator[str]:
    """Render the golden API and list the signatures again; a diff for each file that differs."""
    if not (folder / "api").is_dir():
        _say(f"no golden files in '{folder}': not compared")
        return
    rendered = folder / "rendered"
    committed = {path.name: _read(path) for path in sorted(rendered.iterdir())}
    now = _render(folder / "api")
    if len(models) == len(LIBRARIES):
        committed["signatures.txt"] = _read(folder / "signatures.txt")
        now["signatures.txt"] = signatures.listing(models)
    yield from compare(committed, now)


def check_headers(models: Sequence[ir.Api], headers: HeaderSet) -> Iterator[str]:
    """Compile the probe of each committed model against the newest headers."""
    compiler = probe.find_compiler()
    if not compiler:
        _say("no C compiler (CC, cc, gcc, clang): sizes, offsets and prototypes are not probed")
        return
    for model in models:
        complaints = probe.complaints(model, headers, compiler)
        if complaints:
            what = f"{model.library} model against headers {headers.version}, by {compiler[0]}:"
            yield "\n".join([what, *complaints])


def compare(committed: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """A diff for each text that differs, is missing or is left over."""
    for name in sorted(committed.keys() | now.keys()):
        yield from _difference(name, committed.get(name, ""), now.get(name, ""))


# Implementation.


def _say(text: str) -> None:
    print(f"hookgen: {text}", file=sys.stderr)


def _whole(texts: Mapping[str, str]) -> list[ir.Api]:
    """The committed models that can be read; a damaged one has been shown line by line."""
    models = []
    for text in texts.values():
        with contextlib.suppress(ValueError):
            models.append(codec.loads(text))
    return models


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
            f"'{path}' cannot be read",
            str(error),
            "Restore it, or write it with `hookgen extract`.",
        ) from error


def _difference(name: str, committed: str, now: str) -> Iterator[str]:
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
        f"now/{name}",
        n=_CONTEXT,
        lineterm="",
    )
    yield "\n".join(lines) or f"{name}: only the end of a line differs"
