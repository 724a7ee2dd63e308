"""What only compiled files can show: a release of ci/release, in the folder GPUFENCE_RELEASE.

ci/release dist && GPUFENCE_RELEASE=dist ci/test tests/release
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from findsyms import cli as findsyms
from releasing import binaries

from .conftest import MACHINE, REPO, VERSION, Release, c_compiler, runs_alone

CMAKE = REPO / ".venv" / "bin" / "cmake"


@pytest.fixture
def libraries(released: Release, tmp_path: Path) -> dict[str, Path]:
    """The folder of each machine's wheel, unpacked."""
    found = {}
    for machine in binaries.MACHINES:
        found[machine] = tmp_path / machine
        with zipfile.ZipFile(released.one(f"manylinux2014_{machine}.whl")) as wheel:
            wheel.extractall(found[machine])
    return found


def test_the_checksums_are_those_of_the_files(released: Release) -> None:
    lines = released.content["SHA256SUMS"].decode().splitlines()

    assert dict(reversed(line.split("  ")) for line in lines) == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in released.content.items()
        if name != "SHA256SUMS"
    }


@pytest.mark.parametrize("machine", binaries.MACHINES)
def test_the_libraries_keep_their_rules_with_glibc_2_17(
    libraries: dict[str, Path], machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("libgpufence.so", "libgpufence-addpath.so"):
        path = libraries[machine] / "gpufence" / "lib" / name
        assert findsyms.main(["check", str(path), "--glibc", "2.17"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("machine", binaries.MACHINES)
def test_no_binary_needs_more_or_tells_where_it_was_built(
    libraries: dict[str, Path], machine: str
) -> None:
    found = [*libraries[machine].rglob("*.so*")]
    binaries_only = [path for path in found if path.read_bytes()[:4] == b"\x7fELF"]
    assert len(binaries_only) == 5

    # Wherever the release was made, zig lay in a folder of this name.
    binaries.prove(binaries_only, REPO, Path("site-packages"))


def test_the_wheel_alone_runs_a_program_inside_a_limit(released: Release, tmp_path: Path) -> None:
    runs_alone(released.one(f"manylinux2014_{MACHINE}.whl"), tmp_path)


def test_the_images_program_needs_nothing_else(released: Release, tmp_path: Path) -> None:
    name = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
    with tarfile.open(released.one(f"node-.*-{name}")) as archive:
        archive.extractall(tmp_path / "root")
    root, target = tmp_path / "root", tmp_path / "target"
    target.mkdir()

    # No interpreter in the program, so no loader and no C library of the image.
    text = subprocess.check_output(
        ["readelf", "--program-headers", root / "bin/install"], text=True
    )
    subprocess.run([root / "bin/install", root / "gpufence", target], env={}, check=True)

    assert "INTERP" not in text
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        path.name: path.read_bytes() for path in (root / "gpufence").iterdir()
    }


def test_the_sources_build_with_cmake_and_a_compiler(released: Release, tmp_path: Path) -> None:
    compiler = c_compiler()
    with tarfile.open(released.one("cmake.tar.gz")) as archive:
        archive.extractall(tmp_path)
    (tree,) = tmp_path.iterdir()
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    # Nothing on PATH but what belongs to the compiler; make comes with it.
    env = {name: os.environ[name] for name in os.environ if name.startswith(("CCACHE_", "CMAKE_C"))}
    env |= {"PATH": "/usr/bin:/bin", "CC": compiler}

    for words in (
        ["-S", tree / "lib", "-B", build, "-DCMAKE_BUILD_TYPE=Release",
         "-DPython3_EXECUTABLE=/bin/false"],
        ["--build", build, "--parallel", "2"],
        ["--install", build, "--prefix", prefix],
    ):  # fmt: skip
        subprocess.run([CMAKE, *words], env=env, check=True, capture_output=True)

    installed = prefix / "gpufence" / "lib" / "libgpufence.so"
    assert findsyms.main(["check", str(installed)]) == 0
    assert tree.name == f"gpufence-{VERSION}-cmake"
