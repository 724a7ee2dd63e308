"""One run of the report: from LIB arguments to an `Outcome`.

Owns the order of work: files are vetted first, then lief reads them in a child process while the
API model loads here. Must not print, and must not know an output format.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import api, diff, drivers, history, targets, values, vet
from .errors import Exit, Refusal, ToolError, UnreadableError
from .reader import Reader, Request
from .targets import FileTarget, ListTarget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .elf import Library
    from .reader import Reading

MODEL = "model"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, checked for form but not for existence."""

    libraries: tuple[str, ...]
    hooked: str  # a path, MODEL, or "" for the installed library
    since: str
    against: tuple[str, ...]
    driver: str  # report on the shipped lists of a driver instead of files
    places: targets.Places
    api_folder: Path
    installed: Path | None  # the installed library, where there is one


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found; `status` holds every bit, before --fail-on."""

    reports: tuple[diff.Report, ...]
    refusals: tuple[Refusal, ...]

    @property
    def status(self) -> Exit:
        """Errors and findings of all libraries together."""
        bits = Exit.ERROR if self.refusals else Exit.OK
        for report in self.reports:
            bits |= report.findings()
        return bits


def run(options: Options) -> Outcome:
    """Examine every library; one that is refused does not keep the others from being reported.

    Raises:
        ToolError: the run as a whole makes no sense (a bad baseline, no API model).
    """
    lists = history.shipped(options.api_folder / "symbols")
    found, refusals = _find_all(options, lists)
    against = [_baseline_target(name) for name in options.against]
    _check_kinds(against, found)
    hooked = _hooked_request(options)

    files = [target for target in (*found, *against) if isinstance(target, FileTarget)]
    requests = [Request(target.path, target.vetted) for target in files]
    reader = Reader([*requests, *([hooked] if hooked else [])])
    model = api.load(options.api_folder)
    first = {t.machine: history.first_drivers(lists, t.machine) for t in found}
    versions = [target.driver() for target in found]

    readings = iter(reader.results())
    subjects = _subjects(found, versions, readings, refusals)
    baselines = {t.library: _baseline_of(t, readings) for t in against}
    built = _built(hooked, next(readings)) if hooked else None
    reports = []
    for subject in subjects:
        baseline = baselines.get(subject.library) or _listed_baseline(subject, options.since, lists)
        report = diff.examine(subject, model, built, baseline, first[subject.machine])
        came = values.between(options.api_folder, subject.library, baseline.driver, subject.driver)
        reports.append(replace(report, values=came))
    return Outcome(tuple(reports), tuple(refusals))


def _find_all(
    options: Options, lists: Sequence[history.DriverList]
) -> tuple[list[FileTarget | ListTarget], list[Refusal]]:
    found: list[FileTarget | ListTarget] = []
    refusals = []
    for name in options.libraries:
        try:
            if options.driver:
                found.append(targets.of_driver(name, options.driver, options.places, lists))
            else:
                found.append(targets.find(name, options.places))
        except UnreadableError as error:  # noqa: PERF203 - each library is refused on its own
            refusals.append(_refusal(name, error))
    return found, refusals


def _refusal(name: str, error: UnreadableError) -> Refusal:
    return Refusal(name, f"'{name}' refused", error.why, error.fix)


def _subjects(
    found: Sequence[FileTarget | ListTarget],
    versions: Sequence[str],
    readings: Iterator[Reading],
    refusals: list[Refusal],
) -> list[diff.Subject]:
    """Join what was found with what lief read; what lief could not read joins the refusals."""
    subjects = []
    for target, version in zip(found, versions, strict=True):
        if isinstance(target, ListTarget):
            subjects.append(_subject_of_list(target))
            continue
        try:
            subjects.append(_subject_of_file(target, version, next(readings).facts()))
        except UnreadableError as error:
            refusals.append(_refusal(target.asked, error))
    return subjects


def _subject_of_file(target: FileTarget, version: str, library: Library) -> diff.Subject:
    return diff.Subject(
        library=target.library,
        soname=library.soname or drivers.SONAMES[target.library],
        asked=target.asked,
        path=str(target.path.resolve()),
        driver=version,
        machine=library.machine,
        build_id=library.build_id,
        symbols=library.symbols,
        plt_self=library.plt_self,
        data_self=library.data_self,
        self_calls_known=True,
    )


def _subject_of_list(target: ListTarget) -> diff.Subject:
    return diff.Subject(
        library=target.library,
        soname=drivers.SONAMES[target.library],
        asked=target.asked,
        path=str(target.listed.path),
        driver=target.driver(),
        machine=target.machine,
        build_id="",
        symbols=target.symbols(),
        plt_self=(),
        data_self=(),
        self_calls_known=False,
    )


def _baseline_target(name: str) -> FileTarget | ListTarget:
    try:
        return targets.of_file(name, Path(name), "any")
    except UnreadableError as error:
        raise ToolError(f"baseline '{name}' refused", error.why, error.fix) from None


def _check_kinds(
    against: Sequence[FileTarget | ListTarget], found: Sequence[FileTarget | ListTarget]
) -> None:
    """Refuse a baseline that no library would be compared with."""
    for baseline in against:
        if found and all(target.library != baseline.library for target in found):
            raise ToolError(
                what=f"baseline '{baseline.asked}' refused",
                why=f"it is a {drivers.SONAMES[baseline.library]}, and no LIB is one",
                fix="Give --against a library of the same kind as LIB.",
                status=Exit.USAGE,
            )


def _baseline_of(target: FileTarget | ListTarget, readings: Iterator[Reading]) -> diff.Baseline:
    if isinstance(target, ListTarget):
        return diff.Baseline(target.asked, target.listed.names(), target.driver())
    try:
        library = next(readings).facts()
    except UnreadableError as error:
        raise ToolError(f"baseline '{target.asked}' refused", error.why, error.fix) from None
    driver = target.driver()
    label = f"{target.asked} (driver {driver})" if driver else target.asked
    return diff.Baseline(label, frozenset(symbol.name for symbol in library.symbols), driver)


def _listed_baseline(
    subject: diff.Subject, since: str, lists: Sequence[history.DriverList]
) -> diff.Baseline:
    """The named list, else the nearest one; without any list nothing is new.

    Raises:
        ToolError: exit 2, no list matches `since`.
    """
    names = frozenset(symbol.name for symbol in subject.symbols)
    chosen: history.DriverList | None
    if since:
        chosen = history.choose(lists, subject.library, subject.machine, since)
    else:
        chosen = history.nearest(lists, subject.library, subject.machine, subject.driver, names)
    if chosen is None:
        return diff.Baseline(f"nothing (no list of {subject.library} on {subject.machine})", names)
    return diff.Baseline(f"driver {chosen.driver}", chosen.names(), chosen.driver)


def _hooked_request(options: Options) -> Request | None:
    """The built library to compare with; None for the model.

    Raises:
        ToolError: it was named, or is installed, but is no library.
    """
    path = Path(options.hooked) if options.hooked else options.installed
    if path is None or options.hooked == MODEL:
        return None
    try:
        return Request(path, vet.vet(path))
    except UnreadableError as error:
        raise _built_error(path, error) from None


def _built(request: Request, reading: Reading) -> diff.Hooked:
    try:
        return hooked_of(request.path, reading.facts())
    except UnreadableError as error:
        raise _built_error(request.path, error) from None


def _built_error(path: Path, error: UnreadableError) -> ToolError:
    return ToolError(
        what=f"built library '{path}' refused",
        why=error.why,
        fix=f"{error.fix} Or pass --hooked {MODEL} to compare with the API model.",
    )


def hooked_of(path: Path, library: Library) -> diff.Hooked:
    """Sort the exports of a built library: hooks are strong, bodies that only forward are weak."""
    strong = {symbol.name for symbol in library.symbols if symbol.binding != "weak"}
    weak = {symbol.name for symbol in library.symbols if symbol.binding == "weak"}
    return diff.Hooked(str(path), frozenset(strong), frozenset(weak))
