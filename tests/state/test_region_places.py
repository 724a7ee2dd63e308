"""The container's region as programs meet it: one line when there is no place, one limit."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpufence.state import shared_layout as layout

from tests.support.charges import MIB
from tests.support.machine import Finished, Sim

INVALID_VALUE = 1
# Every slot's byte.
LOCKS_AT = layout.LOCK_BASE
SLOTS = layout.MAX_PROCESSES

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


@pytest.fixture
def probe_as(sim: Sim, folder: Path) -> Callable[..., Finished]:
    """limit_probe as another user, on a machine of that user's own."""

    def run(uid: int, **env: str) -> Finished:
        theirs = Sim(sim.build, folder / f"machine-{uid}", sim.env)
        done = subprocess.run(
            [sim.build / "tests" / "limit_probe"],
            env=theirs.environment(preload=True, extra=env),
            user=uid,
            group=uid,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Finished.of(done)

    return run


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
    assert "no folder can hold the container's region" in line
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
def test_two_users_share_one_limit(
    sim: Sim, folder: Path, probe_as: Callable[..., Finished]
) -> None:
    """The machine's file is a user's own, so each has a machine; the region is the container's."""
    env = limited(GPUFENCE_STATE_DIR=str(folder / "state"))
    holder = sim.spawn("kill_worker", 1, preload=True, env=env)
    assert holder.stdout
    try:
        assert holder.stdout.readline() == "ready\n"
        finished = probe_as(65534, **env)
    finally:
        holder.kill()
        holder.communicate()

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


@needs_root
def test_who_cannot_use_the_named_folder_is_refused(
    sim: Sim, folder: Path, probe_as: Callable[..., Finished]
) -> None:
    """That user would keep a ledger of its own elsewhere: twice the limit in one container."""
    (folder / "state").mkdir(mode=0o700)
    env = limited(GPUFENCE_STATE_DIR=str(folder / "state"))

    granted = sim.run("limit_probe", preload=True, env=env)
    line = refused_with(probe_as(65534, **env))

    assert granted.facts["granted 0"] == 512 * MIB
    assert f"{folder}/state/gpufence-" in line
    assert "Permission denied" in line
    assert "GPUFENCE_STATE_DIR" in line


def in_order(before: str, *steps: str) -> str:
    """Shell: a machine in /mnt whose usual places are its own, and steps on it."""
    mounts = ["mount -t tmpfs none /run"]
    mounts += [
        f"mount -t tmpfs -o mode=1777 none {place}" for place in ("/dev/shm", "/tmp", "/mnt")
    ]
    return "\n".join([*mounts, before, *steps])


def probe_of(uid: int) -> str:
    """Shell: the probe as that user, on a machine of its own, then where the region is."""
    drop = f"setpriv --reuid={uid} --regid={uid} --clear-groups" if uid else ""
    places = "/run/gpufence/*.v* /dev/shm/*.v* /tmp/*.v*"
    return f'GPUFENCE_SIM_STATE=/mnt/of-{uid} {drop} "$0" >/dev/null; ls {places} 2>/mnt/0 || true'


@needs_root
@pytest.mark.parametrize(
    ("before", "home"),
    [
        ("mkdir /run/gpufence", "/dev/shm"),
        ("mkdir -m 0700 /run/gpufence", "/dev/shm"),
        ("mkdir -m 1777 /run/gpufence", "/run/gpufence"),
        ("true", "/dev/shm"),
        ("mkdir -m 1777 /run/gpufence; mount -t tmpfs -o ro,mode=1777 none /run/gpufence",
         "/dev/shm"),
        ("chmod 0755 /dev/shm", "/tmp"),
    ],
    ids=["roots", "hidden", "everybodys", "none", "read-only", "no-shm"],
)  # fmt: skip
@pytest.mark.parametrize("uids", [(0, 65534), (65534, 0)], ids=["root-first", "root-last"])
def test_all_users_meet_in_one_place(
    in_mnt: Sim, before: str, home: str, uids: tuple[int, int]
) -> None:
    """The folder is chosen by facts that are the same for every user."""
    done = unshared(in_mnt, in_order(before, *map(probe_of, uids)), "--mount")

    regions = re.findall(r"^(/\S+)/gpufence-\S+$", done.stdout, re.MULTILINE)
    assert (regions, done.stderr) == ([home, home], "")


@needs_root
def test_a_folder_that_appears_later_is_not_a_second_place(in_mnt: Sim) -> None:
    appears = 'mkdir -m 1777 /run/gpufence; "$0" >/dev/null; ls /run/gpufence'

    done = unshared(in_mnt, in_order("true", probe_of(65534), appears), "--mount")

    assert done.stdout.startswith("/dev/shm/gpufence-")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@needs_root
@pytest.mark.parametrize("is_used", [True, False])
def test_who_sees_the_place_read_only_joins_nobody_elsewhere(in_mnt: Sim, is_used: bool) -> None:
    """Others write to it through another mount. A file that nobody uses any more is no place."""
    hold = """
        mkfifo /mnt/hold; exec 3<>/mnt/hold
        "${0%limit_probe}kill_worker" 1 </mnt/hold >/mnt/out &
        until grep -q ready /mnt/out; do sleep 0.01; done
    """
    alone = """
        unshare --mount sh -ec 'mount -o remount,bind,ro /run/gpufence; exec "$0"' "$0"
    """
    end = "kill -9 $!" if is_used else "true"
    before = "mkdir -m 1777 /run/gpufence; mount --bind /run/gpufence /run/gpufence"

    use = hold if is_used else '"$0" >/dev/null'
    done = unshared(in_mnt, in_order(before, use, alone, end), "--mount")

    if is_used:
        assert "Read-only file system" in refused_with(done)
    else:
        assert (done.facts["granted 0"], done.stderr) == (512 * MIB, "")
