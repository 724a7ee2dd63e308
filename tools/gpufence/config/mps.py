"""A core limit in mode mps: the threads that a multi-process server (MPS) gives a program.

Owns the variables that NVIDIA's driver reads for that, and where its daemon is met. The library
holds no GPU time in this mode and refuses a program that MPS does not hold (core_mode.cpp). Must
not know which command asks. Standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODES = ("time", "mps")
MODE = "GPUFENCE_CORE_MODE"
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PIPES = "CUDA_MPS_PIPE_DIRECTORY"
USUAL_PIPES = "/tmp/nvidia-mps"  # where daemon and clients meet unless a variable names a folder
_CONTROL = "control"  # what the daemon makes there
# By option, what has a meaning for GPU time alone.
OF_TIME = ("soft_cores", "priority", "weight", "core_burst", "core_floor")


class ModeError(Exception):
    """What cannot be had in a mode: what was refused, why, and what to write instead."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


def is_mps(mode: str) -> bool:
    """Whether the threads are meant; "" is the default.

    Raises:
        ModeError: it is no mode.
    """
    word = mode.lower()
    if word and word not in MODES:
        raise ModeError(f"mode '{mode}' refused", "it is not a mode", "Write time or mps")
    return word == "mps"


def check_beside(given: Mapping[str, object]) -> None:
    """Refuse what has no meaning beside `--mode mps`.

    Args:
        given: by option; empty or None where it is not there.

    Raises:
        ModeError: it names the option.
    """
    if not given.get("cores"):
        raise ModeError("--mode mps refused", "there is no core limit", "Give --cores, too")
    for option in OF_TIME:
        if given.get(option):
            flag = f"--{option.replace('_', '-')}"
            why = "MPS gives each program a fixed part of the GPU's threads"
            raise ModeError(f"{flag} beside --mode mps refused", why, "Leave one of them out")


def percentage(cores: Sequence[str]) -> int | None:
    """The one percentage that core limits come to; None: no limit.

    Args:
        cores: each PERCENT or GPU=PERCENT, readable.

    Raises:
        ModeError: several GPUs have several amounts, or MPS cannot give so little.
    """
    from . import library

    amounts = {int(library.parse("percent", each.rpartition("=")[2])) for each in cores}
    if len(amounts) > 1:
        shown = " and ".join(f"{amount / 1000:g} %" for amount in sorted(amounts))
        raise ModeError(
            f"core limits of {shown} refused in mode mps",
            "MPS has one percentage for all GPUs of a program",
            "Give every GPU the same",
        )
    (amount,) = amounts
    if amount in (0, 100_000):
        return None
    if amount < 1000:
        what = f"a core limit of {amount / 1000:g} % refused in mode mps"
        raise ModeError(what, "MPS gives 1 % or more", "Write 1 or more")
    return amount // 1000


def threads(percent: int, inherited: str) -> str:
    """What the driver is to read: ours, or what is set already if that is less."""
    from . import library

    try:
        thousandths = int(library.parse("percent", inherited))
    except library.TextError:
        return str(percent)
    return inherited if 0 < thousandths <= percent * 1000 else str(percent)


def check_daemon(environment: Mapping[str, str]) -> None:
    """Refuse to start a program that would find no daemon and run without any limit.

    Raises:
        ModeError: nothing is where it would look.
    """
    folder = environment.get(PIPES) or USUAL_PIPES
    if not os.path.lexists(os.path.join(folder, _CONTROL)):
        raise ModeError(
            "--mode mps refused",
            f"no MPS control daemon has its pipes in {folder}",
            f"Start it with `nvidia-cuda-mps-control -d`, or name its folder in {PIPES}",
        )
