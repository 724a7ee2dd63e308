"""The Debian package: library, simulated driver, `gpufence`, its pages and completions, units.

Owns where files lie on a Debian system. Python modules are private to the package, so that every
Python 3 of the system finds them. findsyms and hookgen are not in it: they need lief and libclang,
which Debian does not have; the wheel brings them. Must not know how a library is compiled.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from . import archives
from .archives import Entry

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LIBRARY = "usr/lib/gpufence"
_PYTHON = "usr/share/gpufence"
_DOC = "usr/share/doc/gpufence"
_SCRIPTS = ("postinst", "prerm")
_UNIT_STARTS = "/opt/gpufence-tools/bin/gpufence"

# -P would keep the caller's folder out, but only from Python 3.11 on.
_PROGRAM = f"""\
#!/usr/bin/python3
import sys

sys.path[0] = "/{_PYTHON}"
from gpufence.cli import main  # noqa: E402

sys.exit(main())
"""

_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gpufence

Files: *
Copyright: the authors of gpufence
License: Apache-2.0

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""


def package(
    pure: dict[str, Entry],
    libraries: Path,
    machine: str,
    source: Path,
    manuals: dict[str, bytes],
    completions: dict[str, bytes],
    version: str,
    epoch: int,
) -> tuple[str, bytes]:
    """The package for one machine.

    Args:
        pure: the Python parts, as in the wheel.
        libraries: the folder with lib/ and sim/.
        machine: as the kernel calls it.
        source: the checkout's files.
        manuals: pages by their file's name.
        completions: what `gpufence completion` prints, by shell.
        version: of the project.
        epoch: the time of every file.

    Returns:
        Its file name and its bytes.
    """
    architecture = ARCHITECTURES[machine]
    tree = _tree(pure, libraries, source, manuals, completions)
    kilobytes = sum(-(-len(entry.content) // 1024) for entry in tree.values())
    scripts = source / "deploy" / "debian"
    control = {
        "control": Entry(_control(version, architecture, kilobytes).encode()),
        "md5sums": Entry(_sums(tree)),
        **{name: Entry((scripts / name).read_bytes(), program=True) for name in _SCRIPTS},
    }
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": archives.compressed(archives.tar(control, epoch, top="./")),
        "data.tar.gz": archives.compressed(archives.tar(tree, epoch, top="./")),
    }
    return f"gpufence_{version}_{architecture}.deb", archives.ar(members, epoch)


# Implementation.


def _tree(
    pure: dict[str, Entry],
    libraries: Path,
    source: Path,
    manuals: dict[str, bytes],
    completions: dict[str, bytes],
) -> dict[str, Entry]:
    left_out = ("gpufence/findsyms/", "gpufence/gen/", "gpufence/templates/")
    tree = {
        f"{_PYTHON}/{name}": entry
        for name, entry in pure.items()
        if not name.startswith(left_out) and not name.endswith(("/RECORD", "/entry_points.txt"))
    }
    for name, entry in archives.read_tree(libraries / "lib").items():
        tree[f"{_LIBRARY}/{name}"] = Entry(entry.content)
    for name, entry in archives.read_tree(libraries / "sim").items():
        tree[f"{_LIBRARY}/sim/{name}"] = Entry(entry.content)
    # Where the Python parts look for them.
    tree[f"{_PYTHON}/gpufence/lib"] = Entry(target="../../../lib/gpufence")
    tree[f"{_PYTHON}/gpufence/sim"] = Entry(target="../../../lib/gpufence/sim")
    tree["usr/bin/gpufence"] = Entry(_PROGRAM.encode(), program=True)
    for name, page in manuals.items():
        if name.startswith("gpufence"):
            tree[f"usr/share/man/man1/{name}.gz"] = Entry(archives.compressed(page))
    places = {
        "bash": "usr/share/bash-completion/completions/gpufence",
        "zsh": "usr/share/zsh/vendor-completions/_gpufence",
        "fish": "usr/share/fish/vendor_completions.d/gpufence.fish",
    }
    for shell, text in completions.items():
        tree[places[shell]] = Entry(text)
    units = source / "deploy" / "systemd"
    unit = (units / "gpufence-export.service").read_text(encoding="utf-8")
    started = unit.replace(_UNIT_STARTS, "/usr/bin/gpufence")
    tree["usr/lib/systemd/system/gpufence-export.service"] = Entry(started.encode())
    tree["usr/lib/tmpfiles.d/gpufence.conf"] = Entry(
        (units / "gpufence.tmpfiles.conf").read_bytes()
    )
    changes = (source / "CHANGELOG.md").read_bytes()
    tree[f"{_DOC}/changelog.gz"] = Entry(archives.compressed(changes))
    tree[f"{_DOC}/copyright"] = Entry(_COPYRIGHT.encode())
    return tree


def _control(version: str, architecture: str, kilobytes: int) -> str:
    return f"""\
Package: gpufence
Version: {version}
Architecture: {architecture}
Maintainer: the authors of gpufence <noreply@gpufence.invalid>
Installed-Size: {kilobytes}
Depends: libc6 (>= 2.17), python3 (>= 3.10)
Recommends: python3-jsonschema, python3-prometheus-client, python3-rich, python3-yaml
Section: utils
Priority: optional
Description: share one NVIDIA GPU between containers
 A preloaded library holds each container to a limit of GPU memory and to a
 share of GPU time, without a daemon and without a change to the program.
 .
 The package brings the library, the command `gpufence` and a simulated driver
 for machines without a GPU. It limits nothing by itself: `gpufence run` and
 `gpufence cdi` put the library into programs and containers.
"""


def _sums(tree: dict[str, Entry]) -> bytes:
    lines = [
        f"{hashlib.md5(entry.content, usedforsecurity=False).hexdigest()}  {name}\n"
        for name, entry in sorted(tree.items())
        if not entry.target
    ]
    return "".join(lines).encode()
