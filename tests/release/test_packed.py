"""The files of a release: what is in them, the same bytes twice, one version everywhere."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from gpufence import cli
from releasing import archives, manuals
from releasing.archives import Entry

from .conftest import EPOCH, MACHINE, REPO, VERSION, Release, c_compiler, pack, runs_alone

LIBRARIES = ["ld.so.preload", "ld.so.preload.addpath", "libgpufence-addpath.so", "libgpufence.so"]


def in_tar(content: bytes) -> dict[str, bytes]:
    """The files of a tar, compressed or not."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = (member for member in archive if member.isfile())
        return {each.name: archive.extractfile(each).read() for each in files}  # type: ignore[union-attr]


def in_deb(content: bytes) -> dict[str, dict[str, bytes]]:
    """The members of a .deb, read by the format's own description rather than by our writer."""
    assert content.startswith(b"!<arch>\n")
    found, at = {}, 8
    while at < len(content):
        head = content[at : at + 60].decode("ascii")
        size = int(head[48:58])
        found[head[:16].strip()] = content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    assert list(found) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    return {name: in_tar(found[name]) for name in ("control.tar.gz", "data.tar.gz")}


def test_a_release_is_these_files(packed: Release) -> None:
    tags = [f"manylinux_2_17_{name}.manylinux2014_{name}" for name in ("aarch64", "x86_64")]

    assert sorted(packed.content) == sorted(
        [
            f"gpufence-{VERSION}-cmake.tar.gz",
            f"gpufence-{VERSION}.cdx.json",
            f"gpufence-{VERSION}.tar.gz",
            f"gpufence-node-{VERSION}-amd64.tar.gz",
            f"gpufence-node-{VERSION}-arm64.tar.gz",
            f"gpufence-node-{VERSION}.oci.tar",
            f"gpufence_{VERSION}_amd64.deb",
            f"gpufence_{VERSION}_arm64.deb",
            *(f"gpufence-{VERSION}-py3-none-{tag}.whl" for tag in tags),
        ]
    )


