"""Become another program with libgpufence.so preloaded, inside limits if some are given.

Limits are read here as the library will read them, so that an unreadable one is told before
anything starts. The program keeps its own exit status; 125 means that gpufence itself failed, 126
that the command cannot be executed, 127 that it was not found.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import dialects, locate, sizes, sources
from .config import refused
from .errors import ExitCode, ToolError

USAGE_STATUS = ExitCode.WRAPPER_FAILED


@dataclass(frozen=True, slots=True)
class _Limit:
    """One kind of limit on the command line."""

    option: str
    variable: str
    what: str
    parse: Callable[[str], object]
    example: str


_LIMITS = (
    _Limit("memory", "GPUFENCE_MEMORY_LIMIT", "memory limit", sizes.parse_size, "0=10GiB"),
    _Limit("cores", "GPUFENCE_CORE_LIMIT", "core limit", sizes.parse_percent, "0=30"),
    _Limit(
        "soft_cores", "GPUFENCE_CORE_SOFT_LIMIT", "soft core limit", sizes.parse_percent, "0=60"
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; everything from the first positional on belongs to the program."""
    parser.add_argument(
        "--memory",
        action="append",
        default=[],
        metavar="[GPU=]SIZE",
        help="bytes of every GPU, or of the one with this index or UUID; may be repeated",
    )
    parser.add_argument(
        "--cores",
        action="append",
        default=[],
        metavar="[GPU=]PERCENT",
        help="share of GPU time, likewise",
    )
    parser.add_argument(
        "--soft-cores",
        action="append",
        default=[],
        metavar="[GPU=]PERCENT",
        help="share while nobody else wants the GPU; needs --cores",
    )
    parser.add_argument(
        "--container",
        metavar="NAME",
        help="share the limit with everything of that name; default with a limit: a new one",
    )
    parser.add_argument("--lib", metavar="PATH", help="libgpufence.so to preload")
    parser.add_argument("--sim", action="store_true", help="use the simulated driver")
    parser.add_argument(
        "--sim-driver", metavar="VERSION", help="driver to imitate, such as 550; implies --sim"
    )
    parser.usage = f"{parser.prog} [OPTION ...] [--] COMMAND [ARGUMENT ...]"
    parser.add_argument("argv", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> NoReturn:
    """Replace this process by the command.

    Raises:
        ToolError: 125 when the library, the simulator or the command line is unusable, 126 and 127
            when the command is.
    """
    command: list[str] = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not command:
        raise ToolError(
            what="nothing to run",
            why="no command was given",
            fix="Write `gpufence run -- COMMAND [ARGUMENT ...]`",
            status=ExitCode.WRAPPER_FAILED,
        )
    limits = limit_variables({each.option: getattr(args, each.option) for each in _LIMITS})
    if args.container == "":
        raise _wrong("container '' refused", "a container needs a name", "Give one or leave it out")
    driver = _driver(args.sim_driver)
    library = locate.library(args.lib)
    simulator = locate.simulator() if args.sim or driver else None
    environment = fenced(_inherited(), library, simulator, driver)
    environment = limited(environment, limits, args.container)
    _check(environment)
    if simulator:
        imitated = environment.get("GPUFENCE_SIM_DRIVER", "the newest it knows")
        print(f"gpufence: simulated driver ({imitated}), no real GPU is used", file=sys.stderr)
    _become(command, environment)


def fenced(
    base: Mapping[str, str], library: Path, simulator: Path | None, sim_driver: str | None
) -> dict[str, str]:
    """The environment of the fenced program.

    Args:
        base: the environment to start from; it is not changed.
        library: appended to LD_PRELOAD, behind what is already there (a user's own malloc stays
            first), and not a second time under a fenced parent.
        simulator: put in front of LD_LIBRARY_PATH; None leaves the real driver in place.
        sim_driver: the version that the simulator imitates; None keeps an inherited choice.
    """
    environment = dict(base)
    preloads = base.get("LD_PRELOAD", "")
    if str(library) not in preloads.replace(" ", ":").split(":"):
        environment["LD_PRELOAD"] = f"{preloads}:{library}" if preloads else str(library)
    if simulator:
        folders = base.get("LD_LIBRARY_PATH", "")
        if folders.split(":")[0] != str(simulator):
            environment["LD_LIBRARY_PATH"] = f"{simulator}:{folders}" if folders else str(simulator)
    if sim_driver:
        environment["GPUFENCE_SIM_DRIVER"] = sim_driver
    return environment


def limit_variables(given: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The variables that limits on the command line stand for.

    Args:
        given: by option; each argument AMOUNT, INDEX=AMOUNT or UUID=AMOUNT.

    Raises:
        ToolError: 125, for an amount or a GPU that the library would not read, or a GPU named
            twice, or a soft share without a hard one.
    """
    variables: dict[str, str] = {}
    for limit in _LIMITS:
        for argument in given.get(limit.option, ()):
            gpu, equals, text = argument.rpartition("=")
            name = f"{limit.variable}_{gpu}" if equals else limit.variable
            what = f"{limit.what} '{sizes.quote(argument)}' refused"
            try:
                limit.parse(text)
            except sizes.TextError as error:
                clause, fix = error.fault.value
                raise _wrong(what, f"'{sizes.quote(text)}' {clause}", fix) from None
            if equals and not _names_gpu(gpu):
                fix = f"Write {limit.example}"
                raise _wrong(what, "it names a GPU by neither index nor UUID", fix)
            if name in variables:
                raise _wrong(what, "another one is for the same GPU", "Give one for each GPU")
            variables[name] = text
    if given.get("soft_cores") and not given.get("cores"):
        what = f"soft core limit '{sizes.quote(given['soft_cores'][0])}' refused"
        raise _wrong(what, "it is nothing without a core limit", "Give --cores, too")
    return variables


def limited(
    base: Mapping[str, str], variables: Mapping[str, str], container: str | None
) -> dict[str, str]:
    """The environment with our limits in it.

    Args:
        base: the environment to start from; it is not changed.
        variables: limits; where there are any of a kind, inherited ones of that kind go, because a
            special one of them would beat a general one of ours.
        container: whom the limit is shared with; None makes a new name where there are variables.
    """
    replaced = [limit for limit in _LIMITS if any(_is_of(name, limit) for name in variables)]
    kept = {
        name: text
        for name, text in base.items()
        if not any(_is_of(name, limit) for limit in replaced)
    }
    if container is None and variables:
        container = f"run-{os.urandom(8).hex()}"
    return {**kept, **variables, **({"GPUFENCE_CONTAINER": container} if container else {})}


def _is_of(name: str, limit: _Limit) -> bool:
    return name == limit.variable or name.startswith(limit.variable + "_")


def _names_gpu(text: str) -> bool:
    if sizes.parse_index(text) is not None:
        return True
    try:
        return bool(sizes.parse_uuid(text))
    except sizes.TextError:
        return False


def _check(environment: Mapping[str, str]) -> None:
    """Refuse what the library would refuse at cuInit, wherever it stands."""
    entries = tuple(os.fsencode(f"{k}={v}").decode("latin-1") for k, v in environment.items())
    try:
        dialects.read_claims(sources.System("", entries))
    except sources.ConfigError as error:
        raise refused(error, ExitCode.WRAPPER_FAILED) from None


def _wrong(what: str, why: str, fix: str) -> ToolError:
    return ToolError(what=what, why=why, fix=fix, status=ExitCode.WRAPPER_FAILED)


def _driver(version: str | None) -> str | None:
    """Refuse a version that the simulator would not understand; a bare branch is enough."""
    known = locate.known_drivers()
    if version is None or not known or any(_matches(version, each) for each in known):
        return version
    raise ToolError(
        what=f"simulated driver '{version}' refused",
        why="no driver of that version is known",
        fix=f"Choose one of {', '.join(known)}, or a bare branch such as 550",
        status=ExitCode.WRAPPER_FAILED,
    )


def _matches(version: str, known: str) -> bool:
    return known == version or known.startswith(f"{version}.")


def _inherited() -> dict[str, str]:
    """The environment as our parent gave it.

    In the C locale Python adds LC_CTYPE to its own environment (PEP 538); the program must not
    inherit that, so it is taken back unless the kernel's copy of the environment has it too.
    """
    environment = dict(os.environ)
    try:
        given = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return environment
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        environment.pop("LC_CTYPE", None)
    return environment


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    # Python ignores these two for itself, and an ignored signal stays ignored across exec:
    # without this, `gpufence run -- yes | head` would not end as `yes | head` does.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        reason, fix = "no such command", "Check the spelling and PATH"
        status = ExitCode.NOT_FOUND
    except OSError as error:
        reason = (error.strerror or "cannot be executed").lower()
        fix = "Name a file that this machine can execute"
        status = ExitCode.NOT_EXECUTABLE
    except ValueError:
        reason, fix = "an empty name or a NUL byte", "Name a command"
        status = ExitCode.NOT_FOUND
    raise ToolError(what=f"cannot run '{command[0]}'", why=reason, fix=fix, status=status)
