"""`findsyms [LIB ...]` and `findsyms check LIB`: arguments in, text and an exit status out.

Owns the command line, the streams and the exit status. Must not know ELF or what a finding means.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import api
from .arguments import Parser
from .errors import Exit, ToolError, drop, say
from .locate import DEFAULT_SONAMES
from .session import MODEL, Options, Outcome, run
from .targets import Places
from .vet import MACHINES, this_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGE = Path(__file__).resolve().parent

_FAIL_ON = {
    "additions": Exit.ADDITIONS,
    "removals": Exit.REMOVALS,
    "unhandled": Exit.UNHANDLED,
    "all": Exit.ADDITIONS | Exit.REMOVALS | Exit.UNHANDLED,
    "none": Exit.OK,
}

_EPILOG = f"""\
status of a symbol:
  overridden         a hook of ours handles it (a strong symbol of the built library)
  passthrough        forwarded by a rendered, typed jump (a weak symbol)
  without prototype  forwarded blindly: no header declares it
  left to driver     never ours, with a reason (lib/api/left-to-driver.txt)
  not covered        the built library does not have it; a call reaches the driver unseen

kind of a symbol: allocates, frees, launches, copies/sets, reports memory, context, dispatch,
stream, plain. All but copies/sets, stream and plain are enforced: such a symbol must be
overridden, or excused with a reason in lib/api/passthrough.txt. Otherwise it is a hole, and so
is a variant whose sibling is overridden.

exit status, a sum of:
  {Exit.ERROR:d}   a library was refused, or the run failed
  {Exit.USAGE:d}   usage
  {Exit.ADDITIONS:d}   the driver has names that the baseline or the built library lacks
  {Exit.REMOVALS:d}   the baseline has names that the driver lacks
  {Exit.UNHANDLED:d}  an enforced kind is not handled (a hole)
