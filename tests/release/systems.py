"""A release's library in other systems: Debian 11, 12 and 13, a program of musl, and aarch64.

    python -m tests.release.systems RELEASE DIR

In each system /etc/ld.so.preload names the library and /etc/gpufence/gpufence.conf has the limit,
as in a container. Programs run by chroot in mounts of their own, with an empty environment.
The aarch64 library runs in a Debian 12 under the qemu of Debian 13.
Prints a line for each check. Exit status: 0 all are as promised, 1 one is not, 2 usage, 3 no system
can be had here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from . import guest, judging

REPO = Path(__file__).resolve().parents[2]
BOOTSTRAP_S = 1200
_SCRIPTS = Path("/usr/share/debootstrap/scripts")
SUITES = ("bullseye", "bookworm", "trixie")
_PLACE = "opt/gpufence"
_LIBRARY = f"/{_PLACE}/gpufence/lib/libgpufence.so"
# Everything that a program of the system knows. The simulated driver stands where a real one would.
_ENVIRONMENT = ("env", "-i", "PATH=/usr/bin:/bin", f"LD_LIBRARY_PATH=/{_PLACE}/gpufence/sim")
_INSIDE = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/run" &&
mount -t tmpfs tmpfs "$0/dev/shm" && mkdir -m 1777 "$0/run/gpufence" && exec chroot "$0" "$@"
"""
_EMULATOR = "qemu-aarch64"
_MUSL = '#include <stdio.h>\nint main(void) { return puts("ran") < 0; }\n'

Done = subprocess.CompletedProcess[str]


class UnavailableError(Exception):
    """No system can be had on this machine; the text says why."""


def main(release: Path, folder: Path) -> int:
    """Returns the exit status."""
    try:
        made = [(suite, system(folder, suite)) for suite in SUITES]
        other = foreign(folder)
        shutil.copy(emulator(folder), other / _EMULATOR)
    except UnavailableError as error:
        print(f"ci/systems: skipped: {error}", file=sys.stderr)
        return 3
    (wheel,) = release.glob(f"*manylinux2014_{os.uname().machine}.whl")
    broken = 0
    for suite, root in made:
        furnish(root, wheel)
        for name, problem in checks(root):
            broken += bool(problem)
            print(f"{suite:10}{name:28}{problem or 'as promised'}", flush=True)
    (wheel,) = release.glob("*manylinux2014_aarch64.whl")
    furnish(other, wheel)
    for way in guest.WAYS:
        problem = told(emulated(other, *_guest(way)))
        broken += bool(problem)
        print(f"{'aarch64':10}{'memory, ' + way:28}{problem or 'as promised'}", flush=True)
    return 1 if broken else 0


def system(folder: Path, suite: str) -> Path:
    """A Debian with Python and musl, made once.

    Raises:
        UnavailableError: as for make().
    """
    return make(folder.resolve() / suite, suite, "python3,musl")


def make(root: Path, suite: str, packages: str) -> Path:
    """A Debian with these packages, made once.

    Raises:
        UnavailableError: not root, no debootstrap, or no archive.
    """
    if (root / "made").exists():
        return root
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise UnavailableError("only root can make systems, with debootstrap")
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    what = ("--variant=minbase", f"--include={packages}")
    # A release newer than this machine's debootstrap is made as the newest that it knows.
    known = (_SCRIPTS / suite).exists()
    _bootstrap(
        ["debootstrap", *what, suite, root, _mirror(), *([] if known else [_SCRIPTS / "sid"])]
    )
    (root / "made").touch()
    return root


