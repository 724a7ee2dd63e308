"""Whose word on a limit counts: an operator's file, root's, the tenant's own, another user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpufence.config.terms import Priority, Terms
from gpufence.container import containers
from gpufence.state import limits_file
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from tests.memory.test_views import GIB, viewer
from tests.support.charges import MIB
from tests.support.live import (
    NAME,
    ask,
    environment,
    limits_path,
    put,
    put_cores,
    put_memory,
    spinning,
)
from tests.support.machine import REPO, Finished, Sim

from .test_live_command import Operator
from .test_live_limits import LOW, comes_to, shown, terms_held

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")

TENANT, STRANGER = 12345, 12346
LIMIT, SET = 514 * MIB, 1026 * MIB
# Beside a context of 2 MiB, in pieces of 64.
GRANTED, RAISED, ALL = 512 * MIB, 1024 * MIB, 4096 * MIB


# The user may not be able to read this interpreter's files: a command in vain loads them before.
_AS_ANOTHER = """
import contextlib, io, os, sys
from gpufence import cli
with contextlib.redirect_stderr(io.StringIO()):
    cli.main(["set", "nobody", "--memory", "1g", "--state-dir", "/nowhere"])
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
sys.exit(cli.main())
"""


class Tenants:
    """Programs and commands of several users on one machine, in a folder that all can reach."""

    def __init__(self, sim: Sim, folder: Path) -> None:
        """Keep the machine; each user has a file of it."""
        self.sim = sim.with_env(CONTEXT_BYTES="2m")
        self.folder = folder
        self.name = uuid.uuid4().hex

    def probe(self, uid: int, **env: str) -> Finished:
        """What the limit leaves that user."""
        theirs = Sim(self.sim.build, self.folder / f"machine-{uid}", self.sim.env)
        env = {"GPUFENCE_CONTAINER": self.name, **env}
        command = [str(self.sim.build / "tests" / "limit_probe")]
        return self._as(uid, command, theirs.environment(preload=True, extra=env))

    def set(self, uid: int, *words: str, state: Path) -> Finished:
        """`gpufence set` as that user."""
        code = _AS_ANOTHER.format(uid=uid)
        command = [sys.executable, "-c", code, "set", self.name, *words, "--state-dir", str(state)]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPO / "tools")}
        return self._as(0, command, env)

    def _as(self, uid: int, command: list[str], env: dict[str, str]) -> Finished:
        done = subprocess.run(
            command, env=env, user=uid, group=uid, extra_groups=[], cwd="/",
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return Finished.of(done)


@pytest.fixture
def tenants(sim: Sim) -> Iterator[Tenants]:
    """The users, and nothing of theirs afterwards."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    made = Tenants(sim, folder)
    yield made
    shutil.rmtree(folder)
    for path in Path("/dev/shm").glob(f"gpufence-{made.name}.*"):
        path.unlink()


def configured(folder: Path, owner: int, mode: int) -> dict[str, str]:
    """The limit in a config file of that owner's."""
    path = folder / "gpufence.conf"
    path.write_text(f"memory_limit = {LIMIT}\n", encoding="utf-8")
    path.chmod(mode)
    os.chown(path, owner, -1)
    return {"GPUFENCE_CONFIG": str(path)}


def of_workspace(folder: Path) -> dict[str, str]:
    """The limit in a file of another dialect, root's."""
    (folder / "limits").write_text(f"vmem:{LIMIT}\n", encoding="utf-8")
    (folder / "limits").chmod(0o644)
    return {"ALNAIR_ID": "a", "ALNAIR_WORKSPACE_PATH": str(folder)}


SOURCES = {
    "environment": lambda _: {"GPUFENCE_MEMORY_LIMIT": str(LIMIT)},
    "roots-file": lambda folder: configured(folder, 0, 0o644),
    "strangers-file": lambda folder: configured(folder, STRANGER, 0o644),
    "tenants-file": lambda folder: configured(folder, TENANT, 0o644),
    "everybodys-file": lambda folder: configured(folder, 0, 0o666),
    "groups-file": lambda folder: configured(folder, 0, 0o664),
    "other-dialects-file": of_workspace,
}
OPERATORS = ("roots-file", "strangers-file", "other-dialects-file")


