"""Training that launches kernel by kernel, replayed in virtual time from recordings of an H200.

steps/*.txt is one step of PyTorch each: a line for each launch, the nanoseconds of its thread since
the one before, those that it ran, and whether it is a kernel (k) or a memset or copy (m), or a wait
(w). The convolutions and the transformer (tests/gpu/workloads/cores_torch.py) are, without a limit,
hundreds of launches ahead of the GPU; held, they must get ahead again each time. Training is the
bench's (bench/colocation/workloads/train.py): its host is late at the begin of a step and of the
optimizer's part. Generation and adapters are recordings of an H100 (tests/gpu/workloads/clients.py:
generate, peft), whose host is slower than the GPU most of the time. There the time of the launches
themselves is left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_matrix import pytestmark  # noqa: F401  (skips under sanitizers)

MACHINE = H200
STEPS = Path(__file__).parent / "steps"
NETWORKS = ("convolution", "transformer")
ALONE_MS = 3_000
BARE_MS = 500
TOGETHER_MS = 4_000  # three seconds that count, of turns of 35 ms
POINTS = 1.25  # memsets are charged, and the pauses in front of them
TURN_POINTS = 3.5  # what was saved, and a turn more or less in the time that counts
# Whose host is hardly ahead of the GPU takes no turns, and loses what changes of hands take.
SUM_RATIO = {"convolution": 0.985, "transformer": 0.93}

# Behind a hold the host is slow: microseconds before these kernels of the convolutions (H200).
COLD_US = {0: 100, 1: 80, 8: 260, 27: 450, 28: 220, 29: 105, 30: 300, 31: 125, 33: 160, 34: 400}
COLD_US |= {35: 300, 37: 110, 39: 65, 73: 320}
# What nine memsets of a step take, with the pauses in front of them; and which launches are drawn
# as probes: in runs of 2.6 to 3.5 s 88.8 to 89.4 of 90.
COLD_POINTS = 1.3
# The recorded time from launch to launch holds the launches themselves.
RECORDED_START_NS = H200["START_NS"] + H200["LAUNCH_NS"]


def shares(
    sim: Sim, folder: Path, network: str | Path, limits: tuple[int, ...], run_ms: int
) -> list[dict[str, float]]:
    """What containers of these limits get, side by side in one node folder; (): no limit."""
    command = ("cores_replay", STEPS / f"{network}.txt", run_ms)
    sim = sim.with_env(LAUNCH_NS=0, START_NS=RECORDED_START_NS)
    if not limits:
        return [run_together(sim, folder, [command], preload=False)[0].facts]
    node = folder / "node"
    node.mkdir()
    own = [
        {
            "GPUFENCE_CORE_LIMIT": str(limit),
            "GPUFENCE_STATE_DIR": str(folder / f"state{place}"),
            "GPUFENCE_CONTAINER": f"c{place}",
            "GPUFENCE_NODE_DIR": str(node),
        }
        for place, limit in enumerate(limits)
    ]
    return [each.facts for each in run_together(sim, folder, [command] * len(limits), own=own)]


@pytest.mark.parametrize("percent", [10, 50, 90])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_program_that_launches_kernel_by_kernel_has_its_share(
    sim: Sim, tmp_path: Path, network: str, percent: int
) -> None:
    (facts,) = shares(sim, tmp_path, network, (percent,), ALONE_MS)

    assert facts["share"] == pytest.approx(percent, abs=POINTS)
    assert facts["least"] >= percent - TURN_POINTS
    assert facts["most"] <= percent + TURN_POINTS


def slowed(network: str, host_us: dict[int, int]) -> str:
    """A recorded step in which the host takes at least so long before some kernels."""
    lines, kernels = [], 0
    for line in (STEPS / f"{network}.txt").read_text(encoding="utf-8").splitlines():
        host, ran, kind = line.split()
        if kind == "k":
            host = str(max(int(host), 1_000 * host_us.get(kernels, 0)))
            kernels += 1
        lines.append(f"{host} {ran} {kind}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_what_the_gpu_waits_for_a_host_that_was_held_is_not_charged(
    sim: Sim, tmp_path: Path, percent: int
) -> None:
    (tmp_path / "cold.txt").write_text(slowed("convolution", COLD_US), encoding="utf-8")

    (facts,) = shares(sim, tmp_path, tmp_path / "cold", (percent,), ALONE_MS)

    assert facts["share"] == pytest.approx(percent, abs=COLD_POINTS)


@pytest.mark.parametrize(
    ("network", "limits"),
    [("convolution", (50, 50)), ("convolution", (30, 70)), ("transformer", (50, 50))],
)
def test_two_of_them_lose_no_more_than_the_gpu_takes_to_change_hands(
    sim: Sim, tmp_path: Path, network: str, limits: tuple[int, ...]
) -> None:
    # Nor what markers take: on this machine 5 % of the time of two such programs.
    sim = sim.with_env(EVENT_NS=0, EVENT_GAP_NS=0)
    (bare,) = shares(sim, tmp_path, network, (), BARE_MS)

    together = [facts["share"] for facts in shares(sim, tmp_path, network, limits, TOGETHER_MS)]

    for share, limit in zip(together, limits, strict=True):
        assert share == pytest.approx(limit * bare["whole"] / 100, abs=TURN_POINTS)
    assert sum(together) >= SUM_RATIO[network] * bare["whole"]


def server_of(requests_a_second: float) -> tuple[str | float, ...]:
    """A server, each of whose requests is a graph of 1.5 ms, as run_together takes it."""
    rate = ("rate", requests_a_second, "seed", 5)
    return ("cores_tenant", ALONE_MS, 10, 153, 10, "graph", "copies", *rate)


# They need a fifth of the GPU, and a fiftieth.
SERVER, SELDOM = server_of(131), server_of(13.1)
TRAINING = ("cores_replay", STEPS / "training.txt", ALONE_MS)
FIRST = {"GPUFENCE_CORE_LIMIT": "30", "GPUFENCE_PRIORITY": "high"}
LAST = {
    "GPUFENCE_CORE_LIMIT": "70",
    "GPUFENCE_CORE_SOFT_LIMIT": "100",
    "GPUFENCE_PRIORITY": "low",
}


def below_a_priority(
    sim: Sim, folder: Path, server: tuple[str | float, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """The server, of high priority, and training, of low: what each says."""
    node = folder / "node"
    node.mkdir()
    own = [
        {
            "GPUFENCE_STATE_DIR": str(folder / f"state{place}"),
            "GPUFENCE_CONTAINER": f"c{place}",
            "GPUFENCE_NODE_DIR": str(node),
            **each,
        }
        for place, each in enumerate((FIRST, LAST))
    ]
    first, last = run_together(sim, folder, [server, TRAINING], own=own)
    return first.facts, last.facts


def test_below_a_priority_training_goes_on_as_soon_as_its_short_queue_has_run_dry(
    sim: Sim, tmp_path: Path
) -> None:
    """With a watcher that slept on it had 59 % of its rate alone; under the bare driver 75."""
    sim = sim.with_env(LAUNCH_NS=0, START_NS=RECORDED_START_NS, CONTEXT_BYTES=0)

    (alone,) = run_together(sim, tmp_path, [TRAINING], preload=False)
    bare, _ = run_together(sim, tmp_path, [SERVER, TRAINING], preload=False)
    server, training = below_a_priority(sim, tmp_path, SERVER)

    assert training["share"] >= 0.7 * alone.facts["share"]
    assert server["p99_ms"] <= 0.5 * bare.facts["p99_ms"]


def test_below_a_priority_training_has_few_markers(sim: Sim, tmp_path: Path) -> None:
    """On a GPU where each takes 12 us. With one before each fill it had 85 % of its rate alone."""
    sim = sim.with_env(LAUNCH_NS=0, START_NS=RECORDED_START_NS, CONTEXT_BYTES=0)
    (alone,) = run_together(sim, tmp_path, [TRAINING], preload=False)

    _, training = below_a_priority(sim.with_env(EVENT_GAP_NS=10_000), tmp_path, SELDOM)

    assert training["share"] >= 0.863 * alone.facts["share"]


SLOW_CALLS = {"LAUNCH_NS": 5_500, "RECORD_NS": 2_500}  # where PyTorch calls an H100's driver
SLOW_LEAST = {"generation": 0.86, "compiled": 0.9, "adapters": 0.97}  # of what they may have
SLOW_POINTS = 2.0


@pytest.mark.parametrize("percent", [10, 25])
@pytest.mark.parametrize("program", SLOW_LEAST)
def test_a_program_whose_host_is_slower_than_the_gpu_has_most_of_its_share(
    sim: Sim, tmp_path: Path, program: str, percent: int
) -> None:
    command = ("cores_replay", STEPS / f"{program}.txt", ALONE_MS)
    sim = sim.with_env(**SLOW_CALLS)
    state = {"GPUFENCE_STATE_DIR": str(tmp_path / "state"), "GPUFENCE_CORE_LIMIT": str(percent)}

    (bare,) = run_together(sim, tmp_path, [command], preload=False)
    (held,) = run_together(sim, tmp_path, [command], env=state)

    fair = min(percent, bare.facts["share"])
    assert SLOW_LEAST[program] * fair <= held.facts["share"] <= fair + SLOW_POINTS
