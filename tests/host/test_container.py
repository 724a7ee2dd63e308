"""Containers made by hand from namespaces, with the mounts and variables of a CDI device.

The library comes in by /etc/ld.so.preload alone. What is shown: the limit holds there whatever the
container's user, root file system and namespaces; whose processes are whose needs no cgroup.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from gpufence.container import lifetimes

from tests.memory.test_views import GIB, MIB, Viewer
from tests.support.imitation import Imitation, require_namespaces
from tests.support.machine import REPO, Finished, Sim

LIMIT = GIB
OUT_OF_MEMORY = 2
NOBODY = 65534
CONFIG = "/etc/gpufence/gpufence.conf"

needs_nsenter = pytest.mark.skipif(
    shutil.which("nsenter") is None, reason="this machine has no nsenter"
)


@dataclass(frozen=True, slots=True)
class Box:
    """What a container is made from, and the variables that its programs get."""

    sim: Sim
    imitation: Imitation
    variables: dict[str, str]

    def but(self, **changes: Any) -> Box:  # noqa: ANN401 - fields of Imitation
        """Another kind of container."""
        return replace(self, imitation=replace(self.imitation, **changes))

    def environment(self, **extra: str) -> dict[str, str]:
        """Of a program in it: no LD_PRELOAD."""
        found = self.sim.environment(preload=False, extra={**self.variables, **extra})
        return {name: text for name, text in found.items() if name != "LD_PRELOAD"}

    def run(self, *argv: str | Path, **extra: str) -> Finished:
        """Run a program in a new container to its end."""
        done = subprocess.run(
            self.imitation.command(*argv),
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Finished.of(done)

    def program(self, name: str) -> Path:
        """A program of the build."""
        return self.sim.build / "tests" / name

    @contextmanager
    def start(self, *before: str, **extra: str) -> Iterator[Viewer]:
        """view_commands as the first process of a new container."""
        command = self.imitation.command(*before, self.program("view_commands"))
        with self._driven(command, **extra) as viewer:
            viewer.does("cuda", 0)
            yield viewer

    @contextmanager
    def idle(self, *before: str) -> Iterator[Viewer]:
        """The same, which has not used the GPU yet."""
        command = self.imitation.command(*before, self.program("view_commands"))
        with self._driven(command) as viewer:
            yield viewer

    @contextmanager
    def enter(self, first: Viewer, *before: str, **extra: str) -> Iterator[Viewer]:
        """view_commands as a further process of a running container, as `docker exec` starts it."""
        inside = _only_child(first.pid) if self.imitation.own_pids else first.pid
        ways = ["--mount", "--root", "--wd=/", *(["--pid"] if self.imitation.own_pids else [])]
        command = ["nsenter", f"--target={inside}", *ways, *before]
        with self._driven([*command, str(self.program("view_commands"))], **extra) as viewer:
            viewer.does("cuda", 0)
            yield viewer

    @contextmanager
    def _driven(self, command: list[str], **extra: str) -> Iterator[Viewer]:
        with subprocess.Popen(
            command,
            env=self.environment(**extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            yield _ready(process)
            process.communicate(timeout=30)


def _ready(process: subprocess.Popen[str]) -> Viewer:
    """A view_commands that has begun."""
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline().startswith("ready "), process.stderr.read()
    return Viewer(process, process.pid)


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(child)


def cdi_document(
    build: Path,
    folder: Path,
    *arguments: str,
) -> Any:  # noqa: ANN401 - a JSON document
    """What `gpufence cdi generate` writes for the library of the build under test."""
    library = build / "lib" / "libgpufence.so"
    command = ["cdi", "generate", "--format", "json", "--lib", str(library), *arguments]
    command += ["--limits", str(folder / "limits")]
    done = subprocess.run(
        [sys.executable, "-m", "gpufence", *command],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def box_of(sim: Sim, tmp_path: Path, document: Any) -> Box:  # noqa: ANN401 - a JSON document
    """A container with the only device of a CDI document."""
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    require_namespaces(root)
    # Containers of other users share the simulated machine.
    tmp_path.chmod(0o777)
    sim.run("sim_devices")
    for file in tmp_path.glob("machine*"):
        file.chmod(0o666)
    edits = [document["containerEdits"], document["devices"][0]["containerEdits"]]
    variables = dict(text.split("=", 1) for each in edits for text in each.get("env", []))
    python = [REPO, Path(sys.prefix), Path(sys.base_prefix)]
    imitation = Imitation(
        root,
        mounts=[mount for each in edits for mount in each["mounts"]],
        shown=[tmp_path, *python, sim.build],
    )
    return Box(sim, imitation, variables)


@pytest.fixture
def box(bare: Sim, tmp_path: Path) -> Box:
    """A container whose state is its own, with a limit of 1 GiB."""
    arguments = ("--memory", "1GiB", "--private-state", "--no-node")
    return box_of(bare, tmp_path, cdi_document(bare.build, tmp_path, *arguments))


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"uid": NOBODY},
        {"read_only": True},
        {"shared_memory": False},
        {"read_only": True, "shared_memory": False, "uid": NOBODY},
        {"own_pids": False},
        {"own_pids": False, "uid": NOBODY, "read_only": True},
    ],
    ids=lambda kind: "-".join(kind) or "plain",
)
def test_a_cdi_device_fences_every_kind_of_container(box: Box, kind: dict[str, Any]) -> None:
    done = box.but(**kind).run(box.program("limit_probe"))

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "init": 0,
        "granted 0": LIMIT,
        "refused 0": OUT_OF_MEMORY,
    }


def test_a_child_that_clears_its_environment_stays_fenced(box: Box) -> None:
    """Process 1 still has the limit, and /etc/ld.so.preload is no variable."""
    driver = [f"{name}={text}" for name, text in box.environment().items() if "SIM" in name]
    driver.append(f"LD_LIBRARY_PATH={box.environment()['LD_LIBRARY_PATH']}")
    cleared = ["env", "-i", *driver, str(box.program("limit_probe"))]

    # The shell stays, as process 1 of the container.
    done = box.run("sh", "-c", '"$@"; exit $?', "sh", *cleared)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["granted 0"] == LIMIT


def test_without_proc_the_limit_holds(box: Box) -> None:
    done = box.run("sh", "-ec", 'umount -l /proc; exec "$0"', box.program("limit_probe"))

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["granted 0"] == LIMIT


def test_a_mounted_library_that_is_missing_leaves_one_warning_and_no_limit(box: Box) -> None:
    """Why `gpufence doctor` looks at /etc/ld.so.preload."""
    mounts = [each for each in box.imitation.mounts if not each["containerPath"].endswith(".so")]

    done = box.but(mounts=mounts).run(box.program("limit_probe"))

    assert json.loads(done.stdout)["granted 0"] > LIMIT
    assert "cannot be preloaded" in done.stderr


# Who comes in: process 1 is root's, so that only root may read what it was given.
COMERS = [(own_pids, uid) for own_pids in (True, False) for uid in (0, NOBODY)]


def cleared(box: Box, uid: int) -> tuple[str, ...]:
    """The beginning of a command line: another user, and nothing of the container's variables."""
    kept = ("GPUFENCE_SIM_", "LD_LIBRARY_PATH", "PATH")
    driver = [f"{name}={text}" for name, text in box.environment().items() if name.startswith(kept)]
    user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    return (*user, "env", "-i", *driver)


