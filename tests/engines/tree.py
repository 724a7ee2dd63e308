"""The root file system of a container: a shell, few tools, the simulated driver and a probe."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PROBE = "/bin/limit_probe"
# systemd-nspawn asks the container's own `getent` for a user.
_TOOLS = ("sh", "env", "sleep", "cat", "id", "getent")
_FOLDERS = ("dev", "etc", "proc", "root", "run", "sim", "sys", "tmp", "usr/lib")
_PASSWD = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"
_LIBRARY = re.compile(r"(/\S+) \(0x")


def make(folder: Path, build: Path, more: Iterable[str] = (), tools: Iterable[str] = ()) -> Path:
    """Fill a folder; what is in it is found without any variable.

    Args:
        folder: to fill.
        build: where CMake left programs and the simulated driver.
        more: names of other test programs, for /bin.
        tools: names of other programs of this machine, for /bin.
    """
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    (folder / "bin").mkdir()
    found = [Path(shutil.which(tool) or tool) for tool in (*_TOOLS, *tools)]
    programs = [build / "tests" / name for name in (PROBE.rpartition("/")[2], *more)]
    for program in [*found, *programs]:
        shutil.copy2(program, folder / "bin" / program.name)
        copy_libraries(program, folder)
    driver = folder / "opt" / "sim"
    driver.mkdir(parents=True)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy2(build / "sim" / name, driver / name)
    (folder / "etc" / "ld.so.conf").write_text("/opt/sim\n", encoding="ascii")
    (folder / "etc" / "passwd").write_text(_PASSWD, encoding="ascii")
    (folder / "etc" / "group").write_text("root:x:0:\nuser:x:1000:\n", encoding="ascii")
    subprocess.run(["/sbin/ldconfig", "-r", str(folder)], check=True)
    return folder


def copy_libraries(program: Path, folder: Path) -> None:
    """What a program of this machine loads, at the same paths."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    for name in _LIBRARY.findall(listed.stdout):
        place = folder / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy2(Path(name).resolve(), place)
