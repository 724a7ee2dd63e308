"""The container's region as programs meet it: one line when there is no place, one limit."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from .charges import MIB
from .conftest import Finished, Sim

INVALID_VALUE = 1
# lib/src/state/owner.cpp and layout.h: every slot's byte.
LOCKS_AT = 1 << 40
SLOTS = 4096

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can change its uid or mount")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o1777)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def sim(sim: Sim) -> Sim:
    """A machine on which a context is small."""
    return sim.with_env(CONTEXT_BYTES="2m")


def limited(**env: str) -> dict[str, str]:
    """A limit that a context leaves 512 MiB of, and whatever else."""
    name = uuid.uuid4().hex  # another run may have left a region of this machine's own
    limit = str(2 * MIB + 512 * MIB)
    return {"GPUFENCE_MEMORY_LIMIT": limit, "GPUFENCE_CONTAINER": name, **env}


def unshared(sim: Sim, script: str, *options: str, **env: str) -> Finished:
    """limit_probe at the end of a script in namespaces of its own; skips where that is refused."""
    tool = shutil.which("unshare")
    if tool is None or subprocess.run([tool, *options, "true"], check=False).returncode != 0:
        pytest.skip(f"this machine does not allow `unshare {' '.join(options)}`")
    probe = sim.build / "tests" / "limit_probe"
    return sim.run(tool, *options, "sh", "-ec", script, probe, preload=True, env=limited(**env))


def refused_with(done: Finished) -> str:
    """The only line of a program whose cuInit was refused."""
    assert done.facts == {"init": INVALID_VALUE}
    (line,) = done.stderr.splitlines()
    return line


def with_read_only(*places: str) -> str:
    """Shell: a machine in /mnt, places where nothing can be written, and the probe."""
    mounts = [f"mount -t tmpfs -o ro none {place}" for place in places]
    return "; ".join(
        [
            "mount -t tmpfs none /run",
            "mkdir /run/gpufence",
            "mount -t tmpfs none /mnt",
            *mounts,
            'exec "$0"',
        ]
    )


@pytest.fixture
def in_mnt(sim: Sim) -> Sim:
    """The same machine with its file in a folder that the scripts mount anew."""
    if sim.build.is_relative_to("/tmp"):
        pytest.skip("the build lies in /tmp, which these tests hide")
    return Sim(sim.build, Path("/mnt/machine"), sim.env)


@needs_root
def test_where_nothing_can_be_written_one_line_says_what_to_do(in_mnt: Sim) -> None:
    done = unshared(in_mnt, with_read_only("/run/gpufence", "/dev/shm", "/tmp"), "--mount")

    line = refused_with(done)
    assert "no place for the container's shared region" in line
    assert "GPUFENCE_STATE_DIR" in line
    assert "GPUFENCE_SCOPE=process" in line


@needs_root
@pytest.mark.parametrize(
    ("places", "scope"),
    [(("/run/gpufence", "/dev/shm"), ""), (("/run/gpufence", "/dev/shm", "/tmp"), "process")],
)
def test_the_limit_holds_in_the_next_place_or_for_each_process(
    in_mnt: Sim, places: tuple[str, ...], scope: str
) -> None:
    env = {"GPUFENCE_SCOPE": scope} if scope else {}

    done = unshared(in_mnt, with_read_only(*places), "--mount", **env)

    assert done.facts["granted 0"] == 512 * MIB
    assert done.stderr == ""


@needs_root
def test_a_full_file_system_is_one_line(in_mnt: Sim, folder: Path) -> None:
    script = (
        f"mount -t tmpfs none /mnt; mount -t tmpfs -o size=380k none {folder}; "
        "mount -t tmpfs -o ro none /dev/shm; mount -t tmpfs none /run; mkdir /run/gpufence; "
        "mount -t tmpfs -o ro none /run/gpufence; mount -t tmpfs -o ro none /tmp; "
        'exec "$0"'
    )

    line = refused_with(unshared(in_mnt, script, "--mount", GPUFENCE_STATE_DIR=str(folder)))

    assert "cuInit fails on purpose" in line


def test_the_region_is_never_a_standard_stream(sim: Sim, tmp_path: Path) -> None:
    """A daemon closes 0 to 2, and whatever prints afterwards writes to these numbers."""
    env = limited(GPUFENCE_STATE_DIR=str(tmp_path / "state"))

    done = sim.run("closed_streams", preload=True, env=env)

    assert done.facts == {"init": 0, "0": 0, "1": 0, "2": 0}


def test_a_full_table_is_one_line(sim: Sim, tmp_path: Path) -> None:
    env = limited(GPUFENCE_STATE_DIR=str(tmp_path / "state"))
    sim.run("limit_probe", preload=True, env=env)
    (region,) = (tmp_path / "state").glob("gpufence-*")
    everybody = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, LOCKS_AT, SLOTS, 0)

    with region.open("r+b") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, everybody)
        full = sim.run("limit_probe", preload=True, env=env)
    after = sim.run("limit_probe", preload=True, env=env)

    assert "no free slot" in refused_with(full)
    assert after.facts["granted 0"] == 512 * MIB


@needs_root
def test_containers_that_share_a_folder_share_no_limit(in_mnt: Sim) -> None:
    """Without a name of its own, a container is its pid namespace and its root."""
    beside = 'unshare --pid --fork --mount-proc "$0"'
    count = "ls /mnt/state | wc -l"
    steps = ['"$0" >/mnt/out', '"$0" >/mnt/out', count, f"{beside} >/mnt/out", count]
    script = with_read_only("/run/gpufence", "/dev/shm", "/tmp").removesuffix('exec "$0"')

    done = unshared(
        in_mnt, script + "; ".join(steps), "--mount", "--pid", "--fork", "--mount-proc",
        GPUFENCE_CONTAINER="", GPUFENCE_STATE_DIR="/mnt/state",
    )  # fmt: skip

    assert (done.stdout.split(), done.stderr) == (["1", "2"], "")


@needs_root
def test_two_users_share_one_limit(sim: Sim, folder: Path) -> None:
    """The machine's file is a user's own, so each has a machine; the region is the container's."""
    probe = sim.build / "tests" / "limit_probe"
    env = limited(GPUFENCE_STATE_DIR=str(folder / "state"))
    holder = sim.spawn("kill_worker", 1, preload=True, env=env)
    assert holder.stdout
    theirs = Sim(sim.build, folder / "machine", sim.env)
    try:
        assert holder.stdout.readline() == "ready\n"
        done = subprocess.run(
            [probe],
            env=theirs.environment(preload=True, extra=env),
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        holder.kill()
        holder.communicate()

    finished = Finished(done.returncode, done.stdout, done.stderr)
    assert finished.facts["granted 0"] < 512 * MIB
    assert finished.stderr == ""


@pytest.mark.parametrize("same", [True, False])
def test_the_caches_of_hami_keep_groups_of_one_host_apart(
    sim: Sim, folder: Path, same: bool
) -> None:
    """Its file separates processes there; here its path does, as a name."""
    env = limited(GPUFENCE_STATE_DIR=str(folder / "state"), GPUFENCE_CONTAINER="")
    caches = [f"/tmp/{uuid.uuid4().hex}.cache" for _ in range(2)]
    ours, theirs = caches[0], caches[0 if same else 1]
    holder = sim.spawn(
        "kill_worker", 1, preload=True, env={**env, "CUDA_DEVICE_MEMORY_SHARED_CACHE": ours}
    )
    assert holder.stdout
    try:
        assert holder.stdout.readline() == "ready\n"
        done = sim.run(
            "limit_probe", preload=True, env={**env, "CUDA_DEVICE_MEMORY_SHARED_CACHE": theirs}
        )
    finally:
        holder.kill()
        holder.communicate()

    assert (done.facts["granted 0"] < 512 * MIB) is same
    assert done.stderr == ""
    assert not any(os.path.exists(cache) for cache in caches)
