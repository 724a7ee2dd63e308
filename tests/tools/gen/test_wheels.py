"""Pinned wheels: fetched once, believed only by their hash, and one clear line when they cannot be.

pip is replaced by a script that copies from a shelf; everything else is real.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from gen import wheels
from gen.errors import HookgenError

# Stands in for `python -m pip download ... --dest=DIR --requirement=FILE`.
FAKE_PIP = """#!{python}
import pathlib, shutil, sys
options = dict(word.split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
wanted = pathlib.Path(options["--requirement"]).read_text().splitlines()
with open({log!r}, "a") as log:
    print(*wanted, file=log)
for line in wanted:
    word, pinned = line.split(" --hash=sha256:")
    wheel = pathlib.Path({shelf!r}) / (word + ".whl")
    if not wheel.exists():
        print("WARNING: noise", file=sys.stderr)
        sys.exit("ERROR: No matching distribution found for " + word)
    shutil.copy(wheel, options["--dest"])
"""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A package index of invented wheels, and what pip was asked for."""

    folder: Path
    log: Path

    def put(self, project: str, version: str, files: dict[str, str]) -> wheels.Pin:
        path = self.folder / f"{project}=={version}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        release = ".".join(version.split(".")[:2])
        return wheels.Pin(release, project, version, digest, len(content))

    def asked(self) -> list[str]:
        """One line for each call, its wheels without their hashes."""
        if not self.log.exists():
            return []
        return re.sub(r" --hash=\S+", "", self.log.read_text(encoding="utf-8")).splitlines()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    found = Shelf(tmp_path / "shelf", tmp_path / "asked.txt")
    found.folder.mkdir()
    script = tmp_path / "python"
    text = FAKE_PIP.format(python=sys.executable, log=str(found.log), shelf=str(found.folder))
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return found


CUDA_H = {"nvidia/cu13/include/cuda.h": "cuda"}


def test_only_wanted_headers_leave_the_wheel(shelf: Shelf, tmp_path: Path) -> None:
    pins = [
        shelf.put(
            "runtime",
            "13.5.1",
            {**CUDA_H, "nvidia/cu13/include/cuda_fp16.h": "", "nvidia/cu13/lib/cuda.h": "no"},
        ),
        shelf.put("nvml", "13.5.2", {"nvidia/nvml_dev/include/nvml.h": "nvml"}),
    ]

    (found,) = wheels.header_sets(pins, tmp_path / "cache")

    assert found.version == "13.5"
    assert dict(found.files) == {"cuda.h": b"cuda", "nvml.h": b"nvml"}


def test_releases_come_oldest_first(shelf: Shelf, tmp_path: Path) -> None:
    pins = [shelf.put("runtime", version, CUDA_H) for version in ("13.5.1", "9.2.1", "12.10.1")]

    found = wheels.header_sets(pins, tmp_path / "cache")

    assert [item.version for item in found] == ["9.2", "12.10", "13.5"]


def test_pip_is_asked_once_per_version_of_a_project_and_never_again(
    shelf: Shelf, tmp_path: Path
) -> None:
    pins = [
        shelf.put("runtime", "13.5.1", CUDA_H),
        shelf.put("nvml", "13.5.1", {}),
        shelf.put("runtime", "13.2.1", CUDA_H),
    ]

    wheels.header_sets(pins, tmp_path / "cache")
    wheels.header_sets(pins, tmp_path / "cache")

    # Two versions of a project in one call would be refused by pip.
    assert shelf.asked() == ["runtime==13.5.1 nvml==13.5.1", "runtime==13.2.1"]


@pytest.mark.parametrize("damage", [b"", b"x" * 100])
def test_damaged_cache_is_fetched_again(shelf: Shelf, tmp_path: Path, damage: bytes) -> None:
    pin = shelf.put("runtime", "13.5.1", CUDA_H)
    cache = tmp_path / "cache"
    wheels.header_sets([pin], cache)
    (cache / f"{pin.sha256}.whl").write_bytes(damage)

    (found,) = wheels.header_sets([pin], cache)

    assert found.files["cuda.h"] == b"cuda"
    assert len(shelf.asked()) == 2


def test_wheel_of_the_right_size_and_another_content_is_not_believed(
    shelf: Shelf, tmp_path: Path
) -> None:
    pin = shelf.put("runtime", "13.5.1", CUDA_H)
    cache = tmp_path / "cache"
    wheels.header_sets([pin], cache)
    (cache / f"{pin.sha256}.whl").write_bytes(b"x" * pin.size)

    assert wheels.header_sets([pin], cache)[0].files["cuda.h"] == b"cuda"


def test_file_with_another_hash_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    pin = shelf.put("runtime", "13.5.1", CUDA_H)
    shelf.put("runtime", "13.5.1", {"nvidia/cu13/include/cuda.h": "evil"})

    with pytest.raises(HookgenError, match=r"runtime==13\.5\.1 does not have its pinned sha256"):
        wheels.header_sets([pin], tmp_path / "cache")

    assert list((tmp_path / "cache").iterdir()) == []


def test_pip_is_told_which_of_several_wheels_is_meant(shelf: Shelf, tmp_path: Path) -> None:
    pin = shelf.put("runtime", "13.5.1", CUDA_H)

    wheels.header_sets([pin], tmp_path / "cache")

    told = shelf.log.read_text(encoding="utf-8")
    assert told == f"runtime==13.5.1 --hash=sha256:{pin.sha256}\n"


def test_pip_failure_is_one_line_that_says_why(shelf: Shelf, tmp_path: Path) -> None:
    pin = shelf.put("runtime", "13.5.1", CUDA_H)
    (shelf.folder / "runtime==13.5.1.whl").unlink()

    with pytest.raises(HookgenError) as caught:
        wheels.header_sets([pin], tmp_path / "cache")

    text = str(caught.value)
    assert "pip cannot fetch runtime==13.5.1: No matching distribution found" in text
    assert "\n" not in text
    assert "--cuda-include" in text


def test_unwritable_cache_is_one_clear_error(shelf: Shelf, tmp_path: Path) -> None:
    pin = shelf.put("runtime", "13.5.1", CUDA_H)
    (tmp_path / "cache").write_text("a file, not a folder", encoding="utf-8")

    with pytest.raises(HookgenError, match="XDG_CACHE_HOME"):
        wheels.header_sets([pin], tmp_path / "cache")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("/somewhere", lambda _home: Path("/somewhere/gpufence/headers")),
        ("relative", lambda home: home / ".cache/gpufence/headers"),
        ("", lambda home: home / ".cache/gpufence/headers"),
    ],
)
def test_cache_lies_where_the_desktop_specification_says(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
    expected: Callable[[Path], Path],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", variable)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert wheels.cache_folder() == expected(tmp_path)


def test_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)

    with pytest.raises(HookgenError, match="Set XDG_CACHE_HOME"):
        wheels.cache_folder()


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema": 2, "wheels": []}', '{"schema": 1, "wheels": [{"size": 1}]}']
)
def test_malformed_pins_are_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "headers.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(HookgenError, match=r"headers\.json"):
        wheels.read_pins(path)