`findsyms check` is a verdict and has statuses of its own: see `findsyms check --help`.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments of the report."""
    found = Parser(
        prog="findsyms",
        usage="%(prog)s [LIB ...] [options]\n       %(prog)s check LIBGPUFENCE.so [options]",
        description="What does a driver export, what of it do we handle, and what has changed?",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument(
        "libraries",
        metavar="LIB",
        nargs="*",
        help="a path, a soname found as ld.so would find it, or a list of names (.txt); "
        f"default: {' '.join(DEFAULT_SONAMES)}",
    )
    _add_comparison(found)
    _add_output(found)
    found.add_version()
    return found


def _add_comparison(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("comparison")
    group.add_argument(
        "--hooked",
        metavar="FILE.so",
        default="",
        help=f"a built libgpufence.so, or `{MODEL}`; default: the installed one, else the model",
    )
    baseline = group.add_mutually_exclusive_group()
    baseline.add_argument(
        "--since",
        metavar="DRIVER",
        default="",
        help="shipped list to compare with: 550, 550.163.01",
    )
    baseline.add_argument(
        "--against",
        metavar="FILE.so",
        action="append",
        default=[],
        help="library or list to compare with (may be repeated); default: the nearest shipped list",
    )
    group.add_argument(
        "--driver",
        metavar="DRIVER",
        default="",
        help="report on the shipped list of this driver instead of a library on this machine",
    )
    group.add_argument(
        "--arch",
        choices=(*MACHINES.values(), "any"),
        default=this_machine() if this_machine() in MACHINES.values() else "any",
        help="accept libraries of this architecture; default: this machine's",
    )
    group.add_argument(
        "--api",
        metavar="DIR",
        type=Path,
        default=api.default_folder(_PACKAGE),
        help="the API model",
    )


def _add_output(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("output")
    forms = group.add_mutually_exclusive_group()
    for form, text in (
        ("text", "a table (default)"),
        ("json", "schema 1, see docs/findsyms.md"),
        ("markdown", "for a pull request"),
        ("sarif", "SARIF 2.1.0, for code scanning"),
    ):
        forms.add_argument(
            f"--{form}", dest="form", action="store_const", const=form, default="", help=text
        )
    group.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write there; .json, .md, .sarif or .txt choose the format",
    )
    group.add_argument("-v", "--verbose", action="store_true", help="every symbol, nothing folded")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )
    group.add_argument(
        "--fail-on",
        metavar="WHAT",
        default="all",
        help=f"findings that count in the exit status: {', '.join(_FAIL_ON)} (comma-separated)",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _run(given)
    except SystemExit as end:  # the help was printed
        status = end.code if isinstance(end.code, int) else int(Exit.USAGE)
        try:
            if sys.stdout is not None:
                _write("", None)
        except ToolError as error:
            say(error.refusal.line())
            status = status or int(error.status)
    return status


def _run(given: Sequence[str]) -> int:
    try:
        if given[:1] == ["check"]:
            from . import check_cli

            text, status = check_cli.run(given[1:], _PACKAGE)
            _write(text, None)
            return status
        return _report(given)
    except ToolError as error:
        say(error.line())
        if "--json" in given:
            _tell_script(error)
        return int(error.status)
    except KeyboardInterrupt:
        return 130


def _tell_script(error: ToolError) -> None:
    """The failure as an object; where stdout itself has failed, stderr has said so already."""
    with contextlib.suppress(ToolError):
        _write(error.as_json(), None)


def _report(arguments: Sequence[str]) -> int:
    found = parser()
    options = found.parse_args(arguments)
    counted = Exit.ERROR | Exit.USAGE
    for word in options.fail_on.split(","):
        if word not in _FAIL_ON:
            found.error(f"--fail-on '{word}' is not one of {', '.join(_FAIL_ON)}")
        counted |= _FAIL_ON[word]
    outcome = run(
        Options(
            libraries=tuple(options.libraries or DEFAULT_SONAMES),
            hooked=options.hooked,
            since=options.since,
            against=tuple(options.against),
            driver=options.driver,
            places=Places(options.arch, os.environ),
            api_folder=options.api,
            installed=_installed(),
        )
    )
    for refusal in outcome.refusals:
        say(refusal.line())
    _write(_spell(outcome, options), options.output)
    return int(outcome.status & counted)


def _installed() -> Path | None:
    """The built library beside the tool: in the wheel, else in a checkout's build folder."""
    repository = _PACKAGE.parent.parent
    places = (_PACKAGE.parent / "lib", repository / "build" / "lib")
    return next((p / "libgpufence.so" for p in places if (p / "libgpufence.so").is_file()), None)


def is_coloured(choice: str, on_terminal: bool) -> bool:
    """Whether the text has colours, for what --color says; `gpufence` decides the same."""
    if choice != "auto":
        return choice == "always"
    return on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _spell(outcome: Outcome, options: argparse.Namespace) -> str:
    from .as_text import Style
    from .render import EXTENSIONS, render

    output: Path | None = options.output
    by_name = EXTENSIONS.get(output.suffix, "text") if output else "text"
    is_terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    style = Style(
        colour=is_coloured(options.color, is_terminal),
        columns=shutil.get_terminal_size().columns if is_terminal else 0,
        verbose=options.verbose,
    )
    return render(outcome, options.form or by_name, style)


def _write(text: str, output: Path | None) -> None:
    """Print, or write a file. A reader that has seen enough (`| head`) is no error.

    Raises:
        ToolError: exit 1, the output cannot be written.
    """
    try:
        if output is not None:
            output.write_text(text, encoding="utf-8")
            return
        if sys.stdout is None:
            raise OSError(errno.EBADF, "stdout is closed")
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop(1)
    except OSError as error:
        if output is None and sys.stdout is not None:
            drop(1)
        raise ToolError(
            what=f"output '{output or 'stdout'}' failed",
            why=(error.strerror or str(error)).lower(),
            fix="Free space, or choose another file with -o.",
        ) from None
