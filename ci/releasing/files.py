"""Every file of a release, by its name.

Owns what a release consists of, and the order in which one part is made from another. Must not
know a format.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import archives, binaries, commit, deb, image, manuals, parts_list, wheels
from .commit import Commit

IMAGE = "gpufence-node"


def make(made: Commit, work: Path, tools: binaries.Tools) -> dict[str, bytes]:
    """Build all of them.

    Args:
        made: the commit.
        work: a folder with the commit's files in source/; everything else is made in it.
        tools: what compiles.

    Raises:
        commit.ReleaseError: a step failed, or a binary is not what it must be.
    """
    source, tree, epoch = work / "source", work / "tree", made.epoch
    version = commit.version_of(source)
    found: dict[str, bytes] = {}

    # What is compiled is the standalone tree itself, so a release shows that it builds.
    _tool("-m", "gen", "render", "--standalone", tree, folder=source / "tools")
    name = f"gpufence-{version}-cmake"
    plain = archives.tar(archives.read_tree(tree), epoch, top=f"{name}/")
    found[f"{name}.tar.gz"] = archives.compressed(plain)

    pure = wheels.pure_wheel(source, work / "pure", epoch)
    name, content = wheels.sdist(source, work / "sdist", epoch)
    found[name] = content

    pages = manuals.pages(version, epoch)
    shells = {
        shell: _tool("-m", "gpufence", "completion", shell, folder=source / "tools")
        for shell in ("bash", "fish", "zsh")
    }
    roots = {}
    for machine in binaries.MACHINES:
        built = binaries.build(tree, machine, work / machine, tools)
        program = binaries.static_program(
            source / "deploy" / "image" / "install.c", machine, work / machine / "install", tools
        )
        binaries.prove([*built.rglob("*.so*"), program], made.checkout, work)
        packed = (
            wheels.platform_wheel(pure, built, machine, pages, epoch),
            deb.package(pure, built, machine, source, pages, shells, version, epoch),
        )
        found |= dict(packed)
        license_text = (source / "LICENSE").read_bytes()
        roots[machine] = image.root(built, program.read_bytes(), license_text, epoch)
        architecture = image.ARCHITECTURES[machine]
        found[f"{IMAGE}-{version}-{architecture}.tar.gz"] = archives.compressed(roots[machine])
    found[f"{IMAGE}-{version}.oci.tar"] = image.layout(roots, IMAGE, version, made.hash, epoch)
    found[f"gpufence-{version}.cdx.json"] = parts_list.write(
        source, found, version, made.hash, epoch
    )
    return found


# Implementation.


def _tool(*words: str | Path, folder: Path) -> bytes:
    """One of the project's tools, as the commit has it; what it prints."""
    done = subprocess.run(
        [sys.executable, "-B", *words], cwd=folder, capture_output=True, check=False
    )
    if done.returncode != 0:
        print(done.stderr.decode(errors="replace"))
        raise commit.ReleaseError(f"`{' '.join(map(str, words))}` failed, as above.")
    return done.stdout
