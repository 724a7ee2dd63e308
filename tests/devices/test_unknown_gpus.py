"""A limit is tied to its GPU, or cuInit fails with one line: no driver runs without a word.

Drivers before CUDA 9.2 tell no UUIDs; there a GPU is known by its place on the PCI bus, to all of
the container's processes. A driver that fails to tell which GPUs there are leaves nothing to hold.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.machine import Sim

GIB = 1 << 30
LIMIT = 2 * GIB
PIECE = 64 << 20
CONTEXT = 526 << 20
ROOM = (LIMIT - CONTEXT) // PIECE * PIECE
REFUSED = 1

SYMBOLS = Path(__file__).resolve().parents[2] / "lib" / "api" / "symbols"
DRIVERS = sorted(
    {path.name.removeprefix("libcuda-").split(".")[0] for path in SYMBOLS.glob("libcuda-*.txt")}
)
WITHOUT_UUIDS = {"340", "390"}
PLACES = "this driver reports no UUIDs of GPUs"
FIRST_UUID = "GPU-00000000-0000-0000-0000-000000000000"


def limited(folder: Path, **env: str) -> dict[str, str]:
    return {"GPUFENCE_STATE_DIR": str(folder), **env}


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_limit_holds_on_every_driver(sim: Sim, tmp_path: Path, driver: str) -> None:
    env = limited(tmp_path, GPUFENCE_MEMORY_LIMIT="2g")

    done = sim.with_env(DRIVER=driver).run("limit_probe", preload=True, env=env)

    assert done.facts == {"init": 0, "granted 0": ROOM, "refused 0": 2}
    said = [line for line in done.stderr.splitlines() if PLACES in line]
    assert len(said) == len(done.stderr.splitlines()) == (driver in WITHOUT_UUIDS)


@pytest.mark.parametrize("driver", DRIVERS)
def test_two_processes_share_one_limit_on_every_driver(
    sim: Sim, tmp_path: Path, driver: str
) -> None:
    env = limited(tmp_path, GPUFENCE_MEMORY_LIMIT="4g")
    board = sim.with_env(DRIVER=driver, GPUS=2)
    holder = board.spawn("device_identity", "hold", preload=True, env=env)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        facts = board.run("limit_probe", preload=True, env=env).facts
    finally:
        holder.communicate("\n", timeout=60)

    # Where the simulated NVML cannot read memory (before 510), a context is charged by estimate.
    left = 4 * GIB - 2 * CONTEXT - GIB
    assert left - 4 * PIECE < facts["granted 0"] <= left
    assert facts["granted 1"] == (4 * GIB - CONTEXT) // PIECE * PIECE


@pytest.mark.parametrize("driver", sorted(WITHOUT_UUIDS))
def test_gpus_without_uuids_have_limits_of_their_own(sim: Sim, tmp_path: Path, driver: str) -> None:
    env = limited(tmp_path, GPUFENCE_MEMORY_LIMIT_0="1g", GPUFENCE_MEMORY_LIMIT_1="2g")

    facts = sim.with_env(DRIVER=driver, GPUS=2).run("limit_probe", preload=True, env=env).facts

    assert facts["granted 0"] == (GIB - CONTEXT) // PIECE * PIECE
    assert facts["granted 1"] == ROOM


@pytest.mark.parametrize("driver", sorted(WITHOUT_UUIDS))
def test_a_limit_by_uuid_is_refused_where_the_driver_tells_none(
    sim: Sim, tmp_path: Path, driver: str
) -> None:
    name = f"GPUFENCE_MEMORY_LIMIT_{FIRST_UUID}"
    env = limited(tmp_path, **{name: "1g", "GPUFENCE_MEMORY_LIMIT": "2g"})

    done = sim.with_env(DRIVER=driver).run("limit_probe", preload=True, env=env)

    assert done.facts == {"init": REFUSED}
    (line,) = done.stderr.splitlines()
    assert name[:60] in line
    assert "=1g names a GPU by its UUID, which this driver does not report" in line


FAULTS = {
    "count": ("580", "cuDeviceGetCount@*=999"),
    "count says it is down": ("580", "cuDeviceGetCount@*=3"),
    "device": ("580", "cuDeviceGet@*=999"),
    "second device": ("580", "cuDeviceGet@2=999"),
    "memory": ("580", "cuDeviceTotalMem_v2@*=999"),
    "uuid": ("580", "cuDeviceGetUuid_v2@*=999"),
    "second uuid": ("580", "cuDeviceGetUuid_v2@2=999"),
    "old uuid": ("418", "cuDeviceGetUuid@*=999"),
    "place": ("390", "cuDeviceGetAttribute@*=999"),
}


@pytest.mark.parametrize("limit", ["GPUFENCE_MEMORY_LIMIT", "GPUFENCE_CORE_LIMIT"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_that_does_not_answer_makes_cuinit_fail_with_one_line(
    sim: Sim, tmp_path: Path, fault: str, limit: str
) -> None:
    driver, faults = FAULTS[fault]
    board = sim.with_env(DRIVER=driver, GPUS=2, FAULTS=faults)

    done = board.run("limit_probe", preload=True, env=limited(tmp_path, **{limit: "50%"}))

    assert done.facts == {"init": REFUSED}
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpufence: cuInit fails on purpose: the driver does not report ")


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_limit_the_driver_is_not_asked(sim: Sim, tmp_path: Path, fault: str) -> None:
    driver, faults = FAULTS[fault]
    board = sim.with_env(DRIVER=driver, GPUS=2, FAULTS=faults)
    bare = board.run("limit_probe")

    fenced = board.run("limit_probe", preload=True, env=limited(tmp_path))

    assert (fenced.returncode, fenced.stdout) == (bare.returncode, bare.stdout)


def test_an_unasked_driver_is_initialised_by_the_program_first(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = limited(tmp_path, GPUFENCE_MEMORY_LIMIT="2g")

    sim.with_env(LOG=log).run("limit_probe", preload=True, env=env)

    first = log.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("cuInit")


@pytest.mark.parametrize(
    ("env", "granted"),
    [
        ({"GPUFENCE_MEMORY_LIMIT_7": "1g"}, None),
        ({"GPUFENCE_CORE_LIMIT_7": "30"}, None),
        ({f"GPUFENCE_MEMORY_LIMIT_{FIRST_UUID}": "1g"}, None),
        ({"GPUFENCE_MEMORY_LIMIT_7": "1g", "GPUFENCE_MEMORY_LIMIT_0": "2g"}, ROOM),
    ],
    ids=["memory", "cores", "uuid", "beside one that is there"],
)
def test_a_limit_for_an_absent_gpu_alone_is_refused(
    sim: Sim, tmp_path: Path, env: dict[str, str], granted: int | None
) -> None:
    done = sim.run("limit_probe", preload=True, env=limited(tmp_path, **env))

    assert json.loads(done.stdout).get("granted 0") == granted
    (line,) = done.stderr.splitlines()
    assert "is for a GPU that this process does not have" in line
    assert ("cuInit fails on purpose" in line) == (granted is None)