@pytest.mark.parametrize("setter", [TENANT, 0], ids=["by-tenant", "by-root"])
@pytest.mark.parametrize(
    ("words", "lifted"), [(("--memory", "0"), ALL), (("--memory", str(SET)), RAISED)]
)
@pytest.mark.parametrize("source", SOURCES)
def test_nothing_that_is_set_is_above_an_operators_file(
    tenants: Tenants, source: str, words: tuple[str, str], lifted: int, setter: int
) -> None:
    """What a tenant could write is the tenant's to change, also while programs run."""
    state = tenants.folder / "state"
    env = {"GPUFENCE_STATE_DIR": str(state), **SOURCES[source](tenants.folder)}
    before = tenants.probe(TENANT, **env)

    done = tenants.set(setter, *words, state=state)
    after = tenants.probe(TENANT, **env)

    assert done.returncode == 0, done.stderr
    assert before.facts["granted 0"] == GRANTED
    assert after.facts["granted 0"] == (GRANTED if source in OPERATORS else lifted)
    assert after.stderr == ""


def test_a_file_on_a_read_only_mount_is_the_operators(tenants: Tenants) -> None:
    """Whoever owns it: on this side nobody can write to it."""
    place = tenants.folder / "mounted"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "mode=0755", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a file system")
    try:
        state = tenants.folder / "state"
        env = {"GPUFENCE_STATE_DIR": str(state), **configured(place, TENANT, 0o666)}
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        tenants.probe(TENANT, **env)

        tenants.set(TENANT, "--memory", "0", state=state)
        after = tenants.probe(TENANT, **env)
    finally:
        subprocess.run(["umount", str(place)], check=True)

    assert after.facts["granted 0"] == GRANTED


