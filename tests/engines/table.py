"""Prints which engine holds a CDI limit, flag by flag, user by user and way by way, as Markdown.

    ci/engines [--root DIR] [--cgroup2] [ENGINE ...]

Each cell is a program that asks for more than the limit, in a container of that engine. An engine
that is not installed has a line that says so. Exit status: 0, 5 where a limit is not held.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cells import FLAGS, FREE, UIDS, WAYS, Cell, ask
from .containerd import Containerd
from .cri import Cri
from .engine import Engine, make_host
from .like_docker import Compose, Docker, DockerRemap, Podman, RootlessPodman
from .nri import Nri
from .session import Session
from .without_cdi import Lxc, Nspawn

REPO = Path(__file__).resolve().parents[2]
# What an engine calls a container by itself.
_IDENTITY = re.compile(r"[0-9a-f]{32,}")
ENGINES: Mapping[str, type[Engine]] = {
    "podman": Podman,
    "podman-rootless": RootlessPodman,
    "docker": Docker,
    "docker-remap": DockerRemap,
    "compose": Compose,
    "containerd": Containerd,
    "cri": Cri,
    "nri": Nri,
    "nspawn": Nspawn,
    "lxc": Lxc,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/engines", description=__doc__)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(ENGINES))
    parser.add_argument("--root", type=Path, default=Path("/"), help="where they are installed")
    parser.add_argument(
        "--cgroup2", action="store_true", help="show them cgroups of version 2 only"
    )
    arguments = parser.parse_args()
    build = Path(os.environ.get("GPUFENCE_BUILD") or REPO / "build")
    found: set[str] = set()
    for name in arguments.engines or ENGINES:
        with tempfile.TemporaryDirectory(prefix="gpufence-engines-") as folder:
            session = Session(Path(folder), arguments.root, unified=arguments.cgroup2)
            found |= _one(name, session, build)
    return 5 if FREE in found else 0


def _one(name: str, session: Session, build: Path) -> set[str]:
    """One engine's table; its verdicts."""
    session.folder.chmod(0o755)
    with session:
        if missing := session.has(*ENGINES[name].tools):
            print(f"**{name}**: not run, {', '.join(missing)} not installed\n", flush=True)
            return set()
        engine = ENGINES[name](session, make_host(session.folder, build))
        try:
            engine.begin()
        except (OSError, ValueError) as error:
            print(f"**{name}**: not run, {error}\n", flush=True)
            return set()
        cells: dict[Cell, str] = {}
        flags = [flag for flag in (*FLAGS, *engine.own_flags) if engine.takes(flag)]
        for flag in flags:
            print(f"{name} {flag or 'default'} ...", file=sys.stderr, flush=True)
            cells |= ask(engine, flag)
        _print(f"{engine.name} {engine.version()}", flags, cells)
    return set(cells.values())


def _print(title: str, flags: Sequence[str], cells: Mapping[Cell, str]) -> None:
    """The table, with a note for each reason why there is no container."""
    columns = [(uid, way) for way in WAYS for uid in UIDS]
    head = [title, *(f"{way}, user {uid}" for uid, way in columns)]
    notes: dict[str, int] = {}
    rows = [
        [flag or "none", *(_noted(cells[Cell(flag, uid, way)], notes) for uid, way in columns)]
        for flag in flags
    ]
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |", flush=True)
    for why, number in notes.items():
        print(f"\n[{number}] {why}", flush=True)
    print(flush=True)


def _noted(found: str, notes: dict[str, int]) -> str:
    what, _, why = found.partition(": ")
    why = _IDENTITY.sub("ID", why)
    return f"{what} [{notes.setdefault(why, len(notes) + 1)}]" if why else what


if __name__ == "__main__":
    sys.exit(main())
