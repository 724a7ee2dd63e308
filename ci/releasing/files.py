"""Every file of a release, by its name.

Owns what a release consists of, and the order in which one part is made from another. Must not
know a format.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import archives, binaries, commit, deb, image, manuals, parts_list, wheels
from .commit import Commit

IMAGE = "gpufence-node"


@dataclass(frozen=True, slots=True)
class Built:
    """One machine's binaries: the folder with lib/ and sim/, and the program of the node image."""

    libraries: Path
    program: bytes


def make(made: Commit, work: Path, tools: binaries.Tools) -> dict[str, bytes]:
    """Compile and pack.

    Args:
        made: the commit.
        work: a folder with the commit's files in source/; everything else is made in it.
        tools: what compiles.

    Raises:
        commit.ReleaseError: a step failed, or a binary is not what it must be.
    """
    source, tree = work / "source", work / "tree"
    plant(source, tree)
    built = {}
    for machine in binaries.MACHINES:
        # What is compiled is the standalone tree itself, so a release shows that it builds.
        libraries = binaries.build(tree, machine, work / machine, tools)
        program = binaries.static_program(
            source / "deploy" / "image" / "install.c", machine, work / machine / "install", tools
        )
        binaries.prove([*libraries.rglob("*.so*"), program], made.checkout, work)
        built[machine] = Built(libraries, program.read_bytes())
    return pack(made, source, tree, built, work)


def plant(source: Path, tree: Path) -> None:
    """Write the standalone tree."""
    _tool("-m", "gen", "render", "--standalone", tree, folder=source / "tools")


def pack(
    made: Commit, source: Path, tree: Path, built: Mapping[str, Built], work: Path
) -> dict[str, bytes]:
    """Everything but SHA256SUMS.

    Args:
        made: the commit.
        source: its files.
        tree: the standalone tree.
        built: the binaries by machine.
        work: a folder for what is made on the way.
    """
    version, epoch = commit.version_of(source), made.epoch
    name = f"gpufence-{version}-cmake"
    plain = archives.tar(archives.read_tree(tree), epoch, top=f"{name}/")
    found = {f"{name}.tar.gz": archives.compressed(plain)}
    pure = wheels.pure_wheel(source, work / "pure", epoch)
    found |= dict([wheels.sdist(source, work / "sdist", epoch)])

    pages = manuals.pages(version, epoch)
    shells = {
        shell: _tool("-m", "gpufence", "completion", shell, folder=source / "tools")
        for shell in ("bash", "fish", "zsh")
    }
    license_text = (source / "LICENSE").read_bytes()
    roots = {}
    for machine, binary in built.items():
        libraries = binary.libraries
        packed = (
            wheels.platform_wheel(pure, libraries, machine, pages, epoch),
            deb.package(pure, libraries, machine, source, pages, shells, version, epoch),
        )
        found |= dict(packed)
        roots[machine] = image.root(libraries, binary.program, license_text, epoch)
        name = f"{IMAGE}-{version}-{image.ARCHITECTURES[machine]}.tar.gz"
        found[name] = archives.compressed(roots[machine])
    found[f"{IMAGE}-{version}.oci.tar"] = image.layout(roots, IMAGE, version, made.hash, epoch)
    name = f"gpufence-{version}.cdx.json"
    found[name] = parts_list.write(source, found, version, made.hash, epoch)
    return found


# Implementation.


def _tool(*words: str | Path, folder: Path) -> bytes:
    """One of the project's tools, as the commit has it; what it prints."""
    command = [sys.executable, "-B", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode != 0:
        print(done.stderr.decode(errors="replace"))
        raise commit.ReleaseError(f"`{' '.join(map(str, words))}` failed, as above.")
    return done.stdout