@needs_nsenter
@pytest.mark.parametrize(("own_pids", "uid"), COMERS)
def test_a_cdi_device_holds_whoever_comes_in_first(box: Box, own_pids: bool, uid: int) -> None:
    """Before anybody in the container has used the GPU."""
    box = box.but(own_pids=own_pids)
    with ExitStack() as stack:
        first = stack.enter_context(box.idle("setpriv", "--reuid=0"))
        second = stack.enter_context(box.enter(first, *cleared(box, uid)))
        total = second.ask("info")[2]
        refused = second.ask("alloc", LIMIT + 2 * MIB)

    assert (total, refused) == (LIMIT, [OUT_OF_MEMORY])


@needs_nsenter
@pytest.mark.parametrize(("own_pids", "uid"), COMERS)
def test_whoever_comes_in_is_held_as_those_who_are_there(
    box: Box, own_pids: bool, uid: int
) -> None:
    """Also where nothing but variables gave the limit, of which the newcomer knows none."""
    mounts = [each for each in box.imitation.mounts if each["containerPath"] != CONFIG]
    box = box.but(own_pids=own_pids, mounts=mounts)
    with box.start("setpriv", "--reuid=0") as first:
        first.does("alloc", 640 * MIB)
        with box.enter(first, *cleared(box, uid)) as second:
            seen = second.ask("info")[1:3]
            refused = second.ask("alloc", 512 * MIB)

    assert (seen, refused) == ([LIMIT - 640 * MIB, LIMIT], [OUT_OF_MEMORY])


