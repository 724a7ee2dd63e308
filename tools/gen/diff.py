"""`hookgen diff OLD NEW`: what the headers of one CUDA release have that another's had not.

Owns the four ways to show it. Must not know how changes are found.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from . import changes, hooks, rules, surface
from .changes import Change
from .errors import ExitCode, HookgenError
from .join import LIBRARIES
from .render import default_api_dir

_SARIF = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_SORTS = {
    "function": "prototype",
    "enum": "enumerator",
    "record": "member or layout",
    "macros": "macro",
}
_RULES = {
    "unjudged-value": ("error", "A new or changed value reaches an enforced function, unjudged."),
    "changed-surface": ("note", "A value, member or prototype is new, changed or gone."),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `hookgen diff`."""
    parser.add_argument("old", metavar="OLD", help="headers of a CUDA release, such as 13.0")
    parser.add_argument("new", metavar="NEW", help="later headers, such as 13.5")
    parser.add_argument("--api", type=Path, metavar="DIR", help="the model (default: lib/api)")
    parser.add_argument("--all", action="store_true", help="also what reaches no enforced function")
    form = parser.add_mutually_exclusive_group()
    for name in ("json", "markdown", "sarif"):
        form.add_argument(
            f"--{name}", dest="form", action="store_const", const=name, help=f"print {name}"
        )


def run(args: argparse.Namespace) -> int:
    """Print the changes.

    Returns:
        OK, or DIFFERS (5) when one of them is a hole.

    Raises:
        HookgenError: exit 1 for a damaged table; 2 for headers that the model does not hold.
    """
    api = args.api or default_api_dir()
    found = {name: _between(api, name, args.old, args.new) for name in LIBRARIES}
    shown = {
        name: tuple(change for change in each if args.all or change.via)
        for name, each in found.items()
    }
    show = {"json": as_json, "markdown": as_markdown, "sarif": as_sarif}.get(args.form, as_text)
    print(show(args.old, args.new, shown), end="")
    is_open = any(change.is_hole for each in found.values() for change in each)
    return ExitCode.DIFFERS if is_open else ExitCode.OK


def load(api: Path, library: str) -> surface.Surface:
    """The committed surface of a library; HookgenError when it cannot be read."""
    file = surface.file_of(library)
    return surface.loads(_read(api / file), file)


def judged(api: Path) -> changes.Judgement:
    """What is committed: judged.txt, passthrough.txt and the hooks; HookgenError when damaged."""
    table = _read(api / hooks.PASSTHROUGH)
    passed = rules.read(table, hooks.PASSTHROUGH)
    folder = api.parent / "src" / "hooks"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.cpp"))]

    def handled(name: str) -> str:
        rule = rules.of_family(name, passed)
        if rule is not None:
            return rule.reason
        mentioning = (text for text in texts if name in text)
        is_hooked = any(hooks.definition_line(text, name) for text in mentioning)
        return "by hand, lib/src/hooks" if is_hooked else ""

    return changes.Judgement(changes.read_judged(_read(api / changes.JUDGED)), handled)


Found = dict[str, tuple[Change, ...]]


def as_text(old: str, new: str, found: Found) -> str:
    """A line for each change: sign, name, value, what it reaches, and what was judged."""
    lines = []
    for library, each in found.items():
        lines.append(f"{library}  headers {old} to {new}: {_count(each)}")
        lines += [f"  {_sign(change)} {change.name}  {_told(change)}" for change in each]
    return "\n".join(lines) + "\n"


def as_markdown(old: str, new: str, found: Found) -> str:
    """A table for each library."""
    lines = [f"# Headers {old} to {new}"]
    for library, each in found.items():
        lines += ["", f"## {library}", "", _count(each) + ".", ""]
        lines += ["| change | what | was | is | reaches | judged |", "| --- " * 6 + "|"]
        for change in each:
            cells = [f"`{change.name}`", f"{change.what} {_SORTS[change.key.sort]}"]
            cells += [f"`{value}`" if value else "" for value in (change.old, change.new)]
            cells += [change.via, change.judged or ("**open**" if change.is_hole else "")]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def as_json(old: str, new: str, found: Found) -> str:
    """Schema 1: `old`, `new`, `changes`."""
    rows = [
        {
            "library": library,
            "name": change.key.name,
            "sort": change.key.sort,
            "change": change.what,
            "old": change.old or None,
            "new": change.new or None,
            "since": change.since,
            "reaches": change.via or None,
            "judged": change.judged or None,
            "hole": change.is_hole,
        }
        for library, each in found.items()
        for change in each
    ]
    return json.dumps({"schema": 1, "old": old, "new": new, "changes": rows}, indent=2) + "\n"


def as_sarif(_old: str, _new: str, found: Found) -> str:
    """SARIF 2.1.0: holes are errors, other changes notes."""
    descriptions = [
        {"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for rule, (level, text) in _RULES.items()
    ]
    results = []
    for library, each in found.items():
        for change in each:
            rule = "unjudged-value" if change.is_hole else "changed-surface"
            uri = f"lib/api/{surface.file_of(library)}"
            logical = {"name": change.key.name, "fullyQualifiedName": f"{library}:{change.name}"}
            results.append(
                {
                    "ruleId": rule,
                    "ruleIndex": list(_RULES).index(rule),
                    "level": _RULES[rule][0],
                    "message": {"text": f"{change.name}: {_told(change)}"},
                    "locations": [
                        {
                            "physicalLocation": {"artifactLocation": {"uri": uri}},
                            "logicalLocations": [logical],
                        }
                    ],
                    "partialFingerprints": {"change/v1": f"{library}:{change.name}"},
                }
            )
    run_ = {"tool": {"driver": {"name": "hookgen", "rules": descriptions}}, "results": results}
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run_]}, indent=2) + "\n"


# Implementation.


def _between(api: Path, library: str, old: str, new: str) -> tuple[Change, ...]:
    known = load(api, library)
    for version in (old, new):
        if version not in known.versions:
            raise HookgenError(
                f"headers '{version}' refused",
                f"the model holds {', '.join(known.versions)}",
                "Name two of these, or pin the release in headers.json and run `hookgen extract`.",
                ExitCode.USAGE,
            )
    return changes.between(known, old, new, judged(api))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise HookgenError(
            f"'{path}' cannot be read", str(error), "Restore it, or run `hookgen extract`."
        ) from error


def _count(each: Sequence[Change]) -> str:
    words = (f"{sum(change.what == what for change in each)} {what}" for what in _WHATS)
    return f"{', '.join(words)}; {sum(change.is_hole for change in each)} holes"


_WHATS = ("new", "changed", "gone")


def _sign(change: Change) -> str:
    return "!" if change.is_hole else {"new": "+", "changed": "~", "gone": "-"}[change.what]


def _told(change: Change) -> str:
    values = " -> ".join(filter(None, (change.old, change.new)))
    reach = f"; reaches {change.via}" if change.via and change.key.sort != surface.MACROS else ""
    judgement = "nobody judged it: lib/api/judged.txt" if change.is_hole else change.judged
    return f"{change.what} {_SORTS[change.key.sort]}: {values}{reach}" + (
        f"; {judgement}" if judgement else ""
    )
