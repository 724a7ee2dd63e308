"""Become another program with libgpufence.so preloaded, inside limits if some are given.

    gpufence run --memory 10GiB --cores 50 --name train -- python3 train.py

Limits are read here as the library will read them, so an unreadable limit is reported before
anything starts. The program keeps its own exit status.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from gpufence import locate
from gpufence.errors import ExitCode, ToolError

# What takes long to load is loaded where it is needed: this stands in front of every program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import NoReturn

USAGE_STATUS = ExitCode.WRAPPER_FAILED
STATUSES = {
    125: "gpufence failed: an unreadable limit, no library, wrong usage",
    126: "COMMAND cannot be executed",
    127: "COMMAND was not found",
}

# By option: the variable that the library reads, what messages call it, an example.
_LIMITS = {
    "memory": ("GPUFENCE_MEMORY_LIMIT", "memory limit", "0=10GiB"),
    "cores": ("GPUFENCE_CORE_LIMIT", "core limit", "0=30"),
    "soft_cores": ("GPUFENCE_CORE_SOFT_LIMIT", "soft core limit", "0=60"),
    "oversubscribe": ("GPUFENCE_OVERSUBSCRIBE", "oversubscription", "0=1.5"),
}
# What holds for the container on every GPU, by option: the variable, and what may be written.
_TERMS = {
    "priority": ("GPUFENCE_PRIORITY", "WORD", "low, normal or high: whose launches go first"),
    "weight": ("GPUFENCE_WEIGHT", "NUMBER", "1 to 10000: its part of GPU time that is free"),
    "core_burst": ("GPUFENCE_CORE_BURST", "TIME", "GPU time that may be saved up: 250ms, 1s, 0"),
    "core_floor": ("GPUFENCE_CORE_FLOOR", "PERCENT", "share while a higher priority goes first"),
}
TERM_VARIABLES = frozenset(variable for variable, _, _ in _TERMS.values())
_REPEATED = ("memory", "cores", "soft_cores", "oversubscribe", "gpu")
_SINGLE = {
    "mode": "mode",
    "name": "name",
    "container": "name",
    "lib": "lib",
    "sim-driver": "sim_driver",
    **{option.replace("_", "-"): option for option in _TERMS},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; everything from the first positional on belongs to the program."""
    from argparse import REMAINDER, SUPPRESS

    for option, metavar, told in (
        ("--memory", "[GPU=]SIZE", "limit of every GPU, or of the one with this index or UUID"),
        ("--cores", "[GPU=]PERCENT", "percent of GPU time, likewise"),
        ("--soft-cores", "[GPU=]PERCENT", "percent while no neighbour wants it; needs --cores"),
        ("--oversubscribe", "[GPU=]RATIO", "memory limit, divided by its part on the GPU"),
        ("--gpu", "GPU", "the GPU that these limits are for, by index or UUID; default: every GPU"),
    ):
        variable = _LIMITS[key][0] if (key := _key(option)) in _LIMITS else "GPUFENCE_RUN_GPU"
        told = f"{told} [{variable}]"
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=told)
    for option, (variable, metavar, told) in _TERMS.items():
        flag = f"--{option.replace('_', '-')}"
        parser.add_argument(flag, metavar=metavar, help=f"{told} [{variable}]")
    parser.add_argument(
        "--mode",
        metavar="WORD",
        help="what --cores is a part of: time (default), or mps: the threads that NVIDIA's MPS"
        " gives the program [GPUFENCE_CORE_MODE]",
    )
    parser.add_argument(
        "--name",
        "--container",
        metavar="NAME",
        help="share the limits with everything of that name, and change them with `gpufence set`;"
        " default with a limit: a container of its own [GPUFENCE_CONTAINER]",
    )
    parser.add_argument(
        "--lib", metavar="FILE", help="libgpufence.so to preload [GPUFENCE_RUN_LIB]"
    )
    parser.add_argument(
        "--sim", action="store_true", help="use the simulated driver [GPUFENCE_RUN_SIM]"
    )
    parser.add_argument(
        "--sim-driver",
        metavar="VERSION",
        help="driver to imitate, such as 550; implies --sim [GPUFENCE_SIM_DRIVER]",
    )
    parser.usage = f"{parser.prog} [OPTION ...] [--] COMMAND [ARGUMENT ...]"
    parser.add_argument("argv", nargs=REMAINDER, help=SUPPRESS)