def test_it_is_packed_alike_wherever_and_whenever(packed: Release, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a folder of another length"

    again = pack(elsewhere)

    assert {name: content == again[name] for name, content in packed.content.items()} == {
        name: True for name in again
    }


def test_no_file_tells_where_it_was_made(packed: Release) -> None:
    place = str(packed.folder.parent).encode()
    for name, content in packed.content.items():
        opened = gzip.decompress(content) if name.endswith(".gz") else content
        assert place not in opened, name
    for part in in_deb(packed.one("amd64.deb").read_bytes()).values():
        for name, content in part.items():
            assert place not in content, name
    with zipfile.ZipFile(packed.one("x86_64.whl")) as wheel:
        assert [name for name in wheel.namelist() if place in wheel.read(name)] == []


def test_every_file_has_the_projects_version(packed: Release) -> None:
    control = in_deb(packed.one("amd64.deb").read_bytes())["control.tar.gz"]["./control"].decode()
    sdist = in_tar(packed.one(rf"{VERSION}\.tar\.gz$").read_bytes())
    parts = json.loads(packed.one("cdx.json").read_bytes())

    assert f"\nVersion: {VERSION}\n" in control
    assert f"\nVersion: {VERSION}\n" in sdist[f"gpufence-{VERSION}/PKG-INFO"].decode()
    assert parts["metadata"]["component"]["version"] == VERSION
    with zipfile.ZipFile(packed.one("x86_64.whl")) as wheel:
        metadata = wheel.read(f"gpufence-{VERSION}.dist-info/METADATA").decode()
    assert f"\nVersion: {VERSION}\n" in metadata


def test_the_wheel_is_whole_and_its_record_right(packed: Release) -> None:
    with zipfile.ZipFile(packed.one("aarch64.whl")) as wheel:
        names = wheel.namelist()
        record = wheel.read(f"gpufence-{VERSION}.dist-info/RECORD").decode().splitlines()
        head = wheel.read(f"gpufence-{VERSION}.dist-info/WHEEL").decode()

    shipped = (*LIBRARIES, "libgpufence-limits.so")
    assert {f"gpufence/lib/{name}" for name in shipped} <= set(names)
    assert "gpufence/sim/libcuda.so.1" in names
    # pip reads a wheel from its end.
    assert ".dist-info/" in names[-1]
    assert sorted(line.split(",")[0] for line in record) == sorted(names)
    assert "Root-Is-Purelib: false\n" in head
    assert "Tag: py3-none-manylinux_2_17_aarch64\nTag: py3-none-manylinux2014_aarch64\n" in head


def test_the_wheel_alone_runs_a_program_inside_a_limit(packed: Release, tmp_path: Path) -> None:
    runs_alone(packed.one(f"manylinux2014_{MACHINE}.whl"), tmp_path)


def test_the_debian_package_is_what_dpkg_takes(packed: Release, tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("this machine has no dpkg-deb")
    name = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
    package = packed.one(rf"_{name}\.deb$")

    fields = subprocess.check_output(["dpkg-deb", "--field", package], text=True)
    listed = subprocess.check_output(["dpkg-deb", "--contents", package], text=True)
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "root"], check=True)

    assert f"Architecture: {name}\n" in fields
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}
    root = tmp_path / "root"
    sums = in_deb(package.read_bytes())["control.tar.gz"]["./md5sums"].decode()
    for line in sums.splitlines():
        digest, path = line.split("  ")
        assert hashlib.md5((root / path).read_bytes()).hexdigest() == digest, path
    # Its program looks below /usr; here the same from the folder that it was unpacked in.
    program = (root / "usr/bin/gpufence").read_text(encoding="utf-8")
    (tmp_path / "gpufence").write_text(program.replace('"/usr/', f'"{root}/usr/'))
    env = {"PATH": "/usr/bin:/bin", "GPUFENCE_STATE_DIR": str(tmp_path)}
    # -S: a gpufence that is installed for this Python is not meant.
    words = [sys.executable, "-S", tmp_path / "gpufence"]
    version = subprocess.check_output([*words, "--version"], env=env, text=True)
    run = [*words, "run", "--sim", "--", *words, "doctor"]
    doctor = subprocess.check_output(run, env=env, text=True, stderr=subprocess.DEVNULL)
    assert version == f"gpufence {VERSION}\n"
    assert f"\nlibrary  {root}/usr/lib/gpufence/libgpufence.so\n" in doctor
    assert "\nlookups  fenced\n" in doctor


def test_the_package_takes_the_preload_line_away_with_itself(packed: Release) -> None:
    control = in_deb(packed.one("amd64.deb").read_bytes())["control.tar.gz"]
    script = control["./prerm"].decode()

    assert "gpufence install /usr/lib/gpufence --preload /etc/ld.so.preload --remove" in script
    assert '[ "$1" = remove ]' in script
    assert "find /usr/share/gpufence -name __pycache__ -prune -exec rm -r" in script


def test_the_packages_unit_starts_the_packages_program(packed: Release) -> None:
    data = in_deb(packed.one("amd64.deb").read_bytes())["data.tar.gz"]
    unit = data["./usr/lib/systemd/system/gpufence-export.service"].decode()

    assert "\nExecStart=/usr/bin/gpufence export\n" in unit
    assert "./usr/bin/gpufence" in data


