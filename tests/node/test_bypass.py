"""Who goes around a limit: the verdict by itself, then real processes over the simulated driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from gpufence.machine.gpus import User
from gpufence.node.bypass import Account, Bypass, Reason, Seen, judge

from .conftest import REPO, SECONDS

MIB = 1 << 20
GPU, OTHER = "GPU-a", "GPU-b"
BUILD = Path(os.environ.get("GPUFENCE_BUILD", REPO / "build"))


def seen(pid: int, used: int | None, fenced: bool | None = True, uuid: str = GPU) -> Seen:
    return Seen(pid, uuid, "python", used, fenced)


def account(limit: int | None, granted: dict[int, int], used: int | None = None) -> Account:
    total = sum(granted.values()) if used is None else used
    return Account("train", GPU, limit, granted, total)


@pytest.mark.parametrize(
    ("users", "accounts", "verdict"),
    [
        ([], [], []),
        ([seen(1, 5)], [], []),
        ([seen(1, 5, None)], [], []),
        ([seen(1, 5, False)], [], [(1, Reason.UNFENCED, None)]),
        ([seen(1, None, False)], [], [(1, Reason.UNFENCED, None)]),
        ([seen(1, 5, False)], [account(10, {1: 5})], [(1, Reason.UNFENCED, None)]),
        ([seen(1, 6)], [account(10, {1: 5})], []),
        ([seen(1, 7)], [account(10, {1: 5})], [(1, Reason.UNACCOUNTED, 5)]),
        ([seen(1, 7)], [account(None, {1: 5})], [(1, Reason.UNACCOUNTED, 5)]),
        ([seen(1, 7, uuid=OTHER)], [account(10, {1: 5})], []),
        ([seen(1, None)], [account(10, {1: 5})], []),
        # Each is within the tolerance of 1, and their container is not.
        (
            [seen(1, 6), seen(2, 6)],
            [account(10, {1: 5, 2: 5})],
            [(1, Reason.BEYOND, 10), (2, Reason.BEYOND, 10)],
        ),
        ([seen(1, 6), seen(2, 5)], [account(10, {1: 5, 2: 5})], []),
        # The limit was lowered under the use, and what was granted before is nobody's fault.
        ([seen(1, 8), seen(2, 8)], [account(10, {1: 8, 2: 8})], []),
        # The kernel keeps what a dead process shared with a living one.
        ([seen(1, 6), seen(2, 6)], [account(8, {1: 5, 2: 5}, used=12)], []),
    ],
)
def test_the_verdict(
    users: list[Seen], accounts: list[Account], verdict: list[tuple[int, Reason, int | None]]
) -> None:
    found = judge(users, accounts, tolerance_bytes=1)

    assert [(each.seen.pid, each.reason, each.allowed_bytes) for each in found] == verdict


def test_a_process_is_named_once_for_each_gpu() -> None:
    users = [seen(1, 5, False), seen(1, 6, False, OTHER)]

    found = judge(users, [account(2, {1: 2})], 0)

    assert found == tuple(Bypass(Reason.UNFENCED, each, "", None) for each in users)


class World:
    """Programs on one simulated GPU, and the command that looks at them."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "agent" / "containers" / "g0" / "state"
        self.state.mkdir(parents=True)
        self.agent = folder / "agent"
        self.running: list[subprocess.Popen[str]] = []
        self.environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(BUILD / "sim"),
            "GPUFENCE_SIM_STATE": str(folder / "sim"),
        }

    def program(self, *commands: str, fenced: bool, **extra: str) -> subprocess.Popen[str]:
        """A program that does what it is told and then waits."""
        preload = {"LD_PRELOAD": str(BUILD / "lib" / "libgpufence.so")} if fenced else {}
        env = {**self.environment, **preload, "GPUFENCE_STATE_DIR": str(self.state), **extra}
        made = subprocess.Popen(
            [BUILD / "tests" / "view_commands"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(made)
        assert made.stdin
        assert made.stdout
        assert made.stdout.readline().startswith("ready ")
        for command in commands:
            print(command, file=made.stdin, flush=True)
            assert made.stdout.readline().split()[0] == "0", command
        return made

    def check(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`gpufence node check` beside them."""
        return subprocess.run(
            [
                *(sys.executable, "-m", "gpufence", "node", "check", *words),
                f"--agent-dir={self.agent}",
                f"--state-dir={self.agent}",
            ],
            env={**self.environment, "PYTHONPATH": str(REPO / "tools")},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if not (BUILD / "tests" / "view_commands").exists():
        pytest.skip("the library and the test programs are not built (ci/build --tests)")
    made = World(tmp_path)
    yield made
    for process in made.running:
        process.kill()
        process.communicate()


def test_a_container_inside_its_limit_is_no_finding(world: World) -> None:
    world.program("cuda 0", f"alloc {1000 * MIB}", fenced=True, GPUFENCE_MEMORY_LIMIT="4g")

    done = world.check()

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_process_without_the_library_is_named(world: World) -> None:
    world.program("cuda 0", fenced=True, GPUFENCE_MEMORY_LIMIT="4g")
    free = world.program("cuda 0", f"alloc {1000 * MIB}", fenced=False)

    done = world.check()
    told = json.loads(world.check("--json").stdout)

    assert done.returncode == 5
    (line,) = done.stdout.splitlines()
    assert f"process {free.pid} (view_commands) has 1526 MiB without the library" in line
    schema = json.loads((REPO / "docs" / "schemas" / "node-check.json").read_text())
    jsonschema.validate(told, schema)
    assert [(each["pid"], each["reason"]) for each in told["bypasses"]] == [(free.pid, "unfenced")]


def test_a_program_that_maps_another_file_of_our_librarys_name_is_named(
    world: World, tmp_path: Path
) -> None:
    # Any library does; the loader maps it, and it fences nothing.
    mask = tmp_path / "libgpufence.so"
    mask.write_bytes((BUILD / "lib" / "libgpufence-addpath.so").read_bytes())
    free = world.program("cuda 0", fenced=False, LD_PRELOAD=str(mask))

    done = world.check()

    assert done.returncode == 5
    assert f"process {free.pid} " in done.stdout


def test_metrics_count_them_and_name_each(world: World, tmp_path: Path) -> None:
    quiet = world.check("--metrics").stdout
    free = world.program("cuda 0", fenced=False)

    done = world.check("--metrics", f"--textfile={tmp_path / 'node.prom'}")

    assert 'gpufence_node_bypass_processes{reason="unfenced"} 0.0\n' in quiet
    assert "gpufence_node_bypass_bytes{" not in quiet
    assert 'gpufence_node_bypass_processes{reason="unfenced"} 1.0\n' in done.stdout
    (named,) = re.findall(r"^gpufence_node_bypass_bytes\{(.*)\}", done.stdout, re.M)
    assert {'command="view_commands"', f'pid="{free.pid}"'} <= set(named.split(","))
    assert (tmp_path / "node.prom").read_text() == done.stdout


def test_metrics_are_served_and_looked_at_anew_each_time(world: World) -> None:
    words = (sys.executable, "-m", "gpufence", "node", "check", "--listen=127.0.0.1:0")
    server = subprocess.Popen(
        [*words, f"--agent-dir={world.agent}", f"--state-dir={world.agent}"],
        env={**world.environment, "PYTHONPATH": str(REPO / "tools")},
        stderr=subprocess.PIPE,
        text=True,
    )
    world.running.append(server)
    assert server.stderr
    address = server.stderr.readline().split()[-1]

    def read() -> str:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            return str(answer.read().decode())

    quiet = read()
    world.program("cuda 0", fenced=False)
    loud = read()

    assert 'gpufence_node_bypass_processes{reason="unfenced"} 0.0\n' in quiet
    assert 'gpufence_node_bypass_processes{reason="unfenced"} 1.0\n' in loud
    assert "gpufence_node_agent_running 0.0\n" in loud


def test_who_begins_is_told_while_it_watches(world: World, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "gpufence", "node", "check", "--watch")
    watcher = subprocess.Popen(
        [
            *(*words, f"--agent-dir={world.agent}", f"--state-dir={world.agent}"),
            f"--textfile={tmp_path / 'node.prom'}",
        ],
        env={**world.environment, "PYTHONPATH": str(REPO / "tools")},
        stderr=subprocess.PIPE,
        text=True,
    )
    world.running.append(watcher)
    free = world.program("cuda 0", fenced=False)

    assert watcher.stderr
    assert f"process {free.pid} (view_commands) has" in watcher.stderr.readline()
    second = world.program("cuda 0", fenced=False)
    assert f"process {second.pid} (view_commands) has" in watcher.stderr.readline()
    assert "gpufence_node_bypass_processes" in (tmp_path / "node.prom").read_text()
    assert watcher.poll() is None


def test_a_library_that_was_replaced_is_counted(world: World, tmp_path: Path) -> None:
    # As `gpufence install` replaces it: another file is renamed over the one that is mapped.
    library = tmp_path / "libgpufence.so"
    library.write_bytes((BUILD / "lib" / "libgpufence.so").read_bytes())
    world.program("cuda 0", fenced=False, LD_PRELOAD=str(library), GPUFENCE_MEMORY_LIMIT="4g")
    before = world.check("--metrics").stdout
    (tmp_path / "new").write_bytes(library.read_bytes())
    (tmp_path / "new").rename(library)

    done = world.check("--metrics")

    assert "gpufence_node_old_library_processes 0.0\n" in before
    assert "gpufence_node_old_library_processes 1.0\n" in done.stdout
    assert done.returncode == 0  # it is held to its limit all the same


def test_a_command_that_is_allowed_is_not_named(world: World) -> None:
    world.program("cuda 0", fenced=False)

    assert world.check("--allow=view_commands").returncode == 0


def test_what_the_files_hide_is_named(world: World) -> None:
    # A program that unmaps nothing, yet whose container's file tells less than NVML: it went around
    # the library by a call of its own. Here another container's ledger stands for that file.
    made = world.program("cuda 0", f"alloc {1000 * MIB}", fenced=True, GPUFENCE_MEMORY_LIMIT="4g")
    (path,) = world.state.glob("gpufence-*.v*")
    content = path.read_bytes()
    amount = (1526 * MIB).to_bytes(8, "little")
    assert content.count(amount) >= 1
    path.write_bytes(content.replace(amount, (600 * MIB).to_bytes(8, "little")))

    done = world.check()

    assert done.returncode == 5
    assert f"process {made.pid} (view_commands) has 1526 MiB, of which 600 MiB" in done.stdout


def test_memory_that_a_dead_process_was_granted_allows_nobody_anything(world: World) -> None:
    # Its slot still says so, and its number may be another process's by now.
    dead = world.program("cuda 0", f"alloc {1000 * MIB}", fenced=True, GPUFENCE_MEMORY_LIMIT="4g")
    dead.kill()
    dead.wait()
    free = world.program("cuda 0", fenced=False)

    done = world.check()

    assert (done.returncode, done.stdout.count("\n")) == (5, 1)
    assert f"process {free.pid} " in done.stdout


def test_who_is_seen_only_once_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from gpufence.errors import ExitCode
    from gpufence.node import check

    asked: list[int] = []

    class Nvml:
        @classmethod
        def open(cls) -> Nvml:
            return cls()

        def users(self) -> list[User]:
            asked.append(1)
            return [User(os.getpid() if len(asked) == 1 else os.getppid(), GPU, 5)]

    monkeypatch.setattr(check, "Nvml", Nvml)
    chosen = {"tolerance": "1m", "state_dir": ["/nonexistent"], "agent_dir": "/nonexistent"}
    flags = ("json", "metrics", "watch", "events", "ask_eviction")
    unset = dict.fromkeys(("allow", "textfile", "listen", *flags))

    status = check.run(Namespace(**chosen, **unset))

    assert (status, len(asked)) == (ExitCode.OK, 2)


def test_without_a_driver_nothing_is_checked(world: World) -> None:
    world.environment["LD_LIBRARY_PATH"] = "/nonexistent"

    done = world.check()

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


@pytest.mark.parametrize("text", ["much", "5%", "-1m"])
def test_a_tolerance_that_is_none_is_refused(world: World, text: str) -> None:
    done = world.check(f"--tolerance={text}")

    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
