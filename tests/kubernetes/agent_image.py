"""A root file system with the agent in it, as deploy/image/Dockerfile.agent has one.

Its Python and its gRPC are those of this process: no registry is asked. Must not know a cluster.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from tests.engines import tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).resolve().parents[2]
_PACKAGES = ("google", "grpc", "prometheus_client", "typing_extensions.py")
_PLACE = Path("usr/lib/gpufence")
_TOO_MUCH = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "*.a")


def make(folder: Path, build: Path) -> Path:
    """Fill a folder: the simulated driver, Python, and /bin/gpufence."""
    tree.make(folder, build, tools=("chmod", "ls"))
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    inside = folder / base.relative_to("/")
    (inside / "bin").mkdir(parents=True)
    program = base / "bin" / version
    shutil.copy2(program, inside / "bin" / version)
    shutil.copytree(base / "lib" / version, inside / "lib" / version, ignore=_TOO_MUCH)
    for loaded in (program, *(base / "lib" / version / "lib-dynload").glob("*.so")):
        tree.copy_libraries(loaded, folder)
    packages = folder / _PLACE
    for name in _PACKAGES:
        of_venv = Path(sysconfig.get_path("purelib")) / name
        if of_venv.is_dir():
            shutil.copytree(of_venv, packages / name, ignore=_TOO_MUCH)
        elif of_venv.exists():
            shutil.copy2(of_venv, packages / name)
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    for name, source in project["tool"]["scikit-build"]["wheel"]["packages"].items():
        shutil.copytree(REPO / source, packages / name, ignore=_TOO_MUCH)
    installed = packages / "gpufence" / "lib"
    shutil.copytree(build / "lib", installed, ignore=_only_libraries)
    for preload in (REPO / "deploy").glob("ld.so.preload*"):
        shutil.copy2(preload, installed)
    for cython in packages.glob("grpc/_cython/*.so"):
        tree.copy_libraries(cython, folder)
    script = folder / "bin" / "gpufence"
    words = f'PYTHONPATH=/{_PLACE} exec {base}/bin/{version} -B -m gpufence "$@"'
    script.write_text(f"#!/bin/sh\n{words}\n", encoding="ascii")
    script.chmod(0o755)
    return folder


def _only_libraries(_: str, names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(".so")}