@needs_nsenter
def test_a_limit_that_was_taken_over_outlives_whom_it_came_from(box: Box) -> None:
    mounts = [each for each in box.imitation.mounts if each["containerPath"] != CONFIG]
    box = box.but(own_pids=False, mounts=mounts)
    with ExitStack() as stack:
        first = stack.enter_context(box.start("setpriv", "--reuid=0"))
        second = stack.enter_context(box.enter(first, *cleared(box, NOBODY)))
        # Both stay in the mount namespace of the shell in between.
        first.process.communicate(timeout=30)
        refused = second.ask("alloc", LIMIT + 2 * MIB)

    assert refused == [OUT_OF_MEMORY]


@needs_nsenter
def test_whoever_comes_in_has_the_share_of_those_who_are_there(bare: Sim, tmp_path: Path) -> None:
    arguments = ("--cores", "30", "--soft-cores", "60", "--private-state", "--no-node")
    box = box_of(bare, tmp_path, cdi_document(bare.build, tmp_path, *arguments))
    mounts = [each for each in box.imitation.mounts if each["containerPath"] != CONFIG]
    box = box.but(mounts=mounts)
    loud = (*cleared(box, NOBODY), "GPUFENCE_LOG_LEVEL=info")
    with box.start("setpriv", "--reuid=0") as first, box.enter(first, *loud) as second:
        said = second.said()

    assert "core limit 30.000 % (of the container's other programs)" in said


# The mode that vgpu-manager would be told, and whether NVML counts in the host's pids there.
MODES = [
    ("0", "host"),
    ("1", "host"),
    ("2", "host"),
    ("100", "ours"),
    ("102", "ours"),
    ("200", "host"),
]


@needs_nsenter
@pytest.mark.parametrize("name", ["MANAGER_COMPATIBILITY_MODE", "ENV_COMPATIBILITY_MODE"])
@pytest.mark.parametrize(("mode", "numbers"), MODES)
def test_two_users_of_a_container_are_told_together_in_every_mode(
    box: Box, name: str, mode: str, numbers: str
) -> None:
    def said(number: int) -> dict[str, str]:
        return {name: mode, **({"GPUFENCE_SIM_PID": str(number)} if numbers == "host" else {})}

    stranger = box.sim.with_env(PID=1 if numbers == "host" else 4711)
    root_user = ("setpriv", "--reuid=0")
    nobody = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    with ExitStack() as stack:
        outside = stranger.spawn("view_commands")
        stack.callback(outside.communicate, timeout=30)
        _ready(outside).does("cuda", 0)
        first = stack.enter_context(box.start(*root_user, **said(777001)))
        second = stack.enter_context(box.enter(first, *nobody, **said(777002)))

        first.does("alloc", 640 * MIB)
        free = second.ask("info")[1]
        refused = second.ask("alloc", 512 * MIB)
        listed = second.ask("processes", 0, 64, 1)

    assert (free, refused) == (LIMIT - 640 * MIB, [OUT_OF_MEMORY])
    # By the host's numbers only our own is known to be the container's; the stranger never is.
    assert listed[0] == 0
    assert sorted(listed[2:]) == ([777002] if numbers == "host" else sorted({1, listed[-1]}))
    assert listed[1] == (1 if numbers == "host" else 2)