def test_installed_toolkit_states_its_version(tmp_path: Path) -> None:
    (tmp_path / "cuda.h").write_text("#define CUDA_VERSION 13050\n", encoding="utf-8")
    (tmp_path / "cuda_runtime.h").write_text("", encoding="utf-8")
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "nvml.h").write_text("nvml", encoding="utf-8")

    found = wheels.installed(tmp_path, other)

    assert (found.version, sorted(found.files)) == ("13.5", ["cuda.h", "nvml.h"])


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, r"no cuda\.h in"),
        ({"cuda.h": "#define CUDA_VERSION 13050\n"}, r"no nvml\.h in"),
        ({"cuda.h": "", "nvml.h": ""}, "states no CUDA_VERSION"),
    ],
)
def test_folder_that_is_no_toolkit_is_refused(
    tmp_path: Path, files: dict[str, str], complaint: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(HookgenError, match=complaint):
        wheels.installed(tmp_path, tmp_path)


def test_committed_pins_name_three_wheels_a_release() -> None:
    path = Path(__file__).resolve().parents[3] / "lib" / "api" / "headers.json"
    pins = wheels.read_pins(path)

    releases: dict[str, int] = {}
    for pin in pins:
        releases[pin.header_version] = releases.get(pin.header_version, 0) + 1
    assert set(releases.values()) == {3}
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == 1
