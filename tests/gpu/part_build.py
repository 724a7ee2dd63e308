"""The GPU run's first part: the project built on the machine it will be tested on."""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import harness
from report import Report
from setup import REPO, Setup, run

BUILD_TIMEOUT_S = 240.0


def run_part(setup: Setup, report: Report) -> bool:
    """Configures and builds library, simulator and test programs.

    Returns:
        Whether there is a library to test. Test programs that do not compile are reported and
        skipped later; they do not stop the run.
    """
    configure = [
        "cmake",
        "-S",
        REPO / "lib",
        "-B",
        setup.build,
        "-G",
        "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGPUFENCE_TESTS=ON",
        f"-DPython3_EXECUTABLE={sys.executable}",
    ]
    done = run(configure, os.environ, setup.left_s(60))
    if done.status != 0:
        report.judge("build", "configure", "failed", done.stderr[-800:], seconds=done.seconds)
        return False
    # -k 0: one program that does not compile must not keep the others from being built.
    done = run(
        ["cmake", "--build", setup.build, "--", "-k", "0"],
        os.environ,
        setup.left_s(BUILD_TIMEOUT_S),
    )
    verdict = "same" if done.status == 0 else "failed"
    complaint = re.compile(r"error:|undefined reference|multiple definition")
    errors = [line[-200:] for line in done.stdout.splitlines() if complaint.search(line)]
    report.judge(
        "build",
        "build",
        verdict,
        "; ".join([f"{done.seconds} s", *errors[:6]])[:900],
        seconds=done.seconds,
        errors=errors[:60],
    )
    if not setup.simulated:
        _compile_leftovers(setup, report)
    return setup.library.exists()


def _driver_files() -> list[str]:
    """The machine's own libcuda and libnvidia-ml, as the loader finds them."""
    script = (
        "import ctypes; [ctypes.CDLL(n) for n in ('libcuda.so.1', 'libnvidia-ml.so.1')];"
        "print(open('/proc/self/maps').read())"
    )
    maps = run([sys.executable, "-c", script], os.environ, 30).stdout
    return sorted(set(re.findall(r"/\S*/(?:libcuda|libnvidia-ml)\.so\S*", maps)))


def _compile_leftovers(setup: Setup, report: Report) -> None:
    """Conformance programs that the build did not link, linked with the machine's own driver.

    They normally link with the simulator; where that does not build, hardware can still be asked.
    """
    missing = [n for n in harness.program_names() if not (setup.build / "tests" / n).exists()]
    if not missing:
        return
    common = ["c++", "-std=c++20", "-O1", "-pthread", "-rdynamic", "-Wl,-z,lazy"]
    common += ["-I", str(setup.build / "gen"), "-I", str(harness.FOLDER.parent)]
    drivers = _driver_files()

    def compile_one(name: str) -> str:
        command = [*common, harness.FOLDER / f"{name}.cpp", "-o", setup.build / "tests" / name]
        return run([*command, *drivers, "-ldl"], os.environ, setup.left_s(120)).stderr

    (setup.build / "tests").mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = dict(zip(missing, pool.map(compile_one, missing), strict=True))
    failed = [n for n in missing if not (setup.build / "tests" / n).exists()]
    report.judge(
        "build",
        "programs linked with the driver",
        "failed" if failed else "same",
        f"{len(missing) - len(failed)} of {len(missing)}; "
        + "; ".join(f"{name}: {complaints[name][:200]}" for name in failed[:3]),
    )
