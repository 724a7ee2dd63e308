"""`gpufence`: the list of subcommands, and the one place where a failure becomes a line.

Owns argument parsing and exit statuses; must not know what a subcommand does. Only the chosen
subcommand is imported, because `gpufence run` stands in front of every fenced program.
"""

from __future__ import annotations

import importlib
import os
import sys

from .console import streams
from .errors import ExitCode, ToolError

# argparse and typing take longer to load than `gpufence run` needs for everything else.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from types import ModuleType

# Every subcommand is a module of commands/ with USAGE_STATUS, STATUSES, add_arguments(parser) and
# run(args); one with verbs has VERB_STATUSES, one that is in a hurry parse_plain(arguments).
_COMMANDS = {
    "demo": "show limits at work on a simulated GPU: nothing else is needed",
    "run": "run a program with the library preloaded, inside a limit",
    "status": "show what containers use, their limits and their processes",
    "set": "change a container's limits while its programs run",
    "freeze": "hold every launch of a container until it is resumed",
    "resume": "let a frozen container's launches go on",
    "rm": "forget a container that has ended, with its limits",
    "prune": "forget every container that has ended",
    "top": "watch containers: memory and GPU time of their limits",
    "export": "report to Prometheus what containers use of their limits",
    "completion": "print a shell's completion of this command",
    "config": "show which limits apply, and where each comes from",
    "cdi": "write, list and check CDI files, for docker and podman",
    "node": "give out parts of a Kubernetes node's GPUs",
    "install": "put the library where programs load it from, or take it away",
    "calibrate": "measure what a GPU pauses for between kernels, and keep it",
    "doctor": "prove that a process is fenced, and say which driver it uses",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program name; default: the process's own.

    Returns:
        The exit status; `run` does not return when it succeeds, because it becomes the program.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    failed = ExitCode.WRAPPER_FAILED if arguments[:1] == ["run"] else ExitCode.ERROR
    try:
        status = _run(arguments)
    except ToolError as error:
        streams.say(error.line)
        status = int(failed if error.status is ExitCode.ERROR else error.status)
    except BrokenPipeError:
        # The reader went away (`gpufence doctor | head -1`), and wants no more.
        streams.drop_output()
        status = int(failed)
    except OSError as error:
        streams.drop_output()
        streams.say(f"gpufence: {streams.failure(error)}")
        status = int(failed)
    except KeyboardInterrupt:
        status = 130  # 128 + SIGINT, as a shell reports it
    except SystemExit as end:  # argparse printed its help or its complaint
        status = end.code if isinstance(end.code, int) else int(ExitCode.USAGE)
    return streams.finish(status, failed)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if not arguments:
        arguments = ["--help"]
    name = arguments[0]
    try:
        return _run_command(name, arguments[1:])
    except ToolError as error:
        if _wants_json(name, arguments):
            _print_problem(error)
        raise


def _run_command(name: str, arguments: list[str]) -> int:
    if name not in _COMMANDS:
        overview().parse_args([name, *arguments])  # prints the help or the complaint, and exits
    module = _module(name)
    plain = module.parse_plain(arguments) if hasattr(module, "parse_plain") else None
    chosen = plain or _parse(name, module, arguments)
    if name != "run":  # what a program does without streams is its own affair
        streams.require_output()
    return int(module.run(chosen))


def _parse(name: str, module: ModuleType, arguments: list[str]) -> argparse.Namespace:
    from .console import parsers

    parser = _parser(name, module)
    # Who types a noun alone wants to know its verbs.
    bare = not arguments and bool(parsers.verbs(parser))
    if bare:
        streams.require_output()
    return parser.parse_args(["--help"] if bare else arguments)


def _wants_json(name: str, arguments: list[str]) -> bool:
    """Whether a script reads stdout; `run` leaves stdout to its program."""
    if name == "run" or sys.stdout is None:
        return False
    from .config import sizes

    named = os.environ.get(f"GPUFENCE_{name.upper()}_JSON", "")
    try:
        wanted = bool(named) and sizes.parse_switch(named)
    except (sizes.TextError, ToolError):  # no built library: this only prints a problem
        wanted = False
    return ("--json" in arguments or wanted) and "--no-json" not in arguments


def _print_problem(error: ToolError) -> None:
    """What a script that asked for JSON reads instead of the answer."""
    import json

    print(json.dumps({"schema": 1, "problem": error.as_dict()}, indent=2))


def commands() -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Every subcommand's purpose and arguments, for `gpufence completion`; imports all of them."""
    return {name: (purpose, _parser(name, _module(name))) for name, purpose in _COMMANDS.items()}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f".commands.{name}", __package__)


def _parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    from .console import parsers

    return parsers.of_command(name, module)


def overview() -> argparse.ArgumentParser:
    """The arguments before any subcommand, and the list of them."""
    from .console import parsers

    return parsers.overview(_COMMANDS)