def parse_plain(arguments: Sequence[str]) -> SimpleNamespace | None:
    """What add_arguments' parser makes of arguments without abbreviations, help or mistakes.

    Returns:
        None where that parser has to be asked.
    """
    found = SimpleNamespace(**{each: [] for each in _REPEATED}, sim=False)
    for each in _SINGLE.values():
        setattr(found, each, None)
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        option, equals, text = rest.pop(0).partition("=")
        key = _key(option) if option.startswith("--") else ""
        if option == "--sim" and not equals:
            found.sim = True
            continue
        if not equals:
            if not rest or rest[0].startswith("-"):
                return None
            text = rest.pop(0)
        if key in _REPEATED and option == "--" + key.replace("_", "-"):
            getattr(found, key).append(text)
        elif option[2:] in _SINGLE and option.startswith("--"):
            setattr(found, _SINGLE[option[2:]], text)
        else:
            return None
    found.argv = rest
    return found


def _key(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def run(args: argparse.Namespace | SimpleNamespace) -> NoReturn:
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
    gpus = args.gpu or [gpu for gpu in _variable("GPU").split(",") if gpu]
    given = {option: for_gpus(getattr(args, option), gpus) for option in _LIMITS}
    if args.gpu and not any(given.values()):
        raise _wrong(f"--gpu {args.gpu[0]}", "there is no limit for it", "Give one, as --memory")
    limits = limit_variables(given) if any(given.values()) else {}
    terms = term_variables({option: getattr(args, option) for option in _TERMS})
    modes = _mode_variables(args, given)
    if args.name == "":
        raise _wrong("container '' refused", "a container needs a name", "Give one or leave it out")
    driver = _driver(args.sim_driver)
    library = locate.library(args.lib or _variable("LIB") or None)
    sim = args.sim or driver or _switch("SIM")
    simulator = locate.simulator() if sim else None
    environment = fenced(_inherited(), library, simulator, driver)
    environment = limited({**environment, **terms, **modes}, limits, args.name)
    _check(environment)
    if modes and not simulator:
        _check_daemon(modes, environment)
    if limits or args.name is not None:
        _prepare(environment, is_named=args.name is not None)
    if simulator:
        imitated = environment.get("GPUFENCE_SIM_DRIVER", "the newest it knows")
        print(f"gpufence: simulated driver ({imitated}), no real GPU is used", file=sys.stderr)
    _become(command, environment)


def _variable(name: str) -> str:
    """What stands for a flag that is not given."""
    return os.environ.get(f"GPUFENCE_RUN_{name}", "")


def _switch(name: str) -> bool:
    """What stands for a switch that is not given; 125 for a text that says neither yes nor no."""
    text = _variable(name)
    if not text:
        return False
    from gpufence.config import sizes

    try:
        return sizes.parse_switch(text)
    except sizes.TextError as error:
        clause, fix = error.clause, error.fix
        what = f"GPUFENCE_RUN_{name}='{sizes.quote(text)}' refused"
        raise _wrong(what, f"it {clause}", fix) from None


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


def for_gpus(arguments: Sequence[str], gpus: Sequence[str]) -> list[str]:
    """Limits that name no GPU, for each of --gpu; the others as they are."""
    named: list[str] = []
    for argument in arguments:
        named += [argument] if "=" in argument or not gpus else [f"{g}={argument}" for g in gpus]
    return named


def limit_variables(given: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The variables that limits on the command line stand for.

    Args:
        given: by option; each argument AMOUNT, INDEX=AMOUNT or UUID=AMOUNT.

    Raises:
        ToolError: 125, for an amount or a GPU that the library would not read, or a GPU named
            twice, or a soft share without a hard one.
    """
    from gpufence.config import sizes

    variables: dict[str, str] = {}
    for option, (variable, called, example) in _LIMITS.items():
        for argument in given.get(option, ()):
            gpu, equals, text = argument.rpartition("=")
            name = f"{variable}_{gpu}" if equals else variable
            what = f"{called} '{sizes.quote(argument)}' refused"
            try:
                _parse(option, text)
            except sizes.TextError as error:
                clause, fix = error.clause, error.fix
                raise _wrong(what, f"'{sizes.quote(text)}' {clause}", fix) from None
            if equals and not _names_gpu(gpu):
                fix = f"Write {example}"
                raise _wrong(what, "it names a GPU by neither index nor UUID", fix)
            if name in variables:
                raise _wrong(what, "another one is for the same GPU", "Give one for each GPU")
            variables[name] = text
    if given.get("soft_cores") and not given.get("cores"):
        what = f"soft core limit '{sizes.quote(given['soft_cores'][0])}' refused"
        raise _wrong(what, "it has no effect without a core limit", "Give --cores, too")
    return variables


def term_variables(given: Mapping[str, str | None]) -> dict[str, str]:
    """The variables that the terms of core limits on the command line stand for.

    Args:
        given: by option; None where it is not there.

    Raises:
        ToolError: 125, for a text that the library would not read.
    """
    variables = {}
    for option, text in given.items():
        if text is None:
            continue
        from gpufence.config import sizes, terms

        called, parse = terms.GRAMMARS[option]
        try:
            parse(text)
        except sizes.TextError as error:
            clause, fix = error.clause, error.fix
            raise _wrong(f"{called} '{sizes.quote(text)}' refused", f"it {clause}", fix) from None
        variables[_TERMS[option][0]] = text
    return variables


def mode_variables(mode: str, given: Mapping[str, object], inherited: str) -> dict[str, str]:
    """The variables that a core limit's mode on the command line stands for.

    Args:
        mode: "" is the default.
        given: what else is there, by option; lists of limits, texts of terms.
        inherited: the percentage of MPS's threads that is set already; "" if none is.

    Raises:
        ToolError: 125, for no mode, or for options that have no meaning in it.
    """
    from gpufence.config import mps

    try:
        if not mps.is_mps(mode):
            return {mps.MODE: mode} if mode else {}
        mps.check_beside(given)
        cores = given["cores"]
        percent = mps.percentage(cores if isinstance(cores, list) else [])
    except mps.ModeError as error:
        raise _wrong(error.what, error.why, error.fix) from None
    if percent is None:
        return {mps.MODE: mode}
    return {mps.MODE: mode, mps.THREADS: mps.threads(percent, inherited)}


def _mode_variables(
    args: argparse.Namespace | SimpleNamespace, given: Mapping[str, list[str]]
) -> dict[str, str]:
    """As mode_variables; a mode that is inherited counts where a core limit is given."""
    mode = args.mode
    if mode is None:
        mode = os.environ.get("GPUFENCE_CORE_MODE", "") if given["cores"] else ""
        mode = mode if mode.lower() == "mps" else ""  # the library refuses what is none
    if not mode:
        return {}
    terms = {option: getattr(args, option) for option in _TERMS}
    threads = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    return mode_variables(mode, {**given, **terms}, threads)


def _check_daemon(modes: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Refuse a program that MPS is to hold where MPS is not there."""
    from gpufence.config import mps

    if mps.THREADS not in modes:
        return
    try:
        mps.check_daemon(environment)
    except mps.ModeError as error:
        raise _wrong(error.what, error.why, error.fix) from None


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
    ours = [variable for variable, _, _ in _LIMITS.values()]
    replaced = [each for each in ours if any(_is_of(name, each) for name in variables)]
    kept = {
        name: text
        for name, text in base.items()
        if not any(_is_of(name, each) for each in replaced)
    }
    if container is None and variables:
        from gpufence.container import leftovers

        container = leftovers.new_name()
    return {**kept, **variables, **({"GPUFENCE_CONTAINER": container} if container else {})}


def _is_of(name: str, variable: str) -> bool:
    return name == variable or name.startswith(variable + "_")


def _parse(option: str, text: str) -> object:
    from gpufence.config import library

    return library.parse({"memory": "size", "oversubscribe": option}.get(option, "percent"), text)


def _names_gpu(text: str) -> bool:
    from gpufence.config import sizes

    if sizes.parse_index(text) is not None:
        return True
    try:
        return bool(sizes.parse_uuid(text))
    except sizes.TextError:
        return False


def _check(environment: Mapping[str, str]) -> None:
    """Refuse what the library would refuse at cuInit, wherever it stands."""
    from gpufence.config.nothing_set import nothing_is_set

    if nothing_is_set(environment):
        return
    from gpufence.config import library

    try:
        library.claims("", (os.fsencode(f"{k}={v}") for k, v in environment.items()))
    except library.ConfigError as error:
        raise library.refused(error, ExitCode.WRAPPER_FAILED) from None


def _prepare(environment: Mapping[str, str], *, is_named: bool) -> None:
    """Sweep what others left, and let `gpufence status` and `set` know a name at once.

    Where the library can make no file either, it says so itself once there is a limit to hold.
    """
    from gpufence.container import containers, leftovers
    from gpufence.state import limits_file

    folders = containers.library_places(environment)
    leftovers.sweep(dict.fromkeys((*folders, *containers.places(None))))
    if not is_named:
        return
    try:
        limits_file.prepare(folders, containers.reduced(environment["GPUFENCE_CONTAINER"]))
    except limits_file.LimitsFileError as error:
        print(f"gpufence: {error}", file=sys.stderr)


def _wrong(what: str, why: str, fix: str) -> ToolError:
    return ToolError(what=what, why=why, fix=fix, status=ExitCode.WRAPPER_FAILED)


def _driver(version: str | None) -> str | None:
    """Refuse a version that the simulator would refuse (ReadVersion in lib/sim/machine)."""
    if version is None:
        return None
    known = locate.known_drivers()
    if version == "latest" or not known or any(_matches(version, each) for each in known):
        return version
    raise ToolError(
        what=f"simulated driver '{version}' refused",
        why="no driver of that version is known",
        fix=f"Choose one of {', '.join(known)}, a bare branch such as 550, or latest",
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
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")
    except OSError:
        return environment
    if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        environment.pop("LC_CTYPE", None)
    return environment


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    import signal

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
