"""`ci/release [--check] [DIR]`: makes every file of a release and writes it, or says why not.

Owns the order of the steps and the names of the files. Must not know a format.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from . import binaries, commit, files
from .commit import Commit, ReleaseError

_CHECKOUT = Path(__file__).resolve().parents[2]
_SUMS = "SHA256SUMS"


def main() -> int:
    """Returns the exit status: 0 done, 1 an error, 3 two builds differ."""
    parser = argparse.ArgumentParser(prog="ci/release", description=__doc__)
    parser.add_argument("folder", metavar="DIR", nargs="?", default="dist", type=Path)
    parser.add_argument("--check", action="store_true", help="build twice, and compare")
    args = parser.parse_args()
    os.umask(0o022)
    try:
        made = commit.of(_CHECKOUT)
        if commit.is_changed(_CHECKOUT):
            raise ReleaseError("files differ from the commit. Commit them, or put them aside.")
        if not args.check:
            _write(args.folder, _make(made, "gpufence-release-", cached=True))
            return 0
        return _compare(made, args.folder)
    except ReleaseError as error:
        print(f"ci/release: {error}", file=sys.stderr)
        return 1


def _compare(made: Commit, folder: Path) -> int:
    # Everything that must not matter differs: paths, their lengths, the time zone and the language.
    first = _make(made, "a", cached=False)
    os.environ.update(TZ="Pacific/Chatham", LANG="tr_TR.UTF-8", PYTHONHASHSEED="1")
    second = _make(made, "another-gpufence-release-", cached=False)
    differing = sorted(
        name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
    )
    _write(folder, first)
    for name in sorted(first):
        again = hashlib.sha256(second.get(name, b"")).hexdigest()
        print(f"{'differs' if name in differing else 'equal  '}  {again}  {name}")
    if differing:
        print(f"ci/release: two builds differ in {', '.join(differing)}", file=sys.stderr)
        return 3
    return 0


def _make(made: Commit, prefix: str, *, cached: bool) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        work = Path(name)
        tools = binaries.Tools(made.checkout, cached=cached)
        made.export(work / "source")
        found = files.make(made, work, tools)
    lines = [f"{hashlib.sha256(found[each]).hexdigest()}  {each}\n" for each in sorted(found)]
    found[_SUMS] = "".join(lines).encode()
    return found


def _write(folder: Path, found: Mapping[str, bytes]) -> None:
    """Replace the files of an earlier release in the folder; what else lies there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = folder / _SUMS
    for line in sums.read_text(encoding="utf-8").splitlines() if sums.exists() else ():
        (folder / line.split("  ", 1)[1]).unlink(missing_ok=True)
    for name, content in sorted(found.items()):
        (folder / name).write_bytes(content)
        print(f"{len(content):>10}  {hashlib.sha256(content).hexdigest()}  {name}")


if __name__ == "__main__":
    sys.exit(main())