def test_whose_process_is_whose_is_asked_of_no_cgroup(build: Path) -> None:
    """Hence cgroup v1, v2, hybrid and none are the same to the library."""
    library = (build / "lib" / "libgpufence.so").read_bytes()

    assert re.search(rb"/proc/[^\0]*cgroup", library) is None
    # What is mounted there tells two lives of a container apart (lib/src/state/identity.cpp).
    named = {text for text in library.split(b"\0") if b"cgroup" in text}
    assert named == {b"/sys/fs/cgroup", b"/sys/fs/cgroup/memory"}


@pytest.mark.parametrize("own_pids", [True, False], ids=["own pids", "the host's pids"])
def test_an_unnamed_container_inherits_nothing_from_one_that_ended(
    bare: Sim, tmp_path: Path, own_pids: bool
) -> None:
    """Made anew in the same place, where the kernel gives the same numbers out again."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    options = ("--state", str(shared), "--no-node")
    small = cdi_document(bare.build, tmp_path, "--memory", "1GiB", *options)
    with box_of(bare, tmp_path, small).but(own_pids=own_pids).start():
        (region,) = shared.glob("gpufence-ns*.v*")
        name = region.name.removeprefix("gpufence-").rpartition(".v")[0]
        set_limit(name, "256MiB", shared)
    large = cdi_document(bare.build, tmp_path, "--memory", "2GiB", *options)

    with box_of(bare, tmp_path, large).but(own_pids=own_pids).start() as second:
        total = second.ask("info")[2]

    assert total == 2 * GIB


@pytest.mark.parametrize("own_boot", [False, True], ids=["the machine's boot", "its own boot"])
def test_the_machine_finds_the_name_that_a_container_gives_itself(
    bare: Sim, tmp_path: Path, own_boot: bool
) -> None:
    """Also where an engine shows another number of the boot, as LXC and systemd-nspawn do."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    boot = tmp_path / "boot_id"
    boot.write_text("01234567-89ab-cdef-0123-456789abcdef\n", encoding="ascii")
    options = ("--memory", "1GiB", "--state", str(shared), "--no-node")
    box = box_of(bare, tmp_path, cdi_document(bare.build, tmp_path, *options))
    place = {"hostPath": str(boot), "containerPath": "/proc/sys/kernel/random/boot_id"}
    mounts = [*box.imitation.mounts, {**place, "options": ["ro"]}] if own_boot else None

    with box.but(mounts=mounts or box.imitation.mounts).start() as first:
        (region,) = shared.glob("gpufence-ns*.v*")
        process = Path(f"/proc/{_only_child(first.pid)}")
        name = lifetimes.name_of(process, f"{process}/root")

    assert region.name.startswith(f"gpufence-{name}.v")