def test_the_image_is_an_oci_layout_for_both_machines(packed: Release) -> None:
    blobs = in_tar(packed.one("oci.tar").read_bytes())

    def blob(told: dict[str, Any]) -> bytes:
        content = blobs[f"blobs/{told['digest'].replace(':', '/')}"]
        assert told["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert told["size"] == len(content)
        return content

    assert json.loads(blobs["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (tagged,) = json.loads(blobs["index.json"])["manifests"]
    assert tagged["annotations"] == {
        "org.opencontainers.image.ref.name": f"gpufence-node:{VERSION}"
    }
    index = json.loads(blob(tagged))
    machines = [each["platform"]["architecture"] for each in index["manifests"]]
    assert machines == ["arm64", "amd64"]
    for each in index["manifests"]:
        manifest = json.loads(blob(each))
        config = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        root = gzip.decompress(blob(layer))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(root).hexdigest()}"]
        assert config["architecture"] == each["platform"]["architecture"]
        assert config["config"]["Entrypoint"] == ["/bin/install", "/gpufence"]
        assert sorted(in_tar(root)) == sorted(
            ["LICENSE", "bin/install", *(f"gpufence/{name}" for name in LIBRARIES)]
        )


def test_the_dockerfile_makes_the_same_image(packed: Release) -> None:
    text = (REPO / "deploy" / "image" / "Dockerfile").read_text(encoding="utf-8")
    blobs = in_tar(packed.one("oci.tar").read_bytes())
    layer = packed.one("node-.*-amd64").read_bytes()

    assert "\nFROM scratch\n" in text
    assert "\nADD gpufence-node-${VERSION}-${TARGETARCH}.tar.gz /\n" in text
    assert '\nENTRYPOINT ["/bin/install", "/gpufence"]\n' in text
    assert f"blobs/sha256/{hashlib.sha256(layer).hexdigest()}" in blobs


def test_the_sources_for_cmake_need_no_python(packed: Release) -> None:
    names = set(in_tar(packed.one("cmake.tar.gz").read_bytes()))
    top = f"gpufence-{VERSION}-cmake"

    assert {f"{top}/{name}" for name in ("BUILD.txt", "LICENSE", "lib/CMakeLists.txt")} <= names
    assert f"{top}/gen/driver_abi.h" in names
    assert {name for name in names if name.endswith(".py")} == set()


def test_the_sdist_holds_what_the_wheel_is_made_of(packed: Release) -> None:
    names = set(in_tar(packed.one(rf"{VERSION}\.tar\.gz$").read_bytes()))
    top = f"gpufence-{VERSION}"
    tracked = subprocess.check_output(
        ["git", "ls-files", "lib", "tools", "templates", "pyproject.toml", "LICENSE"],
        cwd=REPO,
        text=True,
    ).splitlines()

    wanted = {f"{top}/{name}" for name in tracked if (REPO / name).is_file()}
    assert wanted - names == set()


def test_the_parts_list_names_every_file_and_its_hash(packed: Release) -> None:
    document = json.loads(packed.one("cdx.json").read_bytes())
    told = {
        part["name"]: part["hashes"][0]["content"]
        for part in document["components"]
        if part["type"] == "file"
    }
    tools = {part["name"] for part in document["metadata"]["tools"]["components"]}
    libraries = {
        part["name"]: part["scope"] for part in document["components"] if part["type"] == "library"
    }

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert told == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in packed.content.items()
        if not name.endswith(".cdx.json")
    }
    assert {"ziglang", "cmake", "scikit-build-core"} <= tools
    required = {name for name, scope in libraries.items() if scope == "required"}
    assert {"lief", "shtab"} <= required
    assert {"textual", "grpcio"} <= {
        name for name, scope in libraries.items() if scope == "optional"
    }
    (depends,) = (each["dependsOn"] for each in document["dependencies"])
    assert depends == sorted(f"pkg:pypi/{name}" for name in required)


def test_every_command_has_a_page_with_every_option() -> None:
    pages = manuals.pages(VERSION, EPOCH)

    assert {"gpufence.1", "findsyms.1", "findsyms-check.1", "hookgen.1"} <= set(pages)
    for name, (purpose, parser) in cli.commands().items():
        page = pages[f"gpufence-{name}.1"].decode().replace("\\-", "-")
        assert f'.TH GPUFENCE-{name.upper()} 1 "2023-11-14" "gpufence {VERSION}"' in page
        assert f"gpufence-{name} - {purpose.replace('-', '-')}" in page
        flags = {flag for action in parser._actions for flag in action.option_strings}
        assert {flag for flag in flags if flag not in page} == set(), name


def test_the_pages_are_good_roff() -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("this machine has no mandoc")
    for name, page in manuals.pages(VERSION, EPOCH).items():
        words = ["mandoc", "-T", "lint", "-W", "warning"]
        done = subprocess.run(words, input=page, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b""), name


def test_text_that_looks_like_a_request_stays_text() -> None:
    lines = list(manuals._text(".so /etc/passwd\n'br\nback\\slash\n\n    a  --literal\nrest"))

    assert lines == [
        "\\&.so /etc/passwd",
        "\\&'br",
        "back\\eslash",
        ".PP",
        ".nf",
        "    a  \\-\\-literal",
        ".fi",
        "rest",
    ]


def test_an_archive_depends_on_its_content_alone() -> None:
    tree = {"b/c": Entry(b"1", program=True), "a": Entry(b"22"), "l": Entry(target="a")}
    turned = dict(reversed(tree.items()))

    for pack_tree in (
        lambda each: archives.tar(each, EPOCH, top="t/"),
        lambda each: archives.zip_file({k: v for k, v in each.items() if not v.target}, EPOCH),
    ):
        assert pack_tree(tree) == pack_tree(turned)
    with tarfile.open(fileobj=io.BytesIO(archives.tar(tree, EPOCH, top="t/"))) as archive:
        told = [(m.name, m.mode, m.uid, m.gid, m.uname, m.mtime, m.linkname) for m in archive]
    assert told == [
        ("t/b", 0o755, 0, 0, "root", EPOCH, ""),
        ("t/a", 0o644, 0, 0, "root", EPOCH, ""),
        ("t/b/c", 0o755, 0, 0, "root", EPOCH, ""),
        ("t/l", 0o777, 0, 0, "root", EPOCH, "a"),
    ]


def test_the_images_program_installs_whole_files(tmp_path: Path) -> None:
    compiler = c_compiler()
    program = tmp_path / "install"
    words = [
        compiler,
        "-Wall",
        "-Wextra",
        "-Werror",
        REPO / "deploy/image/install.c",
        "-o",
        program,
    ]
    subprocess.run(words, check=True)
    source, target, shared = (tmp_path / name for name in ("source", "target", "shared"))
    for folder in (source, target, shared):
        folder.mkdir(mode=0o700)
    large = os.urandom(200_000)
    (source / "library.so").write_bytes(large)
    (source / "text").write_bytes(b"text\n")
    (target / "text").write_bytes(b"an older and longer text\n")
    with (target / "text").open("rb") as used:
        done = subprocess.run(
            [program, source, target, shared], umask=0o077, capture_output=True, text=True
        )
        # A program that has the old file open keeps it.
        assert used.read() == b"an older and longer text\n"

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        f"installed  {target}/library.so",
        f"installed  {target}/text",
    ]
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        "library.so": large,
        "text": b"text\n",
    }
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o644}
    assert shared.stat().st_mode & 0o7777 == 0o1777


def test_the_images_program_says_what_it_cannot_write(tmp_path: Path) -> None:
    compiler = c_compiler()
    program = tmp_path / "install"
    subprocess.run([compiler, REPO / "deploy/image/install.c", "-o", program], check=True)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"1")

    no_target = subprocess.run(
        [program, tmp_path / "source", tmp_path / "none"], capture_output=True, text=True
    )
    no_words = subprocess.run([program], capture_output=True, text=True)

    assert no_target.returncode == 1
    assert (
        f"'{tmp_path}/none/file' cannot be written: No such file or directory" in no_target.stderr
    )
    assert no_words.returncode == 2
