"""Show which limits apply here, and where each comes from.

Reads what the library would read: the environment, the container's first process, the config file
and the files of the other dialects. Asks no driver, so that parts of a GPU stay parts. Limits that
the driver holds by itself are told by `gpufence doctor`.
Exit status: 0 readable, 4 the library would refuse them.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from . import dialect_claims, dialects, limits, options, sources
from .errors import ExitCode, ToolError
from .limits import Chosen, Claim, Claims, Device, Kind
from .options import Dialect
from .sources import ConfigError, Target
from .terms import GRAMMARS, TERM_KEYS

USAGE_STATUS = ExitCode.USAGE

_KIND_NAMES = {
    Kind.MEMORY: "memory",
    Kind.CORES: "cores",
    Kind.SOFT_CORES: "cores, idle",
    Kind.OVERSUBSCRIBE: "oversubscribe",
    Kind.SPILL: "spill",
}
_NOTHING = {
    Kind.MEMORY: "no limit",
    Kind.CORES: "no limit",
    Kind.SOFT_CORES: "as cores",
    Kind.OVERSUBSCRIBE: "off",
    Kind.SPILL: "off",
}
_FILES = (
    sources.OVERRIDE_PATH,
    dialect_claims.VGPU_CONFIG_PATH,
    dialect_claims.VCUDA_PATH,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU, or all, and what is claimed for it.

    `applies` is None where no limit is the answer, or where parts and bytes cannot be compared
    without the GPU; `depends` tells the latter.
    """

    kind: Kind
    gpu: str
    applies: Claim | None
    depends: bool
    overruled: tuple[Claim, ...]

    @property
    def nothing(self) -> str:
        """The source that says "no limit", where one does; the first of several."""
        return next((claim.source for claim in self.overruled if not claim.amount), "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    parser.add_argument(
        "--explain", action="store_true", help="also what was overruled, and where was looked"
    )


def run(args: argparse.Namespace) -> ExitCode:
    """Print to stdout.

    Returns:
        OK, or with --json INVALID_LIMIT when the limits are refused.

    Raises:
        ToolError: INVALID_LIMIT, when the limits are refused.
    """
    system = sources.System.own()
    try:
        claims = dialects.read_claims(system)
        statements = sources.gather(system)
    except ConfigError as error:
        refusal = refused(error, ExitCode.INVALID_LIMIT)
        if not args.json:
            raise refusal from None
        print(json.dumps({"schema": 1, "problem": refusal.as_dict()}, indent=2))
        return ExitCode.INVALID_LIMIT
    rows = rows_of(claims)
    if args.json:
        print(json.dumps(_as_dict(claims, rows), indent=2))
        return ExitCode.OK
    print("\n".join(_as_text(claims, rows, args.explain)))
    if args.explain:
        print("\n".join(_background(claims, statements)))
    return ExitCode.OK


def refused(error: ConfigError, status: ExitCode) -> ToolError:
    """The library's line "what why. fix" as a failure of this tool."""
    head, _, fix = str(error).rpartition(". ")
    return ToolError(what="limits refused", why=head, fix=fix, status=status)


def rows_of(claims: Claims) -> list[Row]:
    """What applies, for all GPUs and for each that is named."""
    rows = []
    for kind in Kind:
        mine = [claim for claim in claims.claims if claim.kind is kind]
        hard = [claim for claim in claims.claims if claim.kind is Kind.CORES]
        # A soft share depends on the hard one, which may be another GPU by GPU.
        naming = [*mine, *hard] if mine and kind is Kind.SOFT_CORES else mine
        named = {_identity(claim): claim for claim in naming}
        for _, example in sorted(named.items(), key=lambda each: each[0]):
            gpu = _device(example)
            said = limits.of_dialects(mine, gpu)
            bounds = limits.of_dialects(hard, gpu) if kind is Kind.SOFT_CORES else None
            concerned = [claim for claim in mine if claim.concerns(gpu)]
            rows.append(_row(kind, _gpu_name(example), concerned, said, bounds))
    return rows


def _identity(claim: Claim) -> tuple[int, int, bytes]:
    index = claim.index if claim.target in (Target.ORDINAL, Target.NVML_INDEX) else 0
    return claim.target, index, claim.uuid


def _device(example: Claim) -> Device:
    """The GPU that a claim names; nothing else is known of it."""
    ordinal = example.index if example.target is Target.ORDINAL else -1
    nvml_index = example.index if example.target is Target.NVML_INDEX else None
    uuid = example.uuid if example.target is Target.UUID else b""
    return Device(uuid, ordinal, nvml_index, 0)


def _row(
    kind: Kind,
    gpu: str,
    mine: list[Claim],
    said: dict[Dialect, Chosen],
    bounds: dict[Dialect, Chosen] | None,
) -> Row:
    """One row.

    Args:
        kind: of the claims.
        gpu: its name.
        mine: all claims of the kind for it.
        said: what each dialect says.
        bounds: for soft shares what each dialect says of the hard one.
    """
    named = [one.claim for one in said.values() if one.claim.amount]
    depends = len(named) > 1 and any(claim.percent_of_device for claim in named)
    if bounds is None:
        chosen = None if depends else limits.lowest(said)
    else:
        hard, chosen = limits.lowest(bounds), limits.lowest(limits.ceilings(bounds, said))
        if not hard or not chosen or chosen.amount <= hard.amount:
            chosen = None
    applies = chosen.claim if chosen else None
    return Row(kind, gpu, applies, depends, tuple(claim for claim in mine if claim is not applies))