def foreign(folder: Path) -> Path:
    """A Debian 12 of aarch64: its packages unpacked, and no script of theirs run.

    Raises:
        UnavailableError: as for system().
    """
    root = folder.resolve() / "aarch64"
    if (root / "made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    what = ("--arch=arm64", "--foreign", "--variant=minbase", "--include=python3")
    _bootstrap(["debootstrap", *what, "bookworm", root, _mirror()])
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    (root / "made").touch()
    return root


def emulator(folder: Path) -> Path:
    """The qemu of Debian 13, which needs nothing of its system.

    Debian 12's wipes no memory at a fork that is to be wiped there.

    Raises:
        UnavailableError: as for system().
    """
    return make(folder.resolve() / "emulator", "trixie", "qemu-user") / "usr/bin" / _EMULATOR


def furnish(root: Path, wheel: Path) -> None:
    """The library, the simulated driver, the guest and the limit."""
    shutil.rmtree(root / _PLACE, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root / _PLACE)
    shutil.copy(guest.__file__, root / _PLACE / "guest.py")
    (root / "etc/gpufence").mkdir(exist_ok=True)
    limit = f"memory_limit = {judging.LIMIT_MIB}MiB\n"
    (root / "etc/gpufence/gpufence.conf").write_text(limit, encoding="utf-8")
    (root / "etc/ld.so.preload").write_text(f"{_LIBRARY}\n", encoding="utf-8")
    source = root / _PLACE / "musl.c"
    source.write_text(_MUSL, encoding="utf-8")
    zig = [REPO / ".venv/zig/cc", f"--target={os.uname().machine}-linux-musl", "-dynamic"]
    subprocess.run([*zig, source, "-o", root / _PLACE / "musl"], check=True)


def checks(root: Path) -> Iterator[tuple[str, str]]:
    """Each check's name, and what is wrong or ""."""
    for words in (("true",), ("sh", "-c", "exit 0"), ("python3", "-c", "print(end='')")):
        done = inside(root, *words)
        silent = (done.returncode, done.stdout, done.stderr) == (0, "", "")
        yield f"starts {words[0]}", "" if silent else f"{done.returncode}: {done.stderr.strip()}"
    for way in guest.WAYS:
        yield f"memory, {way}", told(inside(root, *_guest(way)))
    yield "memory, as nobody", told(inside(root, *_as_nobody(*_guest("linked"))))
    yield "memory, two processes", _beside(root)
    yield from _doctor(root)
    yield from _musl(root)


def told(done: Done, **more: int) -> str:
    """What is wrong with what a guest told; '' if nothing is."""
    if done.returncode != 0:
        return f"status {done.returncode}: {done.stderr.strip()[-200:]}"
    return "; ".join(judging.problems(json.loads(done.stdout), **more))


def inside(root: Path, *words: str, env: tuple[str, ...] = _ENVIRONMENT) -> Done:
    """Run a program in the system, in mounts that end with it."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _INSIDE, root]
    return subprocess.run(
        [*command, *env, *words], capture_output=True, text=True, check=False, timeout=120
    )


def emulated(root: Path, *words: str) -> Done:
    """As inside(), a program of aarch64. It can start no other one."""
    variables = ("-E", f"LD_LIBRARY_PATH=/{_PLACE}/gpufence/sim")
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _INSIDE, root]
    return subprocess.run(
        [*command, f"/{_EMULATOR}", *variables, f"/usr/bin/{words[0]}", "-S", *words[1:]],
        env={"PATH": "/usr/sbin:/usr/bin:/bin"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


# Implementation.


def _mirror() -> str:
    """The archive that this machine's apt uses."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    mirrors = [each for each in told if each.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise UnavailableError("apt of this machine has no archive of Debian")
    return mirrors[0]


def _bootstrap(words: list[str | Path]) -> None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=BOOTSTRAP_S
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"debootstrap took {BOOTSTRAP_S} seconds") from error
    if done.returncode != 0:
        last = (done.stdout or "it failed").splitlines()[-1]
        raise UnavailableError(f"debootstrap: {last}")


def _guest(*words: str) -> tuple[str, ...]:
    return ("python3", f"/{_PLACE}/guest.py", *words)


def _as_nobody(*words: str) -> tuple[str, ...]:
    text = f"import os; os.setgid(65534); os.setuid(65534); os.execvp({words[0]!r}, {[*words]!r})"
    return ("python3", "-c", text)


def _beside(root: Path) -> str:
    """One process holds a part and is killed; a second gets the rest meanwhile, a third all."""
    script = f"""
import json, subprocess, sys
guest = [sys.executable, "/{_PLACE}/guest.py"]
holder = subprocess.Popen([*guest, "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
held = json.loads(holder.stdout.readline())
beside = json.loads(subprocess.check_output([*guest, "linked"]))
holder.kill(); holder.wait()
after = json.loads(subprocess.check_output([*guest, "linked"]))
print(json.dumps([held, beside, after]))
"""
    done = inside(root, "python3", "-c", script)
    if done.returncode != 0:
        return f"status {done.returncode}: {done.stderr.strip()[-200:]}"
    held, beside, after = json.loads(done.stdout)
    found = judging.problems(beside, held_mib=held["granted_mib"]) + judging.problems(after)
    return "; ".join([*found, *(["nothing was held"] if held["granted_mib"] == 0 else [])])


def _doctor(root: Path) -> Iterator[tuple[str, str]]:
    """The tools, where the system's Python is new enough for them."""
    version = inside(root, "python3", "-c", "import sys; print(sys.version_info >= (3, 10))")
    if version.stdout != "True\n":
        return
    text = f"import sys; sys.path[0] = '/{_PLACE}'; from gpufence.cli import main; sys.exit(main())"
    done = inside(root, "python3", "-c", text, "doctor")
    fenced = done.returncode == 0 and "\nlookups  fenced\n" in done.stdout
    yield "gpufence doctor", "" if fenced else f"{done.returncode}: {done.stderr.strip()}"


def _musl(root: Path) -> Iterator[tuple[str, str]]:
    """A preload file is not read by musl; LD_PRELOAD is, and ends the program with musl's line."""
    program = f"/{_PLACE}/musl"
    by_file = inside(root, program)
    ran = (by_file.returncode, by_file.stdout, by_file.stderr) == (0, "ran\n", "")
    yield "musl, preload file", "" if ran else f"{by_file.returncode}: {by_file.stderr.strip()}"
    variable = ("env", "-i", f"LD_PRELOAD={_LIBRARY}")
    by_variable = inside(root, program, env=variable)
    refused = by_variable.returncode == 127 and by_variable.stderr.startswith("Error relocating")
    problem = f"{by_variable.returncode}: {by_variable.stdout}{by_variable.stderr.strip()}"
    yield "musl, LD_PRELOAD", "" if refused and not by_variable.stdout else problem


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
