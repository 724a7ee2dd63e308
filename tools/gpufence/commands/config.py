"""Show which limits apply here, and where each comes from.

Reads what the library would read: the environment, the container's first process, the config file
and the files of other systems. Asks no driver, so percentages of a GPU stay percentages. Limits
that the driver holds by itself are shown by `gpufence doctor`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from gpufence.config import limits, options, sources
from gpufence.config.applies import NOTHING, amount_text, gpu_name, terms_of
from gpufence.config.library import refused
from gpufence.config.limits import Claim, Claims, Kind
from gpufence.config.option_table import table
from gpufence.config.sources import ConfigError, Sources
from gpufence.config.terms import GRAMMARS, TERM_KEYS
from gpufence.errors import ExitCode

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "readable, also when nothing is set",
    2: "wrong usage",
    4: "the library would refuse these limits",
}

_KIND_NAMES = {
    Kind.MEMORY: "memory",
    Kind.CORES: "cores",
    Kind.SOFT_CORES: "cores, idle",
    Kind.OVERSUBSCRIBE: "oversubscribe",
    Kind.SPILL: "spill",
}
_FILES = ("OVERRIDE_PATH", "VGPU_CONFIG_PATH", "VCUDA_PATH")  # of option_table.py


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="also what was overruled, and every file that was read",
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
        claims = limits.read(system)
        where = Sources.of(system)
    except ConfigError as error:
        refusal = refused(error, ExitCode.INVALID_LIMIT)
        if not args.json:
            raise refusal from None
        print(json.dumps({"schema": 1, "problem": refusal.as_dict()}, indent=2))
        return ExitCode.INVALID_LIMIT
    if args.json:
        print(json.dumps(_as_dict(claims), indent=2))
        return ExitCode.OK
    print("\n".join(_as_text(claims, args.explain)))
    if args.explain:
        print("\n".join(_background(claims, where)))
    return ExitCode.OK


def _as_text(claims: Claims, explain: bool) -> list[str]:
    lines = []
    for row in claims.rows:
        amount, source = NOTHING[row.kind], row.nothing
        if row.depends:
            amount, source = "the lowest", "of the following, which depends on the GPU"
        elif row.applies:
            amount, source = amount_text(row.applies), row.applies.source
        lines.append(
            f"{_KIND_NAMES[row.kind]:13} {gpu_name(row.names)}: {amount}  {source}".rstrip()
        )
        if explain or row.depends:
            lines += [
                f"{'':13} {'or' if row.depends else 'not'} {amount_text(claim)}  {claim.source}"
                f" [{claim.dialect}]"
                for claim in row.overruled
                if claim.amount or row.applies
            ]
    lines += [f"{kind:13} every GPU: {text}  {source}" for kind, text, source in terms_of(claims)]
    if claims.hypervisor:
        lines.append(f"to be asked   vgpu.rs's hypervisor at {claims.hypervisor}, at cuInit")
    return lines + [f"warning       {note}" for note in claims.notes] or ["no limit is set"]


def _terms_as_dict(claims: Claims) -> dict[str, object]:
    """Every term, null where it is not set."""
    found = claims.terms.as_dict()
    return {
        name: {"value": found[name], "source": claims.term_sources[option]}
        if name in found
        else None
        for option, name in zip(GRAMMARS, TERM_KEYS, strict=True)
    }


def _background(claims: Claims, where: Sources) -> list[str]:
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
    files, _ = table()
    lines += [
        f"file          {path} {'read' if Path(path).exists() else 'absent'}"
        for path in (where.config_path, *(files[name] for name in _FILES))
    ]
    lines += [
        f"no effect     {name}: {found[0].meaning}"
        for name in where.ignored
        if (found := options.find(name))
    ]
    return lines


def _log(claims: Claims) -> str:
    if claims.log_level == "off":
        return "off"
    daily = ".YYYY-MM-DD" if claims.log_is_daily else ""
    sink = claims.log_file + daily if claims.log_file else "stderr"
    return f"{claims.log_level} and worse, to {sink}"


def _claim_as_dict(claim: Claim) -> dict[str, object]:
    told = {"source": claim.source, "dialect": claim.dialect}
    if claim.kind is Kind.SPILL:
        return {"on": bool(claim.amount), **told}
    unit = {Kind.MEMORY: "bytes", Kind.OVERSUBSCRIBE: "ratio_thousandths"}
    name = unit.get(claim.kind, "percent_thousandths")
    if claim.percent_of_device:
        name = "percent_of_gpu_billionths"
    return {name: claim.amount, **told}


def _as_dict(claims: Claims) -> dict[str, object]:
    return {
        "schema": 1,
        "limits": [
            {
                "kind": row.kind.name.lower(),
                "gpu": gpu_name(row.names),
                "enforced": True,
                "applies": _claim_as_dict(row.applies) if row.applies else None,
                "depends_on_gpu": row.depends,
                "overruled": [_claim_as_dict(claim) for claim in row.overruled],
            }
            for row in claims.rows
        ],
        "mode": {"value": "mps", "source": claims.mode_source} if claims.mode_source else None,
        "terms": _terms_as_dict(claims),
        "scope": "process" if claims.process_scope else "container",
        "container": claims.container or None,
        "state_folder": claims.state_folder or None,
        "hypervisor": claims.hypervisor or None,
        "log_level": claims.log_level,
        "warnings": list(claims.notes),
    }
