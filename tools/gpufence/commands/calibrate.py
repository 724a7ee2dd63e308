"""Measure what a GPU pauses for between kernels, and keep it for every container of the node.

A container with a core limit measures that by itself where nobody has kept it, before its first
program loads code. This does so anew in a process of its own, while nothing else uses the GPU, and
keeps it in the folder where containers of a GPU meet (GPUFENCE_NODE_DIR, or /run/gpufence-node), or
in the one of their ledgers. Files of root count for all containers, those of another user for its
own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpufence import locate
from gpufence.errors import ExitCode, ToolError
from gpufence.state import kept_pauses, shared_file
from gpufence.state.kept_pauses import KeptPauses
from gpufence.state.notices import NODE

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "measured and kept",
    1: "not measured, or not kept",
    2: "wrong usage",
    3: "no driver can be used",
}

_PROBE = Path(__file__).resolve().parents[1] / "checks" / "pace_probe.py"
_SECONDS = 120
_FIX = (
    "Try again while nothing else uses the GPU; until then short kernels get less than their share"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--gpu", type=int, metavar="GPU", help="only this one, by CUDA's index; default: every GPU"
    )
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    parser.add_argument(
        "--lib", "--library", metavar="FILE", help="another libgpufence.so than the package's"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Measure, keep and tell.

    Raises:
        ToolError: 1, 2 or 3, as the module says.
    """
    if args.gpu is not None and args.gpu < 0:
        why = "GPUs count from 0"
        raise ToolError(
            what=f"--gpu {args.gpu} refused", why=why, fix="Leave it out", status=ExitCode.USAGE
        )
    place = _place(os.environ)
    with tempfile.TemporaryDirectory(prefix="gpufence-") as folder:
        gpus, said = _measure(locate.library(args.lib), Path(folder), args.gpu)
        measured = {kept.uuid.hex(): kept for kept in kept_pauses.read_all([Path(folder)])}
        told = [(gpu["gpu"], _kept(measured.get(gpu["uuid"]), gpu["gpu"], said)) for gpu in gpus]
        told = [(gpu, _keep(kept, place)) for gpu, kept in told]
    if args.json:
        rows = [{"gpu": gpu, **kept_pauses.as_dict(kept)} for gpu, kept in told]
        print(json.dumps({"schema": 1, "gpus": rows}, indent=2))
    else:
        for gpu, kept in told:
            print(f"GPU {gpu}: {kept_pauses.as_text(kept)}")
    return ExitCode.OK


def _place(environment: os._Environ[str]) -> Path:
    """The folder in which a container looks first that exists."""
    named = environment.get("GPUFENCE_NODE_DIR", "")
    node = Path(named) if named.startswith("/") else NODE
    found = [each for each in (node, *shared_file.folders(environment)) if each.is_dir()]
    if found:
        return found[0]
    raise ToolError(
        what="nothing is measured",
        why="no folder to keep it in exists",
        fix="Make /run/gpufence-node with mode 1777, or name one in GPUFENCE_NODE_DIR",
    )


def _measure(library: Path, folder: Path, gpu: int | None) -> tuple[list[dict[str, Any]], str]:
    """The GPUs that were used, and what the library said."""
    given = {name: text for name, text in os.environ.items() if not _is_limit(name)}
    preloads = given.get("LD_PRELOAD", "").replace(" ", ":").split(":")
    others = [each for each in preloads if each and Path(each).name != library.name]
    environment = {
        **given,
        "LD_PRELOAD": ":".join([*others, str(library)]),
        "GPUFENCE_CORE_LIMIT": "99",
        "GPUFENCE_CONTAINER": "gpufence-calibrate",
        "GPUFENCE_STATE_DIR": str(folder),
        "GPUFENCE_LOG_LEVEL": "info",
    }
    words = [] if gpu is None else [str(gpu)]
    try:
        done = subprocess.run(
            [sys.executable, "-S", str(_PROBE), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        told = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        raise _without_driver("the driver crashed, or did not answer in time") from None
    if "problem" in told:
        raise _without_driver(told["problem"])
    return told["gpus"], done.stderr


def _is_limit(name: str) -> bool:
    return name.startswith("GPUFENCE_") and not name.startswith(("GPUFENCE_SIM_", "GPUFENCE_TEST_"))


def _without_driver(why: str) -> ToolError:
    return ToolError(
        what="nothing is measured",
        why=why,
        fix="See `gpufence doctor`",
        status=ExitCode.NO_DRIVER,
    )


def _kept(kept: KeptPauses | None, gpu: int, said: str) -> KeptPauses:
    if kept is not None:
        return kept
    why = said.partition("are not known (")[2].partition(")")[0]
    raise ToolError(
        what=f"GPU {gpu} is not measured", why=why or "the library did not say why", fix=_FIX
    )


def _keep(kept: KeptPauses, place: Path) -> KeptPauses:
    """The same file in its place, whole or not at all."""
    target = place / kept.path.name
    draft = place / f"{kept.path.name}.{os.getpid()}.new"
    try:
        with open(draft, "xb") as stream:
            stream.write(kept.path.read_bytes())
            os.fchmod(stream.fileno(), 0o644)
        os.replace(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ToolError(
            what=f"{target} is not written",
            why=error.strerror or str(error),
            fix="Run it as root, or name another folder in GPUFENCE_NODE_DIR",
        ) from None
    found = kept_pauses.read(target)
    assert found is not None
    return found