@needs_nsenter
def test_a_container_without_an_engine_lives_as_long_as_its_first_process(
    bare: Sim, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    in_folder = ("--state-dir", str(shared))
    options = ("--memory", "1GiB", "--state", str(shared), "--no-node")
    box = box_of(bare, tmp_path, cdi_document(bare.build, tmp_path, *options))

    with box.idle() as first:
        with box.enter(first):
            pass
        (state,) = json.loads(operator("status", "--all", "--json", *in_folder))["containers"]
        pruned = json.loads(operator("prune", "--json", *in_folder))

    assert (state["state"], pruned["removed"]) == ("idle", [])


def set_limit(name: str, memory: str, folder: Path) -> None:
    operator("set", name, "--memory", memory, "--state-dir", str(folder))


def operator(*arguments: str) -> str:
    """What one does on the host."""
    return subprocess.run(
        [sys.executable, "-m", "gpufence", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.mark.parametrize("own_pids", [True, False], ids=["own pids", "the host's pids"])
def test_containers_that_share_a_state_folder_have_limits_of_their_own(
    bare: Sim, tmp_path: Path, own_pids: bool
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    document = cdi_document(
        bare.build, tmp_path, "--memory", "1GiB", "--state", str(shared), "--no-node"
    )
    box = box_of(bare, tmp_path, document).but(own_pids=own_pids)

    with box.start() as first, box.start() as second:
        first.does("alloc", 640 * MIB)
        granted = second.ask("alloc", 640 * MIB)
        files = sorted(path.name for path in shared.iterdir())

    assert granted == [0]
    assert len([name for name in files if ".v" in name]) == 2


@needs_nsenter
@pytest.mark.parametrize("name", ["", "mine"], ids=["unnamed", "named"])
def test_a_pid_namespace_inside_of_the_container_is_one_with_it_by_name_only(
    box: Box, name: str
) -> None:
    extra = {"GPUFENCE_CONTAINER": name} if name else {}
    with box.start(**extra) as first:
        first.does("alloc", 640 * MIB)
        with box.enter(first, "unshare", "--pid", "--fork", "--mount-proc", **extra) as inner:
            granted = inner.ask("alloc", 640 * MIB)

    assert granted == [OUT_OF_MEMORY if name else 0]


def test_doctor_in_the_container_finds_everything_in_order(box: Box) -> None:
    done = box.run(
        sys.executable, "-m", "gpufence", "doctor", "--json", PYTHONPATH=str(REPO / "tools")
    )
    report = json.loads(done.stdout)
    checks = report["checks"]

    assert (done.returncode, done.stderr, report["problems"]) == (0, "", [])
    assert report["library"] == "/usr/lib/gpufence/libgpufence.so"
    assert report["lookups_fenced"] is True
    assert [each["path"] for each in checks["preload"]["entries"]] == [report["library"]]
    assert checks["limits"]["limits"][0]["amount"] == "1 GiB"
    assert checks["folders"]["state"]["/run/gpufence"] is None
    assert checks["folders"]["container"].startswith("ns")
    assert (checks["pids"]["first"], checks["pids"]["numbers"][-1]) == (False, 1)


def test_doctor_tells_a_missing_library_and_what_to_do(box: Box) -> None:
    mounts = [each for each in box.imitation.mounts if not each["containerPath"].endswith(".so")]
    command = (sys.executable, "-m", "gpufence", "doctor", "--json")

    done = box.but(mounts=mounts).run(*command, PYTHONPATH=str(REPO / "tools"))
    problems = json.loads(done.stdout)["problems"]

    assert done.returncode == 5
    assert [each["what"] for each in problems][-1] == (
        "/etc/ld.so.preload names '/usr/lib/gpufence/libgpufence.so'"
    )
    assert "does not exist" in problems[-1]["why"]


def test_doctor_sees_a_process_of_a_container_from_the_machine(box: Box) -> None:
    with box.start() as first:
        inside = _only_child(first.pid)
        done = subprocess.run(
            [sys.executable, "-m", "gpufence", "doctor", str(inside), "--json"],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    report = json.loads(done.stdout)

    assert (done.returncode, report["problems"]) == (0, [])
    assert report["library"] == "/usr/lib/gpufence/libgpufence.so"
    assert report["checks"]["preload"]["present"] is True
    assert report["checks"]["limits"]["limits"][0]["amount"] == "1 GiB"
    assert report["checks"]["pids"]["numbers"] == [inside, 1]
