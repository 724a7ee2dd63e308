"""Change a container's limits while its programs run.

    gpufence set train --memory 6g --cores 40 --soft-cores 80
    gpufence set train --reset

A limit that is set beats the limits of environment and files. It holds at once in running programs
and in later ones, until --reset. Lowering memory below its use frees nothing: new requests are
refused, and this command says how far over. Only the container's owner and root may set limits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from gpufence.config import figures, sizes, terms
from gpufence.config.terms import Terms
from gpufence.console import flags
from gpufence.container import changes, container_state, containers, in_force, setting
from gpufence.container.containers import Container
from gpufence.container.setting import Entries
from gpufence.errors import ExitCode, ToolError
from gpufence.state import limits_file, region
from gpufence.state.limits_bytes import EVERY_GPU, Amounts
from gpufence.state.region import Device
from gpufence.state.shared_file import uuid_text

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "set, or already so",
    1: "no such container, not permitted, or its file cannot be used",
    2: "wrong usage",
    4: "an unreadable limit",
}

_Parsed = TypeVar("_Parsed")

_LIMITS = ("memory", "cores", "soft_cores")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; each flag has a GPUFENCE_SET_* variable."""
    parser.add_argument("name", metavar="NAME", help="the container, or how its name begins")
    flags.add(parser, "--memory", metavar="SIZE", help="memory limit: 6g, 50%%; 0: none")
    flags.add(parser, "--cores", metavar="PERCENT", help="share of GPU time; 0: no limit")
    flags.add(
        parser, "--soft-cores", metavar="PERCENT", help="percent while no neighbour wants the GPU"
    )
    flags.add(parser, "--priority", metavar="WORD", help="low, normal or high: who goes first")
    flags.add(parser, "--weight", metavar="NUMBER", help="1 to 10000: its part of what is free")
    flags.add(
        parser, "--core-burst", metavar="TIME", help="GPU time that may be saved up: 250ms, 0"
    )
    flags.add(
        parser, "--core-floor", metavar="PERCENT", help="share while a higher priority goes first"
    )
    flags.add(parser, "--oversubscribe", metavar="RATIO", help="refused: see docs/gpufence.md")
    flags.add(
        parser, "--gpu", metavar="GPU", help="by UUID or as `status` counts; default: every GPU"
    )
    flags.add(parser, "--reset", help="take back what was set")
    flags.add(parser, "--dry-run", help="check and report, change nothing")
    flags.add(parser, "--json", help="one object, schema 1")
    flags.add(
        parser,
        "--state-dir",
        metavar="DIR",
        help="look only in this folder",
        name="GPUFENCE_SET_STATE_DIR",
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Change the limits file, tell running programs, print what changed.

    Raises:
        ToolError: 1, 2 or 4, as the module says.
    """
    wanted = _wanted(args)
    container = containers.one(args.name, args.state_dir)
    check_owner(container)
    devices = region.read(container.region).devices if container.region else ()
    gpu = _gpu(args.gpu, devices, container)

    def edit(entries: Entries) -> Entries:
        return edited(entries, gpu, wanted, reset=bool(args.reset))

    memory = {each.uuid: each.limit_bytes for each in devices if each.limit_bytes}
    shares = container_state.shares_of(container, args.state_dir)
    if args.dry_run:
        old, new, generation = _imagine(container, edit)
    else:
        old, new, generation = setting.apply(container, edit, replace_damaged=bool(args.reset))
    over = _over(devices, new)
    held = _held_back(devices, new)
    if args.json:
        print(json.dumps(_as_dict(container, generation, old, new, over, held, args), indent=2))
        return ExitCode.OK
    for line in _changes(old, new, memory, shares):
        print(f"{container.name}: {line}")
    if old == new:
        print(f"{container.name}: nothing changed", file=sys.stderr)
    _tell(container, devices, over)
    _tell_held_back(container, held)
    return ExitCode.OK


def edited(entries: Entries, gpu: bytes, wanted: Amounts, *, reset: bool) -> Entries:
    """What is set afterwards.

    Args:
        entries: what is set before.
        gpu: the one that is meant, or EVERY_GPU.
        wanted: what the command line sets; empty with `reset`.
        reset: take everything back for that GPU; for EVERY_GPU for each of them. A container that
            is frozen stays so.
    """
    if reset and gpu == EVERY_GPU:
        return {EVERY_GPU: Amounts(frozen=entries.get(EVERY_GPU, Amounts()).frozen)}
    if reset:
        return {uuid: each for uuid, each in entries.items() if uuid != gpu}
    if gpu == EVERY_GPU:
        entries = {uuid: _without(each, wanted) for uuid, each in entries.items()}
    return {**entries, gpu: wanted.over(entries.get(gpu, Amounts()))}


def _without(amounts: Amounts, kinds: Amounts) -> Amounts:
    """The amounts less those of the kinds that are set anew for every GPU."""
    if kinds.memory is not None:
        amounts = replace(amounts, memory=None, memory_is_part=False)
    if kinds.cores is not None:
        amounts = replace(amounts, cores=None)
    if kinds.soft_cores is not None:
        amounts = replace(amounts, soft_cores=None)
    return amounts


def _wanted(args: argparse.Namespace) -> Amounts:
    if args.oversubscribe is not None:
        raise _usage(
            f"--oversubscribe {sizes.quote(args.oversubscribe)}",
            "memory that was granted as unified cannot change its kind while programs run",
            "Start them with `gpufence run --oversubscribe`",
        )
    limits = [name for name in _LIMITS if getattr(args, name) is not None]
    kept = [name for name in terms.GRAMMARS if getattr(args, name) is not None]
    given = [f"--{name.replace('_', '-')}" for name in (*limits, *kept)]
    if args.reset and given:
        raise _usage("--reset", f"it stands beside {given[0]}", "Give one of them")
    if not args.reset and not given:
        fix = "Give --memory, --cores, --priority or another flag of `gpufence set --help`"
        raise _usage("nothing to set", "no limit was given", fix)
    if args.gpu is not None and kept:
        raise _usage(f"--gpu beside {given[-1]}", "that holds on every GPU", "Leave --gpu out")
    memory = _parsed("--memory", args.memory, sizes.parse_size)
    return Amounts(
        memory=memory.amount if memory else None,
        memory_is_part=memory.percent_of_device if memory else False,
        cores=_parsed("--cores", args.cores, sizes.parse_percent),
        soft_cores=_parsed("--soft-cores", args.soft_cores, sizes.parse_percent),
        terms=Terms(
            _parsed("--priority", args.priority, terms.parse_priority),
            _parsed("--weight", args.weight, sizes.parse_weight),
            _parsed("--core-burst", args.core_burst, sizes.parse_burst),
            _parsed("--core-floor", args.core_floor, sizes.parse_floor),
        ),
    )


def _parsed(flag: str, text: str | None, parse: Callable[[str], _Parsed]) -> _Parsed | None:
    if text is None:
        return None
    try:
        return parse(text)
    except sizes.TextError as error:
        clause, fix = error.clause, error.fix
        raise ToolError(
            what=f"{flag} '{sizes.quote(text)}' refused",
            why=f"it {clause}",
            fix=fix,
            status=ExitCode.INVALID_LIMIT,
        ) from None


def _usage(what: str, why: str, fix: str) -> ToolError:
    return ToolError(what=what, why=why, fix=fix, status=ExitCode.USAGE)


def check_owner(container: Container) -> None:
    """Refuse whoever is neither the container's owner nor root; exit 1."""
    if os.geteuid() in (0, container.owner):
        return
    raise ToolError(
        what=f"cannot set limits of '{container.name}'",
        why=f"it is user {container.owner}'s",
        fix="Run this as that user or as root",
    )


def _gpu(text: str | None, devices: tuple[Device, ...], container: Container) -> bytes:
    """The GPU's UUID, or EVERY_GPU."""
    if text is None:
        return EVERY_GPU
    index = sizes.parse_index(text)
    if index is None:
        try:
            return sizes.parse_uuid(text)
        except sizes.TextError:
            what = f"--gpu '{sizes.quote(text)}' refused"
            why = "it is neither an index nor a UUID"
            fix = "Write it as `gpufence status` or `nvidia-smi -L` does"
            raise ToolError(what=what, why=why, fix=fix, status=ExitCode.USAGE) from None
    if index < len(devices):
        return sizes.parse_uuid(devices[index].uuid)
    raise ToolError(
        what=f"'{container.name}' has no GPU {index}",
        why=f"its programs have used {len(devices)} so far",
        fix="Name it by its UUID, as `nvidia-smi -L` does",
    )


def _imagine(
    container: Container, edit: Callable[[Entries], Entries]
) -> tuple[Entries, Entries, int]:
    """What setting.apply() would return; nothing is written."""
    held = limits_file.read(container.limits_path, container.owner)
    old: Entries = held.entries if held else {}
    kept = {uuid: each for uuid, each in edit(old).items() if not each.empty}
    return old, kept, held.generation if held else 0


def _over(devices: tuple[Device, ...], entries: Entries) -> list[tuple[Device, int]]:
    """GPUs on which more is used than the limit, and the limit in bytes."""
    found = []
    for device in devices:
        amounts = entries.get(sizes.parse_uuid(device.uuid), Amounts())
        amounts = amounts.over(entries.get(EVERY_GPU, Amounts()))
        limit = device.limit_bytes
        if amounts.memory is not None:
            limit = in_force.under(device.ceiling.memory_bytes, amounts.memory or None)
        if limit and not amounts.memory_is_part and device.used_bytes > limit:
            found.append((device, limit))
    return found


def _held_back(devices: tuple[Device, ...], entries: Entries) -> list[tuple[str, str, int]]:
    """What is set and stays without effect above a ceiling: GPU, kind as in JSON, and ceiling."""
    found = []
    for device in devices:
        amounts = entries.get(sizes.parse_uuid(device.uuid), Amounts())
        amounts = amounts.over(entries.get(EVERY_GPU, Amounts()))
        ceiling = device.ceiling
        memory = None if amounts.memory_is_part else amounts.memory
        for kind, wanted, most in (
            ("memory_bytes", memory, ceiling.memory_bytes),
            ("cores_millipercent", amounts.cores, ceiling.cores),
            ("soft_cores_millipercent", amounts.soft_cores or None, ceiling.soft_cores),
        ):
            if wanted is not None and most is not None and not 0 < wanted <= most:
                found.append((device.uuid, kind, most))
    return found


def _tell_held_back(container: Container, held: list[tuple[str, str, int]]) -> None:
    for uuid, kind, most in held:
        amount = figures.exact(most) if kind == "memory_bytes" else figures.share(most)
        what = kind.rpartition("_")[0].replace("_", " ")
        print(
            f"gpufence: {container.name}: {uuid}: {what} stays at {amount}: a file of the"
            " operator's allows no more. Change that file to raise it",
            file=sys.stderr,
        )


def _changes(
    old: Entries, new: Entries, memory: Mapping[str, int], shares: Mapping[str, int]
) -> list[str]:
    """One line for each GPU and kind that changed.

    Args:
        old: what was set before.
        new: what is set now.
        memory: the limit in bytes that the programs publish, by UUID.
        shares: the share of GPU time that the programs found by themselves, by UUID.
    """
    lines = []
    for uuid in sorted({*old, *new}):
        before, after = old.get(uuid, Amounts()), new.get(uuid, Amounts())
        gpu = "every GPU" if uuid == EVERY_GPU else uuid_text(uuid)
        for kind, was, now in (
            ("memory", memory_text(before), memory_text(after)),
            ("cores", _share_text(before.cores), _share_text(after.cores)),
            ("soft cores", _share_text(before.soft_cores), _share_text(after.soft_cores)),
            *_term_changes(before.terms, after.terms),
        ):
            if was != now:
                if kind == "memory" and was == "not set" and not _holds_memory(old):
                    was = _own(uuid, memory, figures.exact) or was
                if kind == "cores" and before.cores is None:
                    was = _own(uuid, shares, figures.share) or was
                lines.append(f"{gpu}: {kind} {now} (was {was})")
    return lines


def _term_changes(before: Terms, after: Terms) -> list[tuple[str, str, str]]:
    was, now = before.words(), after.words()
    called = [each for each, _ in terms.GRAMMARS.values()]
    return [(name, was.get(name, "not set"), now.get(name, "not set")) for name in called]


def memory_text(amounts: Amounts) -> str:
    """What is set as memory limit, for people."""
    if amounts.memory is None:
        return "not set"
    if amounts.memory == 0:
        return "no limit"
    if amounts.memory_is_part:
        return f"{amounts.memory / 10**9:.12g} % of the GPU"
    return figures.exact(amounts.memory)


def _holds_memory(entries: Entries) -> bool:
    """Whether what programs publish as their memory limit may be what was set."""
    return any(each.memory is not None for each in entries.values())


def _own(uuid: bytes, found: Mapping[str, int], text: Callable[[int], str]) -> str:
    """What the programs' own variables and files say; "" where that is nothing."""
    own = {each for name, each in found.items() if uuid in (EVERY_GPU, sizes.parse_uuid(name))}
    amounts = ", ".join(text(each) for each in sorted(own))
    return f"{amounts} by its own variables or files" if own else ""


def _share_text(millipercent: int | None) -> str:
    if millipercent is None:
        return "not set"
    return figures.share(millipercent) if millipercent else "no limit"


def _tell(
    container: Container, devices: tuple[Device, ...], over: list[tuple[Device, int]]
) -> None:
    if not devices:
        print(
            f"{container.name}: no program of it has used a GPU yet: this begins with the first",
            file=sys.stderr,
        )
    for device, limit in over:
        over_text = f"{figures.size(device.used_bytes - limit)} over {figures.exact(limit)}"
        print(
            f"gpufence: {container.name}: {device.uuid} is {over_text}: nothing is freed, and"
            " requests are refused until enough is given back",
            file=sys.stderr,
        )


def _as_dict(
    container: Container,
    generation: int,
    old: Entries,
    new: Entries,
    over: list[tuple[Device, int]],
    held: list[tuple[str, str, int]],
    args: argparse.Namespace,
) -> dict[str, object]:
    return {
        "schema": 1,
        "container": container.name,
        "dry_run": bool(args.dry_run),
        "generation": generation,
        "old": changes.as_dict(old),
        "new": changes.as_dict(new),
        "over": [
            {
                "uuid": device.uuid,
                "limit_bytes": limit,
                "used_bytes": device.used_bytes,
                "over_bytes": device.used_bytes - limit,
            }
            for device, limit in over
        ],
        "held_back": [{"uuid": uuid, kind: most} for uuid, kind, most in held],
    }
