"""libgpufence-addpath.so in real programs: vgpu.rs's documented examples, and not its defects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.imitation import Imitation, require_namespaces

PROGRAM = "/usr/bin/env"


@pytest.fixture
def addpath(build: Path) -> Path:
    """The library under test."""
    return build / "lib" / "libgpufence-addpath.so"


def environment_of(
    addpath: Path, *command: str, **variables: bytes | str | None
) -> dict[bytes, bytes]:
    """What the last program of a chain finds, started with these variables and no others."""
    started = {"LD_PRELOAD": str(addpath), **variables}
    done = subprocess.run(
        [*command, PROGRAM, "-0"],
        env={name: value for name, value in started.items() if value is not None},
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == b""
    entries = done.stdout.split(b"\0")[:-1]
    pairs = [entry.split(b"=", 1) for entry in entries]
    assert len({name for name, _ in pairs}) == len(pairs)
    return {name: value for name, value in pairs}


# vgpu.rs's README and the tests of its library, each for the three variables that it knows.
@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize(
    ("old", "source", "new_path", "expected"),
    [
        (None, "TF_{}", "/new/path", "/new/path"),
        ("/existing/path", "TF_{}", "/existing/path", "/existing/path"),
        ("/existing/path", "TF_{}", "/new/path", "/existing/path:/new/path"),
        ("/existing/path", "TF_PREPEND_{}", "/new/path", "/new/path:/existing/path"),
        ("/existing/path", "TF_PREPEND_{}", "/existing/path", "/existing/path"),
        (None, "TF_PREPEND_{}", "/new/path", "/new/path"),
        ("/usr/bin:/bin", "TF_{}", "/usr/custom/bin", "/usr/bin:/bin:/usr/custom/bin"),
        ("/usr/bin:/bin", "TF_PREPEND_{}", "/opt/custom/bin", "/opt/custom/bin:/usr/bin:/bin"),
        ("/a:/new:/b", "TF_PREPEND_{}", "/new", "/a:/new:/b"),
    ],
)
def test_vgpu_rs_documented_examples_hold(
    addpath: Path, name: str, old: str | None, source: str, new_path: str, expected: str
) -> None:
    found = environment_of(addpath, **{name: old, source.format(name): new_path})

    assert found[name.encode()].decode() == expected


def test_the_readmes_line_works_through_a_shell(addpath: Path) -> None:
    line = "TF_PATH=/usr/custom/bin env | grep ^PATH="

    done = subprocess.run(
        ["sh", "-c", line],
        env={"LD_PRELOAD": str(addpath), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("PATH=/usr/bin:/bin:/usr/custom/bin\n", "")


@pytest.mark.parametrize(("prefix", "expected"), [("TF_", "{0}:{1}"), ("TF_PREPEND_", "{1}:{0}")])
def test_a_preload_is_added_for_the_children(
    addpath: Path, build: Path, prefix: str, expected: str
) -> None:
    other = build / "tests" / "interposer_plain.so"

    found = environment_of(addpath, **{f"{prefix}LD_PRELOAD": str(other)})

    assert found[b"LD_PRELOAD"].decode() == expected.format(addpath, other)


def test_a_path_that_both_sources_name_comes_last(addpath: Path) -> None:
    found = environment_of(addpath, PATH="/bin", TF_PATH="/x", TF_PREPEND_PATH="/x")

    assert found[b"PATH"] == b"/bin:/x"


def test_sources_stay_set(addpath: Path) -> None:
    found = environment_of(addpath, TF_PATH="/x", TF_PREPEND_LD_LIBRARY_PATH="/y")

    assert (found[b"TF_PATH"], found[b"TF_PREPEND_LD_LIBRARY_PATH"]) == (b"/x", b"/y")


# What vgpu.rs's library gets wrong.
@pytest.mark.parametrize(
    ("old", "source", "new_paths", "expected"),
    [
        (b"/a:/b", "TF_PATH", b"/b:/c:/a:/d", b"/a:/b:/c:/d"),
        (b"/a:/b", "TF_PREPEND_PATH", b"/b:/c:/d", b"/c:/d:/a:/b"),
        (b"/a", "TF_PATH", b"/c:/c", b"/a:/c"),
        (None, "TF_PATH", b"/c:/d:/c", b"/c:/d"),
        (b"/a", "TF_PATH", b"", b"/a"),
        (b"/a", "TF_PATH", b"::", b"/a"),
        (b"/a", "TF_PATH", b":/b:", b"/a:/b"),
        (b"", "TF_PATH", b"/b", b"/b"),
        (b"", "TF_PREPEND_PATH", b"/b", b"/b"),
        (b"/a:", "TF_PATH", b"/b", b"/a::/b"),
        (b":/a", "TF_PREPEND_PATH", b"/b", b"/b::/a"),
        (b"/\xff\xfe:/a", "TF_PATH", b"/\xc3", b"/\xff\xfe:/a:/\xc3"),
        (b"/a", "TF_PATH", b"/aa:/", b"/a:/aa:/"),
    ],
)
def test_components_are_compared_and_bytes_are_kept(
    addpath: Path, old: bytes | None, source: str, new_paths: bytes, expected: bytes
) -> None:
    found = environment_of(addpath, PATH=old, **{source: new_paths})

    assert found[b"PATH"] == expected


def test_an_empty_source_makes_no_variable(addpath: Path) -> None:
    found = environment_of(addpath, PATH=None, TF_PATH="", TF_LD_LIBRARY_PATH=":")

    assert b"PATH" not in found
    assert b"LD_LIBRARY_PATH" not in found


def test_both_separators_of_a_preload_list_are_seen(addpath: Path, build: Path) -> None:
    one, two, three = (
        str(build / "tests" / f"{name}.so")
        for name in ("interposer_plain", "next_plugin", "interposer")
    )

    found = environment_of(
        addpath, LD_PRELOAD=f"{addpath} {one}", TF_LD_PRELOAD=f"{one}:{two} {three}"
    )

    assert found[b"LD_PRELOAD"].decode() == f"{addpath} {one}:{two}:{three}"


def test_both_separators_of_a_library_path_are_seen(addpath: Path) -> None:
    found = environment_of(addpath, LD_LIBRARY_PATH="/a;/b", TF_LD_LIBRARY_PATH="/b;/c")

    assert found[b"LD_LIBRARY_PATH"] == b"/a;/b:/c"


def test_nested_programs_add_nothing_twice(addpath: Path) -> None:
    shells = ("/bin/sh", "-c", 'exec "$@"', "sh") * 3
    variables = {"PATH": "/bin", "TF_PATH": "/x:/y", "TF_PREPEND_PATH": "/p:/q"}

    once = environment_of(addpath, **variables)
    often = environment_of(addpath, *shells, PROGRAM, **variables)

    assert once[b"PATH"] == b"/p:/q:/bin:/x:/y"
    assert often[b"PATH"] == once[b"PATH"]


def test_without_its_variables_it_changes_nothing(addpath: Path) -> None:
    with_library = environment_of(addpath, PATH="/a::/b", LD_LIBRARY_PATH="", OTHER="TF_PATH=/x")

    assert with_library == {
        b"LD_PRELOAD": os.fsencode(addpath),
        b"PATH": b"/a::/b",
        b"LD_LIBRARY_PATH": b"",
        b"OTHER": b"TF_PATH=/x",
    }


def test_a_list_as_long_as_the_kernel_allows_is_read_in_a_moment(addpath: Path) -> None:
    many = ":".join(f"/{n}" for n in range(17000))

    found = environment_of(addpath, PATH=many, TF_PATH=many.replace("/", "/x"))

    kept = found[b"PATH"].decode()
    assert kept.startswith(many + ":/x0:/x1:")
    assert kept.count(":") == 16999 + 1024


def test_a_program_may_change_its_environment_afterwards(addpath: Path) -> None:
    code = (
        "import os; del os.environ['PATH']; os.environ['LD_LIBRARY_PATH'] = '/z';"
        "os.environ['NEW'] = '1'; os.execv('/usr/bin/env', ['env', '-0'])"
    )
    child = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"LD_PRELOAD": str(addpath), "TF_PATH": "/x", "TF_LD_LIBRARY_PATH": "/y"},
        capture_output=True,
        timeout=30,
        check=True,
    )
    found = dict(entry.split(b"=", 1) for entry in child.stdout.split(b"\0")[:-1])

    # The child loads the library, too: what was taken away or replaced is added once more.
    assert found[b"PATH"] == b"/x"
    assert found[b"LD_LIBRARY_PATH"] == b"/z:/y"
    assert found[b"NEW"] == b"1"


def test_a_privileged_program_is_left_alone(addpath: Path, tmp_path: Path) -> None:
    """Its loader takes LD_PRELOAD away; /etc/ld.so.preload brings the library in all the same."""
    root = tmp_path / "root"
    root.mkdir()
    require_namespaces(root)
    steps = 'cp "$0" /addpath.so; cp "$1" /env; chmod 4755 /env; exec setpriv --reuid=65534'
    steps += " --regid=65534 --clear-groups /env -0"
    container = Imitation(root, preload=[Path("/addpath.so")], shown=[addpath.parent])
    variables = {"PATH": os.environ["PATH"], "TF_LD_PRELOAD": "/evil.so", "TF_PATH": "/evil"}

    plain = subprocess.run(
        container.command("sh", "-ec", steps.replace("4755", "0755"), addpath, PROGRAM),
        env=variables, capture_output=True, timeout=30, check=True,
    ).stdout.split(b"\0")  # fmt: skip
    privileged = subprocess.run(
        container.command("sh", "-ec", steps, addpath, PROGRAM),
        env=variables, capture_output=True, timeout=30, check=True,
    ).stdout.split(b"\0")  # fmt: skip

    assert b"LD_PRELOAD=/evil.so" in plain
    assert b"LD_PRELOAD=/evil.so" not in privileged
    # setpriv, which is not privileged, had its PATH already.
    assert b"TF_LD_PRELOAD=/evil.so" in privileged