def test_another_user_may_not_set(tenants: Tenants) -> None:
    state = tenants.folder / "state"
    env = {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_MEMORY_LIMIT": str(LIMIT)}
    tenants.probe(TENANT, **env)

    done = tenants.set(STRANGER, "--memory", "0", state=state)

    assert done.returncode == 1
    assert f"it is user {TENANT}'s" in done.stderr
    assert tenants.probe(TENANT, **env).facts["granted 0"] == GRANTED


def planted(tenants: Tenants, *words: str) -> None:
    """A stranger's region and limits file under the victim's name, where everybody may write."""
    env = {"GPUFENCE_MEMORY_LIMIT": str(LIMIT), "GPUFENCE_STATE_DIR": "/dev/shm"}
    tenants.probe(STRANGER, **env)
    done = tenants.set(STRANGER, *words, state=Path("/dev/shm"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("amount", ["200m", "100g", "0"])
@pytest.mark.parametrize("victim", [TENANT, 0])
def test_what_a_stranger_planted_is_nobodys_limit(
    tenants: Tenants, amount: str, victim: int
) -> None:
    planted(tenants, "--memory", amount)
    private = tenants.folder / "private"
    private.mkdir(mode=0o700)
    os.chown(private, victim, -1)
    limit = {"GPUFENCE_MEMORY_LIMIT": str(LIMIT)}

    apart = tenants.probe(victim, GPUFENCE_STATE_DIR=str(private), **limit)
    beside = tenants.probe(victim, GPUFENCE_STATE_DIR="/dev/shm", **limit)

    assert (apart.facts["granted 0"], apart.stderr) == (GRANTED, "")
    assert beside.facts["granted 0"] == GRANTED
    assert "limits file is ignored" in beside.stderr


def test_another_containers_limits_under_this_name_are_damaged(bare: Sim, state: Path) -> None:
    """A file of root's can be moved or linked to another name; what it says stays the other's."""
    other = limits_file.prepare((state,), "other")
    other.rename(limits_path(state))

    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        assert program.ask("cuda", 0) == [1]
        assert "gpufence set NAME --reset" in program.said()

    with pytest.raises(limits_file.LimitsFileError, match="damaged"):
        limits_file.read(limits_path(state), os.getuid())


def test_limits_lie_beside_the_region_alone(
    bare: Sim, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command heeds no file of the name in another folder, as the library does not."""
    monkeypatch.setenv("GPUFENCE_STATE_DIR", str(state))
    monkeypatch.setenv("GPUFENCE_NODE_DIR", str(tmp_path / "node"))
    elsewhere = limits_file.prepare((tmp_path / "node",), NAME)

    with viewer(bare, state, limit=None, env=environment(state, MEMORY_LIMIT="4g")) as program:
        program.does("cuda", 0)
        container = containers.one(NAME, None)

    assert elsewhere.exists()
    assert container.limits is None
    assert container.limits_path == limits_path(state)


def test_a_running_program_stays_under_the_ceiling_and_the_command_says_so(
    bare: Sim, state: Path, tmp_path: Path
) -> None:
    config = tmp_path / "gpufence.conf"
    config.write_text("memory_limit = 4g\ncore_limit = 30\n", encoding="utf-8")
    config.chmod(0o644)
    operator = Operator(state)
    env = environment(state, CONFIG=str(config))
    with viewer(bare, state, limit=None, env=env) as program:
        program.does("cuda", 0)

        raised = operator.run("set", NAME, "--memory", "8g", "--cores", "0")
        gpu = operator.gpu()

        assert shown(program)[1] == 4 * GIB
        assert "memory stays at 4 GiB" in raised.stderr
        assert "cores stays at 30 %" in raised.stderr
        assert (gpu["memory"]["limit_bytes"], gpu["memory"]["limit_from"]) == (4 * GIB, "ceiling")
        assert gpu["cores"]["share_millipercent"] == 30_000

        lowered = operator.run("set", NAME, "--memory", "1g", "--cores", "20")
        assert shown(program)[1] == GIB
        assert "stays" not in lowered.stderr
        operator.run("set", NAME, "--reset")
        assert shown(program)[1] == 4 * GIB


def test_a_monitor_shows_the_ceiling(bare: Sim, state: Path, tmp_path: Path) -> None:
    config = tmp_path / "gpufence.conf"
    config.write_text("memory_limit = 2g\n", encoding="utf-8")
    config.chmod(0o644)
    env = environment(state, CONFIG=str(config))
    with viewer(bare, state, limit=None, env=env) as program:
        program.does("cuda", 0)
        put_memory(state, 8 * GIB)
        with viewer(bare, state, limit=None, env=env) as monitor:
            assert monitor.ask("nvml", 0)[:2] == [0, 2 * GIB]


def test_a_share_is_not_raised_above_an_operators_file(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    config = tmp_path / "gpufence.conf"
    config.write_text("core_limit = 25\n", encoding="utf-8")
    config.chmod(0o644)
    with spinning(sim, state, CONFIG=str(config)) as process:
        assert comes_to(process, LOW)
        put_cores(state, 90)
        assert comes_to(process, LOW)


def test_terms_are_not_raised_above_an_operators_file(
    sim: Sim, state: Path, tmp_path: Path
) -> None:
    config, log = tmp_path / "gpufence.conf", tmp_path / "log"
    config.write_text(
        "core_limit = 25\npriority = normal\nweight = 5\ncore_burst = 20ms\ncore_floor = 3\n",
        encoding="utf-8",
    )
    config.chmod(0o644)
    own = {"CONFIG": str(config), "LOG_LEVEL": "info", "LOG_FILE": str(log)}
    with spinning(sim, state, **own) as process:
        for wanted, held in (
            (Terms(Priority.HIGH, 9, 10**9, 9_000),
             "priority normal, weight 5, burst 20000000 ns, floor 3.000 %"),
            (Terms(Priority.LOW, 4, 10**6, 1_000),
             "priority low, weight 4, burst 1000000 ns, floor 1.000 %"),
        ):  # fmt: skip
            put(state, {EVERY_GPU: Amounts(terms=wanted)})
            ask(process, "run", 100, 1)
            assert terms_held(log) == held
