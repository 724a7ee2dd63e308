"""A soname is found where ld.so would find it, then where drivers hide from ld.so."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from findsyms import drivers, locate, targets, vet
from findsyms.errors import UnreadableError

from .conftest import DEBUGGER, ElfSpec, WriteElf, elf_bytes, functions

SONAME = "libcuda.so.1"
DRIVER = ElfSpec(functions("cuInit", *DEBUGGER))


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def cache(entries: list[tuple[str, str]], *, old_header: bool = False) -> bytes:
    """An ld.so.cache as ldconfig writes it: entries, then strings, counted from the new header."""
    strings_at = 48 + 24 * len(entries)
    table, strings = b"", b""
    for name, target in entries:
        key = strings_at + len(strings)
        strings += name.encode() + b"\0"
        value = strings_at + len(strings)
        strings += target.encode() + b"\0"
        table += struct.pack("<iIIIQ", 0x303, key, value, 0, 0)
    head = struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(entries), len(strings))
    old = b"ld.so-1.7.0\0" + struct.pack("<I", 0) if old_header else b""
    return old + head + table + strings


def found(root: Path, environ: dict[str, str] | None = None, name: str = SONAME) -> list[str]:
    paths = locate.candidates(name, "x86_64", environ or {}, root)
    return [str(path.relative_to(root)) for path in paths]


def test_the_order_is_that_of_ld_so_then_driver_folders(tmp_path: Path) -> None:
    places = [
        "listed/libcuda.so.1",
        "opt/cached/libcuda.so.1",
        "usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "usr/lib64/libcuda.so.1",
        "usr/local/nvidia/lib64/libcuda.so.1",
        "run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
        "usr/lib/wsl/lib/libcuda.so.1",
        "usr/lib/wsl/drivers/nv_1/libcuda.so.1.1",
    ]
    for place in reversed(places):
        put(tmp_path / place)
    put(tmp_path / "etc/ld.so.cache", cache([(SONAME, "/opt/cached/libcuda.so.1")]))

    assert found(tmp_path, {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}/listed"}) == places


@pytest.mark.parametrize("old_header", [False, True])
def test_the_cache_is_read_in_both_layouts(tmp_path: Path, old_header: bool) -> None:
    entries = [("libcuda.so.1.1", "/a"), (SONAME, "/b"), (SONAME, "/c"), ("xlibcuda.so.1", "/d")]
    path = put(tmp_path / "cache", cache(entries, old_header=old_header))

    assert locate.cached(SONAME, path) == ["/b", "/c"]


@pytest.mark.parametrize("content", [b"", b"glibc-ld.so.cache1.1", cache([(SONAME, "/b")])[:60]])
def test_a_broken_cache_finds_nothing(tmp_path: Path, content: bytes) -> None:
    assert locate.cached(SONAME, put(tmp_path / "cache", content)) == []
    assert locate.cached(SONAME, tmp_path / "none") == []


def test_an_empty_entry_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / SONAME)
    monkeypatch.chdir(tmp_path)

    paths = list(locate.candidates(SONAME, "x86_64", {"LD_LIBRARY_PATH": "/nowhere:"}, tmp_path))

    assert paths == [Path(SONAME)]


def test_foreign_files_are_passed_by_as_ld_so_does(tmp_path: Path) -> None:
    put(tmp_path / "listed/libcuda.so.1", elf_bytes(ElfSpec(DRIVER.exports, machine=183)))
    right = put(tmp_path / "usr/lib64/libcuda.so.1", elf_bytes(DRIVER))
    environ = {"LD_LIBRARY_PATH": str(tmp_path / "listed")}

    target = targets.find(SONAME, targets.Places("x86_64", environ, tmp_path))

    assert isinstance(target, targets.FileTarget)
    assert target.path == right


def test_a_broken_file_is_not_passed_by(tmp_path: Path) -> None:
    put(tmp_path / "lib64/libcuda.so.1", b"\x7fELF broken")
    put(tmp_path / "usr/local/nvidia/lib64/libcuda.so.1", elf_bytes(DRIVER))

    with pytest.raises(UnreadableError, match=r"lib64/libcuda.so.1: the file is truncated"):
        targets.find(SONAME, targets.Places("x86_64", {}, tmp_path))


def test_wsl_leads_past_the_shim_to_the_driver(tmp_path: Path) -> None:
    shim = ElfSpec(functions("cuInit"), text=b"\0libdxcore.so\0")
    put(tmp_path / "usr/lib/wsl/lib/libcuda.so.1", elf_bytes(shim))
    real = put(tmp_path / "usr/lib/wsl/drivers/nv_1/libcuda.so.1.1", elf_bytes(DRIVER))

    target = targets.find(SONAME, targets.Places("x86_64", {}, tmp_path))

    assert isinstance(target, targets.FileTarget)
    assert target.path == real


def test_nothing_found_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="not found on LD_LIBRARY_PATH"):
        targets.find(SONAME, targets.Places("x86_64", {}, tmp_path))


def look_alike(write_elf: WriteElf, spec: ElfSpec) -> str:
    path = write_elf("lib.so", spec)
    with pytest.raises(UnreadableError) as caught:
        drivers.library_of(path, vet.vet(path))
    return caught.value.why


def test_look_alikes_are_named(write_elf: WriteElf) -> None:
    nvml = "libnvidia-ml.so.1"
    stub_text = b"this is a stub library\0"

    assert "stub" in look_alike(write_elf, ElfSpec(functions("cuInit")))
    assert "stub" in look_alike(write_elf, ElfSpec(functions("nvmlInit"), nvml, text=stub_text))
    assert "WSL's shim" in look_alike(write_elf, ElfSpec(DRIVER.exports, text=b"/libdxcore.so\0"))
    assert "soname is 'libz.so.1'" in look_alike(
        write_elf, ElfSpec(functions("inflate"), "libz.so.1")
    )
    assert "has no soname" in look_alike(write_elf, ElfSpec(functions("inflate"), ""))


def test_a_driver_is_known_by_soname_or_by_what_it_exports(write_elf: WriteElf) -> None:
    for soname, name, library in (
        ("libcuda.so.1.1", "cuInit", "cuda"),
        ("libnvidia-ml.so", "nvmlInit", "nvml"),
        ("", "cuDriverGetVersion", "cuda"),
        ("", "nvmlSystemGetDriverVersion", "nvml"),
    ):
        path = write_elf("lib.so", ElfSpec(functions(name, *DEBUGGER), soname))

        assert drivers.library_of(path, vet.vet(path)) == library


NEWEST_WINS = b"\x00470.57.01\0xx550.163.01\0 550.54.09\0 535.86.06\0"
CHUNK = drivers._CHUNK_BYTES


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("libcuda.so.550.163.01", b"\x00470.57.01\0", "550.163.01"),
        ("libcuda.so.390.157", b"", "390.157"),
        ("libcuda.so.1", NEWEST_WINS, "550.163.01"),
        ("libnvidia-ml.so.1", b"\x00590.10.01\0\x0012.550.163.01\0", "550.163.01"),
        ("libcuda.so.1", b"1.2.3\0 10.1.550.163.01\0 1550.163.01\0 550.163.012\0", ""),
        ("libcuda.so.1", b"x" * (CHUNK - 400) + b"\x00580.159.04\0".rjust(500), "580.159.04"),
        ("libcuda.so.1", b"", ""),
    ],
)
def test_the_driver_version_comes_from_name_or_text(
    tmp_path: Path, name: str, text: bytes, version: str
) -> None:
    assert drivers.driver_version(put(tmp_path / name, text or b"x")) == version


def test_the_driver_version_comes_from_the_links_target(tmp_path: Path) -> None:
    put(tmp_path / "libcuda.so.535.261.03")
    (tmp_path / SONAME).symlink_to("libcuda.so.535.261.03")

    assert drivers.driver_version(tmp_path / SONAME) == "535.261.03"


def test_a_version_across_a_chunk_border_is_found_whole(tmp_path: Path) -> None:
    for shift in range(-14, 3):
        text = b"x" * (CHUNK + shift) + b"\x00580.159.04\0" + b"x" * 40

        assert drivers.driver_version(put(tmp_path / SONAME, text)) == "580.159.04"
