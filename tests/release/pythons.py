"""The tools' tests under other Pythons, each in a Debian that has it.

    python -m tests.release.pythons DIR [VERSION ...]

A Python runs by chroot, with processes and mounts of its own. It sees the checkout read-only at its
own place, with this machine's build of the library. The locked tools for that Python are PyPI's.
3.10 and 3.12 are not here: no Debian has them.

Announces each step on stderr, and ends it after a while. Prints a table on stdout, then each test
that failed and why others were skipped. Exit status: 0 all pass, 1 one does not, 2 usage, 3 no
system can be had here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from .systems import BOOTSTRAP_S, REPO, UnavailableError, make

SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky", "3.15": "forky"}
# The programs that the tests start: git and tmux, and the runtime of the sanitized fuzzer.
_PACKAGES = "git,tmux,libasan8,libubsan1"
PLACES = (
    "tests/tools",
    "tests/config/test_limits.py",
    "tests/config/test_limits_docs.py",
    "tests/config/test_limits_fuzz.py",
    "tests/deploy/test_examples.py",
    "tests/house/test_docs.py",
)
# These hold the library and the benches to something: the Python of the tools does not matter.
LEFT_OUT = (
    "test_demo_command.py",
    "test_gpufence_command.py",
    "test_watching.py",
    "colocation/test_bench.py",
    "scoreboard/test_bench.py",
)
PIP_S, DEMO_S, TESTS_S = 600, 300, 2400
_SITE, _OUT = "opt/site", "opt/out"
# The first process of the namespace dies with the command, and the kernel ends the others with it.
_ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
_INSIDE = """
root=$0 checkout=$1 site=$2 out=$3 && shift 3 &&
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
for empty in run dev/shm tmp; do mount -t tmpfs tmpfs "$root/$empty" || exit; done &&
mkdir -p "$root$checkout" "$root/opt/site" "$root/opt/out" &&
mount --bind "$checkout" "$root$checkout" && mount -o remount,bind,ro "$root$checkout" &&
mount --bind "$site" "$root/opt/site" && mount --bind "$out" "$root/opt/out" &&
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one Python's tests came to."""

    passed: int
    failed: tuple[str, ...]
    skipped: Counter[str]
    seconds: float


def main(folder: Path, versions: tuple[str, ...]) -> int:
    """Returns the exit status."""
    if unknown := [each for each in versions if each not in SUITES]:
        print(f"ci/pythons: no Python {unknown[0]}: it knows {', '.join(SUITES)}", file=sys.stderr)
        return 2
    rows: dict[str, Ran] = {}
    try:
        for version in versions or SUITES:
            rows[version] = _under(folder, version)
    except UnavailableError as error:
        print(f"ci/pythons: skipped: {error}", file=sys.stderr)
        return 3
    print(table(rows))
    return 1 if any(ran.failed for ran in rows.values()) else 0


def counted(report: str, seconds: float, before: tuple[str, ...] = ()) -> Ran:
    """Count a report of pytest's in JUnit's format; what failed before the tests comes first."""
    passed, failed, skipped = 0, [*before], Counter[str]()
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (why := case.find("skipped")) is not None:
            skipped[(why.get("message") or "no reason").partition(":")[0]] += 1
        else:
            passed += 1
    return Ran(passed, tuple(failed), skipped, seconds)


