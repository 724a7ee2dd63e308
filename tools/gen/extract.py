"""`hookgen extract`: header wheels (or an installed toolkit) become `lib/api/{cuda,nvml}.json`.

Owns the order of the steps and the figures it reports. Must not know how any of them works.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import codec, headers, ir, join, progress, surface, wheels
from .errors import ExitCode, HookgenError
from .facts import HeaderSet
from .join import LIBRARIES
from .render import default_api_dir
from .written import write_if_changed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `hookgen extract`."""
    parser.add_argument("--api", type=Path, metavar="DIR", help="the inputs (default: lib/api)")
    parser.add_argument(
        "--output", "--out", type=Path, metavar="DIR", help="write here (default: as --api)"
    )
    parser.add_argument(
        "--cuda-include",
        type=Path,
        metavar="DIR",
        help="read an installed toolkit instead of the pinned wheels: no history, no layouts of "
        "older headers",
    )
    parser.add_argument(
        "--nvml-include", type=Path, metavar="DIR", help="where its nvml.h is, if elsewhere"
    )


def run(args: argparse.Namespace) -> int:
    """Write the models and say on stderr what they hold.

    Raises:
        HookgenError: exit 1 for anything that keeps a model from being whole; nothing is written
            then. Exit 2 for --nvml-include alone.
    """
    started = time.monotonic()
    api = args.api or default_api_dir()
    sets, pins = load_headers(args, api)
    texts = extract(api, sets, pins)
    for name, text in texts.items():
        write_if_changed((args.output or api) / name, text)
    for library in LIBRARIES:
        print(_summary(codec.loads(texts[f"{library}.json"])), file=sys.stderr)
    print(
        f"hookgen: {len(sets)} header sets in {time.monotonic() - started:.1f} s", file=sys.stderr
    )
    return ExitCode.OK


def load_headers(
    args: argparse.Namespace, api: Path
) -> tuple[tuple[HeaderSet, ...], tuple[ir.Source, ...]]:
    """Header sets, oldest first, and the wheels they came from (none for a toolkit)."""
    if args.cuda_include is None:
        if args.nvml_include is not None:
            raise HookgenError(
                "--nvml-include refused",
                "it belongs to --cuda-include, which is not given",
                "Give both, or neither for the pinned wheels.",
                ExitCode.USAGE,
            )
        pins = wheels.read_pins(api / "headers.json")
        sets = wheels.header_sets(pins, wheels.cache_folder())
        return sets, tuple(pin.source() for pin in pins)
    found = wheels.installed(args.cuda_include, args.nvml_include or args.cuda_include)
    print(
        f"hookgen: toolkit {found.version}: one header set, so every name has first = last = "
        f"{found.version} and no wheel is recorded",
        file=sys.stderr,
    )
    return (found,), ()


def extract(api: Path, sets: Sequence[HeaderSet], pins: Sequence[ir.Source]) -> dict[str, str]:
    """The text of each file that is written, by its name.

    Args:
        api: the folder of what people and drivers say.
        sets: the headers, oldest first.
        pins: the wheels that they came from.
    """
    texts = {}
    for library in LIBRARIES:
        inputs = join.load_inputs(api, library)
        history = []
        for item in progress.told(sets, f"headers of {library}"):
            full = item is sets[-1]
            history.append(headers.read(item, library, inputs.touched, full=full))
        texts[f"{library}.json"] = codec.dumps(join.build(library, history, inputs, pins))
        texts[surface.file_of(library)] = surface.dumps(library, surface.build(history))
    return texts


def _summary(model: ir.Api) -> str:
    forecast = sum(function.drivers is None for function in model.functions)
    return (
        f"hookgen: {model.library} {model.header_version}: {len(model.functions)} functions "
        f"({forecast} in no listed driver), {len(model.aliases)} aliases, "
        f"{len(model.untyped)} untyped, {len(model.thresholds)} thresholds, "
        f"{len(model.types)} types"
    )