def _gpu_name(claim: Claim) -> str:
    if claim.target is Target.EVERY:
        return "every GPU"
    if claim.target is Target.UUID:
        text = claim.uuid.hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        return "GPU-" + "-".join(parts)
    return f"GPU {claim.index}" + (" of NVML" if claim.target is Target.NVML_INDEX else "")


def amount_text(claim: Claim) -> str:
    """The amount for people: "4 GiB", "30 %", "ratio 1.5"."""
    if not claim.amount:
        return _NOTHING[claim.kind]
    if claim.kind in (Kind.OVERSUBSCRIBE, Kind.SPILL):
        return "on" if claim.amount == 1 else f"ratio {claim.amount / 1000:g}"
    if claim.kind is not Kind.MEMORY:
        return f"{claim.amount / 1000:g} %"
    if claim.percent_of_device:
        return f"{claim.amount / 10**9:.12g} % of the GPU"
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if claim.amount % 1024**power == 0:
            return f"{claim.amount // 1024**power} {unit}"
    return f"{claim.amount} bytes"


def _as_text(claims: Claims, rows: list[Row], explain: bool) -> list[str]:
    lines = []
    for row in rows:
        amount, source = _NOTHING[row.kind], row.nothing
        if row.depends:
            amount, source = "the lowest", "of the following, which depends on the GPU"
        elif row.applies:
            amount, source = amount_text(row.applies), row.applies.source
        lines.append(f"{_KIND_NAMES[row.kind]:13} {row.gpu}: {amount}  {source}".rstrip())
        if explain or row.depends:
            lines += [
                f"{'':13} {'or' if row.depends else 'not'} {amount_text(claim)}  {claim.source}"
                f" [{claim.dialect.title}]"
                for claim in row.overruled
                if claim.amount or row.applies
            ]
    lines += [f"{kind:13} every GPU: {text}  {source}" for kind, text, source in terms_of(claims)]
    if claims.hypervisor:
        lines.append(f"to be asked   vgpu.rs's hypervisor at {claims.hypervisor}, at cuInit")
    return lines + [f"warning       {note}" for note in claims.notes] or ["no limit is set"]


def terms_of(claims: Claims) -> list[tuple[str, str, str]]:
    """What holds beside the shares: what it is called, what it is, and where that stands."""
    words = claims.terms.words()
    return [
        (called, words[called], claims.term_sources[option])
        for option, (called, _) in GRAMMARS.items()
        if called in words
    ]


def _terms_as_dict(claims: Claims) -> dict[str, object]:
    """Every term, null where it is not set."""
    found = claims.terms.as_dict()
    return {
        name: {"value": found[name], "source": claims.term_sources[option]}
        if name in found
        else None
        for option, name in zip(GRAMMARS, TERM_KEYS, strict=True)
    }


def _background(claims: Claims, statements: sources.Statements) -> list[str]:
    """Identity, and every place that was looked at."""
    lines = [
        f"scope         {'process' if claims.process_scope else 'container'}",
        f"container     {claims.container or '(by pid namespace and root file system)'}",
        f"state         {claims.state_folder or '(first of /run/gpufence, /dev/shm, /tmp)'}",
        f"turns         {claims.node_folder or '(with no other container)'}",
        f"log           {_log(claims)}",
        "native        not asked: `gpufence doctor` tells the driver's own limits",
    ]
    if claims.device_name:
        lines.append(f"device name   {claims.device_name}, by NVML")
    lines += [
        f"file          {path} {'read' if Path(path).exists() else 'absent'}"
        for path in (statements.config_path, *_FILES)
    ]
    lines += [
        f"no effect     {each.name}: {each.option.meaning}"
        for each in statements.all
        if each.option.setting is options.Setting.IGNORED
    ]
    return lines


def _log(claims: Claims) -> str:
    if claims.log_level == "off":
        return "off"
    daily = ".YYYY-MM-DD" if claims.log_is_daily else ""
    sink = claims.log_file + daily if claims.log_file else "stderr"
    return f"{claims.log_level} and worse, to {sink}"


def _claim_as_dict(claim: Claim) -> dict[str, object]:
    told = {"source": claim.source, "dialect": claim.dialect.title}
    if claim.kind is Kind.SPILL:
        return {"on": bool(claim.amount), **told}
    unit = {Kind.MEMORY: "bytes", Kind.OVERSUBSCRIBE: "ratio_thousandths"}
    name = unit.get(claim.kind, "percent_thousandths")
    if claim.percent_of_device:
        name = "percent_of_gpu_billionths"
    return {name: claim.amount, **told}


def _as_dict(claims: Claims, rows: list[Row]) -> dict[str, object]:
    return {
        "schema": 1,
        "limits": [
            {
                "kind": row.kind.name.lower(),
                "gpu": row.gpu,
                "enforced": True,
                "applies": _claim_as_dict(row.applies) if row.applies else None,
                "depends_on_gpu": row.depends,
                "overruled": [_claim_as_dict(claim) for claim in row.overruled],
            }
            for row in rows
        ],
        "terms": _terms_as_dict(claims),
        "scope": "process" if claims.process_scope else "container",
        "container": claims.container or None,
        "state_folder": claims.state_folder or None,
        "hypervisor": claims.hypervisor or None,
        "log_level": claims.log_level,
        "warnings": claims.notes,
    }