def table(rows: dict[str, Ran]) -> str:
    """Markdown."""
    lines = ["| Python | passed | failed | skipped | seconds |", "|---|---|---|---|---|"]
    for version, ran in rows.items():
        counts = (ran.passed, len(ran.failed), ran.skipped.total(), round(ran.seconds))
        lines.append(f"| {version} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    for version, ran in rows.items():
        lines += [f"\nPython {version}:"] if ran.failed or ran.skipped else []
        lines += [f"* failed: {name}" for name in ran.failed]
        lines += [f"* {count} skipped: {why}" for why, count in ran.skipped.most_common()]
    return "\n".join(lines)


def inside(root: Path, site: Path, out: Path, seconds: float, *words: str) -> tuple[int, str]:
    """Run a command in a system; its status and what it wrote last.

    Status 124: it ran longer than that and was ended, with every process that it started.
    """
    mounts = (*_ALONE, "sh", "-c", _INSIDE, root, REPO, site, out)
    try:
        done = subprocess.run(
            [*map(str, mounts), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"ended after {seconds:.0f} seconds"
    return done.returncode, (done.stdout.strip().splitlines() or ["it said nothing"])[-1]


# Implementation.


def _say(version: str, step: str, seconds: int) -> None:
    print(f"ci/pythons: {version}: {step}, at most {seconds // 60} minutes", file=sys.stderr)


def _under(folder: Path, version: str) -> Ran:
    suite = SUITES[version]
    pythons = ",".join(f"python{each}" for each, found in SUITES.items() if found == suite)
    _say(version, f"a Debian of {suite}", BOOTSTRAP_S)
    root = make(folder.resolve() / f"python-{suite}", suite, f"{pythons},{_PACKAGES}")
    _say(version, "its test tools from PyPI", PIP_S)
    site = _tools_for(folder, version)
    # Found by every process, also by one whose environment a test empties.
    packages_of = root / f"usr/local/lib/python{version}/dist-packages"
    packages_of.mkdir(parents=True, exist_ok=True)
    paths = f"{REPO}/tools\n{REPO}/ci\n/{_SITE}\n"
    (packages_of / "tools.pth").write_text(paths, encoding="utf-8")
    with tempfile.TemporaryDirectory() as out:
        return _tested(version, lambda *words: inside(root, site, Path(out), *words), Path(out))


def _tested(version: str, run: Callable[..., tuple[int, str]], out: Path) -> Ran:
    """The demonstration and the tests, by what runs a command in the system."""
    python = f"python{version} -B -m"
    _say(version, "gpufence demo", DEMO_S)
    status, last = run(DEMO_S, "sh", "-c", f"cd / && {python} gpufence demo --seconds 3")
    failed = () if status == 0 else (f"gpufence demo: {status}: {last}",)
    _say(version, "the tests", TESTS_S)
    words = " ".join((*PLACES, *(f"--ignore=tests/tools/{name}" for name in LEFT_OUT)))
    pytest = f"{python} pytest -q -p no:cacheprovider -n 2 {words}"
    began = time.monotonic()
    status, last = run(TESTS_S, "sh", "-c", f"cd {REPO} && {pytest} --junitxml=/{_OUT}/report.xml")
    seconds = time.monotonic() - began
    print(f"ci/pythons: {version}: {last}", file=sys.stderr)
    report = out / "report.xml"
    if not report.exists():
        return Ran(0, (*failed, f"pytest: {status}: {last}"), Counter(), seconds)
    return counted(report.read_text(encoding="utf-8"), seconds, failed)


def _tools_for(folder: Path, version: str) -> Path:
    """The locked tools for a Python, and what an install says of the project itself.

    Raises:
        UnavailableError: PyPI has not all of them for it.
    """
    site = folder.resolve() / f"python-tools-{version}"
    if not (site / "made").exists():
        shutil.rmtree(site, ignore_errors=True)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", site)
        chosen = ("--python-version", version, "--only-binary=:all:", "--require-hashes")
        locks = [f"--requirement={REPO}/ci/locks/{group}.txt" for group in ("build", "test")]
        try:
            done = subprocess.run(
                [*pip, *chosen, *locks],
                capture_output=True, text=True, check=False, timeout=PIP_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"pip for Python {version} took {PIP_S} seconds") from error
        if done.returncode != 0:
            raise UnavailableError(f"pip for Python {version}: {done.stderr.strip()[-200:]}")
        (site / "made").touch()
    for found in Path(sys.prefix).glob("lib/python*/site-packages/gpufence-*.dist-info"):
        shutil.copytree(found, site / found.name, dirs_exist_ok=True)
    return site


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), tuple(sys.argv[2:])))
