"""Write, list and check CDI files: devices that put a limit into a container.

    gpufence cdi generate --name small --memory 4GiB --cores 30 --output /etc/cdi/gpufence.yaml
    docker run --device nvidia.com/gpu=all --device gpufence.io/limit=small IMAGE

A device mounts the library, an /etc/ld.so.preload that names it, and the folders that it works in,
and sets the variables of its limit. Processes that lack those (`docker exec` passes none) find the
same limit in a read-only file, mounted where the library looks for its own. The GPU itself is
another vendor's device.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpufence import locate
from gpufence.cdi import cdi_spec, yaml_text
from gpufence.config import mps
from gpufence.console import output_file
from gpufence.errors import ExitCode, ToolError

from .run import TERM_VARIABLES, limit_variables, mode_variables, term_variables

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "done, and every file is valid",
    1: "a file cannot be read or written, or a package or the library is missing",
    2: "wrong usage, or a name or kind that CDI does not allow",
    4: "the library would refuse the limit",
    5: "a file is not valid",
}
VERB_STATUSES = {
    "generate": {
        0: "written",
        1: "a file cannot be written, or a package or the library is missing",
        2: "wrong usage, or a name or kind that CDI does not allow",
        4: "the library would refuse the limit",
    },
    "list": {
        0: "listed, also where there is no device",
        1: "a package is missing",
        2: "wrong usage",
    },
    "validate": {
        0: "every file is valid",
        1: "a file cannot be read, or a package is missing",
        2: "wrong usage",
        5: "a file is not valid",
    },
}

_FOLDERS = ("/etc/cdi", "/var/run/cdi")  # a later one wins
_SUFFIXES = (".json", ".yaml", ".yml")
_LIMITS = ("memory", "cores", "soft_cores")
_TERMS = ("priority", "weight", "core_burst", "core_floor", "mode")
_MOST_BYTES = 1 << 20


@dataclass(slots=True)
class _Profile:
    """What stands behind one --name."""

    name: str
    gpu: str = ""
    limits: dict[str, list[str]] = field(default_factory=dict)
    terms: dict[str, str] = field(default_factory=dict)


class _Collect(argparse.Action):
    """Options that belong to the latest --name, in the order in which they were written."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        collected: list[tuple[str, str]] = getattr(namespace, "profiles", None) or []
        namespace.profiles = [*collected, (self.dest, str(values))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the three verbs and their arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="generate|list|validate")
    generate = verbs.add_parser("generate", help="write a CDI file with a device for each limit")
    _add_limits(generate)
    generate.add_argument(
        "--kind", default=cdi_spec.KIND, help="VENDOR/CLASS of the devices; default: %(default)s"
    )
    generate.add_argument("--lib", metavar="FILE", help="libgpufence.so to mount")
    generate.add_argument(
        "--state-dir",
        "--state",
        dest="state",
        metavar="DIR",
        default="/run/gpufence",
        help="host folder of the containers' ledgers; default: %(default)s",
    )
    generate.add_argument(
        "--private-state",
        action="store_true",
        help="no host folder: each container keeps its ledger to itself",
    )
    generate.add_argument(
        "--node-dir",
        "--node",
        dest="node",
        metavar="DIR",
        default="/run/gpufence-node",
        help="host folder where containers take turns; default: %(default)s",
    )
    generate.add_argument("--no-node", action="store_true", help="no such folder")
    generate.add_argument(
        "--limits-dir",
        "--limits",
        metavar="DIR",
        default="/etc/gpufence/limits",
        help="host folder for the read-only file with each device's limit; default: %(default)s",
    )
    generate.add_argument("--add-path", action="store_true", help="libgpufence-addpath.so, too")
    generate.add_argument(
        "--format", choices=("yaml", "json"), help="default: as --output's name says, else yaml"
    )
    generate.add_argument("--output", metavar="FILE", default="-", help="default: stdout")
    listing = verbs.add_parser("list", help="list the devices of all CDI files")
    listing.add_argument(
        "--dir",
        metavar="DIR",
        action="append",
        type=Path,
        help="instead of /etc/cdi and /var/run/cdi; may be repeated",
    )
    listing.add_argument("--all", action="store_true", help="also devices that carry no limit")
    listing.add_argument("--json", action="store_true", help="one object, schema 1")
    validate = verbs.add_parser("validate", help="check files against the CDI specification")
    validate.add_argument("files", nargs="+", metavar="FILE", type=Path, help="to be checked")
    validate.add_argument("--json", action="store_true", help="one object, schema 1")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    for option, metavar, text in (
        ("--name", "NAME", "begins a device; what follows is its limit. Default: one, 'default'"),
        ("--memory", "[GPU=]SIZE", "as for `gpufence run`"),
        ("--cores", "[GPU=]PERCENT", "as for `gpufence run`"),
        ("--soft-cores", "[GPU=]PERCENT", "as for `gpufence run`"),
        ("--priority", "WORD", "as for `gpufence run`; needs a core limit"),
        ("--weight", "NUMBER", "as for `gpufence run`; needs a core limit"),
        ("--core-burst", "TIME", "as for `gpufence run`; needs a core limit"),
        ("--core-floor", "PERCENT", "as for `gpufence run`; needs a core limit"),
        ("--mode", "WORD", "as for `gpufence run`; needs a core limit"),
        ("--gpu", "GPU", "index or UUID that this device's amounts are for; default: every GPU"),
    ):
        parser.add_argument(option, metavar=metavar, action=_Collect, help=text)
    parser.add_argument(
        "--mps-dir",
        metavar="DIR",
        default=mps.USUAL_PIPES,
        help="host folder of the MPS daemon's pipes, for --mode mps; default: %(default)s",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Do what the verb says.

    Raises:
        ToolError: exit 1, 2 or 4, as the module says.
    """
    verbs = {"generate": _generate, "list": _list, "validate": _validate}
    return verbs[args.verb](args)


def _generate(args: argparse.Namespace) -> ExitCode:
    """Write one CDI file."""
    if why := cdi_spec.check_kind(args.kind):
        raise _refused(f"kind '{args.kind}' refused", why, f"Write {cdi_spec.KIND}")
    profiles = _profiles(getattr(args, "profiles", None) or [])
    source = _source(args)
    document = cdi_spec.build(args.kind, profiles, source)
    text = _spelled(document, _format(args))
    # First: an engine that finds the device finds its file.
    for name, variables in profiles.items():
        path = Path(cdi_spec.limits_file(source.limits, args.kind, name))
        _write_limits(path, cdi_spec.limits_text(variables, source))
    if args.output == "-":
        sys.stdout.write(text)
    else:
        _write(Path(args.output), text)
    for folder in [] if args.private_state else [args.state]:
        _hint_at_missing(folder)
    if not args.no_node:
        _hint_at_missing(args.node)
    if any(mps.THREADS in variables for variables in profiles.values()):
        _hint_at_daemon(args.mps_dir)
    return ExitCode.OK


def _profiles(collected: Sequence[tuple[str, str]]) -> dict[str, dict[str, str]]:
    profiles: list[_Profile] = []
    for option, text in collected:
        if option == "name" or not profiles:
            profiles.append(_Profile(text if option == "name" else "default"))
        if option == "gpu":
            profiles[-1].gpu = text
        elif option in _LIMITS:
            profiles[-1].limits.setdefault(option, []).append(text)
        elif option in profiles[-1].terms:
            flag = f"--{option.replace('_', '-')} '{text}' refused"
            raise _refused(flag, "it was given before for this device", "Give one of them")
        elif option in _TERMS:
            profiles[-1].terms[option] = text
    found: dict[str, dict[str, str]] = {}
    for profile in profiles or [_Profile("default")]:
        if not cdi_spec.is_device_name(profile.name):
            raise _refused(
                f"name '{profile.name}' refused",
                "a CDI device is called by letters, digits, '_', '-', '.' and ':'",
                "Begin and end it with a letter or digit",
            )
        if profile.name in found:
            raise _refused(f"name '{profile.name}' refused", "it was given before", "Give another")
        found[profile.name] = _variables(profile)
    return found


def _variables(profile: _Profile) -> dict[str, str]:
    given = {
        option: [
            text if "=" in text or not profile.gpu else f"{profile.gpu}={text}" for text in all_
        ]
        for option, all_ in profile.limits.items()
    }
    terms = dict(profile.terms)
    mode = terms.pop("mode", "")
    try:
        variables = limit_variables(given)
        variables |= term_variables(terms)
        variables |= mode_variables(mode, {**given, **terms}, "")
    except ToolError as error:
        raise ToolError(
            what=error.what, why=error.why, fix=error.fix, status=ExitCode.INVALID_LIMIT
        ) from None
    if not profile.limits:
        raise _refused(
            f"device '{profile.name}' refused",
            "it has no limit",
            "Give --memory or --cores behind it",
        )
    if profile.terms and "cores" not in profile.limits:
        raise _refused(
            f"device '{profile.name}' refused",
            f"--{next(iter(profile.terms)).replace('_', '-')} has no effect without a core limit",
            "Give --cores behind it",
        )
    # A name with '-' is no variable to a shell, which then would not pass it on.
    return {name.replace("-", "_"): text for name, text in variables.items()}


def _source(args: argparse.Namespace) -> cdi_spec.Source:
    try:
        library = locate.library(args.lib)
    except ToolError as error:
        raise ToolError(what=error.what, why=error.why, fix=error.fix) from None
    folders = {
        "--state-dir": args.state,
        "--node-dir": args.node,
        "--limits-dir": args.limits_dir,
        "--mps-dir": args.mps_dir,
    }
    for option, folder in folders.items():
        if not folder.startswith("/"):
            raise _refused(
                f"{option} '{folder}' refused", "it is no absolute path", "Write /run/gpufence"
            )
    return cdi_spec.Source(
        library=str(library),
        preload=str(locate.preload_file(library, with_addpath=args.add_path)),
        state=None if args.private_state else args.state,
        node=None if args.no_node else args.node,
        addpath=str(locate.addpath(library)) if args.add_path else None,
        limits=args.limits_dir.rstrip("/"),
        mps=args.mps_dir,
    )


def _format(args: argparse.Namespace) -> str:
    if args.format:
        return str(args.format)
    return "json" if args.output.endswith(".json") else "yaml"


def _spelled(document: object, form: str) -> str:
    return json.dumps(document, indent=2) + "\n" if form == "json" else yaml_text.dump(document)


def _write_limits(path: Path, text: str) -> None:
    """Make the file, which users of any container may read, and its folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        output_file.write(path, text)
    except OSError as error:
        raise ToolError(
            what=f"'{path}' not written",
            why=(error.strerror or str(error)).lower(),
            fix="Run as root, or name another folder with --limits-dir",
        ) from None


def _write(path: Path, text: str) -> None:
    try:
        output_file.write(path, text)
    except OSError as error:
        raise ToolError(
            what=f"'{path}' not written",
            why=(error.strerror or str(error)).lower(),
            fix="Make its folder, or run as a user who may write there",
        ) from None


def _hint_at_missing(folder: str) -> None:
    if not Path(folder).is_dir():
        print(
            f"gpufence: before the first container starts, make its folder: "
            f"`mkdir -m 1777 {folder}`. It does not exist on this machine.",
            file=sys.stderr,
        )


def _hint_at_daemon(folder: str) -> None:
    try:
        mps.check_daemon({mps.PIPES: folder})
    except mps.ModeError as error:
        print(
            f"gpufence: before the first container starts, start MPS: {error.why}. {error.fix}.",
            file=sys.stderr,
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A CDI file: its document, or why there is none."""

    path: Path
    document: object
    problem: str

    def complaints(self) -> list[str]:
        return [self.problem] if self.problem else cdi_spec.check(self.document)


def _read(path: Path) -> _Read:
    """One file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        return _Read(path, None, f"it is longer than {_MOST_BYTES} bytes")
    try:
        text = content.decode()
        document = json.loads(text) if path.suffix == ".json" else yaml_text.load(text)
    except UnicodeDecodeError:
        return _Read(path, None, "it is no UTF-8")
    except yaml_text.YamlError as error:
        return _Read(path, None, str(error))
    except (ValueError, RecursionError) as error:
        return _Read(path, None, f"it is no JSON: {error}")
    return _Read(path, document, "")


def _validate(args: argparse.Namespace) -> ExitCode:
    """Print a verdict for each file to stdout.

    Raises:
        ToolError: exit 1, when a file cannot be read.
    """
    verdicts = [(path, _named(path).complaints()) for path in args.files]
    if args.json:
        files = [{"path": str(path), "problems": found} for path, found in verdicts]
        print(json.dumps({"schema": 1, "files": files}, indent=2))
    else:
        for path, found in verdicts:
            print(f"{path}: valid" if not found else "\n".join(f"{path}: {why}" for why in found))
    return ExitCode.CHECK_FAILED if any(found for _, found in verdicts) else ExitCode.OK


def _named(path: Path) -> _Read:
    """A file that the user named, which therefore must be there."""
    try:
        return _read(path)
    except OSError as error:
        raise ToolError(
            what=f"'{path}' cannot be read",
            why=(error.strerror or str(error)).lower(),
            fix="Name a CDI file",
        ) from None


def _list(args: argparse.Namespace) -> ExitCode:
    """Print the devices of the CDI folders; files that are no CDI files get a line on stderr.

    Returns:
        OK, also when there is no device at all.
    """
    rows: dict[str, dict[str, object]] = {}
    folders = args.dir or [Path(name) for name in _FOLDERS]
    for folder in folders:
        for read in _folder(folder):
            if complaints := read.complaints():
                print(f"gpufence: {read.path} is left out: {complaints[0]}.", file=sys.stderr)
                continue
            rows |= {str(row["device"]): row for row in _rows(read) if args.all or row["limits"]}
    if args.json:
        print(json.dumps({"schema": 1, "devices": list(rows.values())}, indent=2))
    else:
        for row in rows.values():
            limits = " ".join(f"{key}={text}" for key, text in _limits_of(row).items())
            print(f"{row['device']}  {limits or '(no limit)'}  {row['path']}")
        if not rows:
            what = "device" if args.all else "device with a limit"
            print(f"gpufence: no {what} in {', '.join(map(str, folders))}", file=sys.stderr)
    return ExitCode.OK


def _folder(folder: Path) -> list[_Read]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except OSError:
        return []  # an engine finds nothing there, either
    return [_readable(path) for path in paths]


def _readable(path: Path) -> _Read:
    """A file that was found, which may be unreadable."""
    try:
        return _read(path)
    except OSError as error:
        return _Read(path, None, (error.strerror or str(error)).lower())


def _rows(read: _Read) -> list[dict[str, object]]:
    document: Any = read.document
    common = (document.get("containerEdits") or {}).get("env") or []
    rows: list[dict[str, object]] = []
    for device in document["devices"]:
        variables = dict(
            text.split("=", 1) for text in (*common, *(device["containerEdits"].get("env") or []))
        )
        limits = {key: text for key, text in variables.items() if _is_limit(key)}
        name = f"{document['kind']}={device['name']}"
        rows.append({"device": name, "limits": limits, "path": str(read.path)})
    return rows


def _is_limit(name: str) -> bool:
    limits = ("GPUFENCE_MEMORY_LIMIT", "GPUFENCE_CORE_LIMIT", "GPUFENCE_CORE_SOFT", mps.MODE)
    return name.startswith(limits) or name in TERM_VARIABLES


def _limits_of(row: dict[str, object]) -> dict[str, str]:
    limits = row["limits"]
    return limits if isinstance(limits, dict) else {}


def _refused(what: str, why: str, fix: str) -> ToolError:
    return ToolError(what=what, why=why, fix=fix, status=ExitCode.USAGE)
