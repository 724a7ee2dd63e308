"""Real containers of podman and runc, each with a CDI device that limits memory.

Every engine, flag and user: ci/engines. Here are those that differ in what a process can find out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpufence.container import lifetimes

from . import tree
from .cells import HELD, REFUSED, UIDS, WAYS, Cell, ask, idle, verdict
from .engine import Host, gpufence, make_host
from .like_docker import Podman
from .session import Session

# Where podman is installed: / or the folder of another system.
ROOT = Path(os.environ.get("GPUFENCE_ENGINES_ROOT") or "/")
BUILD = Path(os.environ.get("GPUFENCE_BUILD") or Path(__file__).resolve().parents[2] / "build")


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[Podman]:
    """An engine that nobody else sees, with an image of its own."""
    if os.getuid() != 0:
        pytest.skip("containers of other users need root")
    try:
        with Session(tmp_path, ROOT) as session:
            if missing := session.has(*Podman.tools):
                pytest.skip(f"{', '.join(missing)} not installed")
            engine = Podman(session, make_host(tmp_path, BUILD))
            engine.begin()
            with idle(engine, "", "first") as started:
                if started.returncode != 0:
                    pytest.skip(f"podman starts no container here: {started.stderr[-300:]}")
            yield engine
    except OSError as error:
        pytest.skip(f"podman cannot run here: {error}")


@pytest.mark.parametrize("flag", ["", "--pid=host"], ids=["own pids", "the host's pids"])
def test_a_limit_holds_for_every_way_into_a_container(podman: Podman, flag: str) -> None:
    found = ask(podman, flag)

    assert found == {Cell(flag, uid, way): HELD for uid in UIDS for way in WAYS}


def test_without_a_place_for_the_ledger_nobody_uses_the_gpu(podman: Podman) -> None:
    """As Docker makes it of --read-only, where a device's mounts are read-only as well."""
    document = json.loads(podman.host.cdi.read_text(encoding="utf-8"))
    for mount in document["containerEdits"]["mounts"]:
        mount["options"] = ["ro" if option == "rw" else option for option in mount["options"]]
    podman.host.cdi.write_text(json.dumps(document), encoding="utf-8")
    podman.give_device()
    flags = "--read-only --read-only-tmpfs=false --ipc=none"

    assert [verdict(podman.run(flags, uid, tree.PROBE)) for uid in UIDS] == [REFUSED, REFUSED]


def limit_of(host: Host, name: str) -> int:
    """The limit in force of the container that is called so."""
    answer = gpufence("status", name, "--json", "--state-dir", str(host.state)).stdout
    (container,) = json.loads(answer)["containers"]
    return int(container["gpus"][0]["memory"]["limit_bytes"])


def test_every_command_knows_a_container_by_its_engines_name(podman: Podman) -> None:
    in_folder = ("--state-dir", str(podman.host.state))
    with idle(podman, "", "training"), idle(podman, "", "other"):
        for name in ("training", "other"):
            assert verdict(podman.exec(name, 0, tree.PROBE)) == HELD

        shown = gpufence("status", *in_folder).stdout
        gpufence("set", "training", "--memory", "256MiB", *in_folder)
        gpufence("freeze", "training", *in_folder)
        frozen = gpufence("status", *in_folder).stdout
        gpufence("resume", "training", *in_folder)

        assert {line.split()[0] for line in shown.splitlines()[1:]} == {"other", "training"}
        assert ["frozen" in line for line in sorted(frozen.splitlines()[1:])] == [False, True]
        assert limit_of(podman.host, "training") == 256 << 20


def test_a_container_that_is_made_anew_inherits_nothing(podman: Podman) -> None:
    """Under the same name, in the same place."""
    in_folder = ("--state-dir", str(podman.host.state))
    for _ in range(3):
        with idle(podman, "", "again"):
            facts = json.loads(podman.exec("again", 0, tree.PROBE).stdout)
            gpufence("set", "again", "--memory", "64MiB", *in_folder)

        assert facts["granted 0"] > 64 << 20


@pytest.mark.skipif(
    Path("/proc/self/ns/pid").stat().st_ino != lifetimes.FIRST_NAMESPACE,
    reason="only in the machine's own pid namespace all processes are seen",
)
def test_what_ended_containers_left_is_swept(podman: Podman) -> None:
    for _ in range(2):
        podman.run("", 0, tree.PROBE)
    before = len(list(podman.host.state.iterdir()))

    gpufence("status", "--state-dir", str(podman.host.state))

    assert before >= 2
    assert list(podman.host.state.iterdir()) == []
