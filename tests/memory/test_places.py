"""Memory at places that are named by value: parts of a GPU, and what no headers know yet.

The driver is the simulated one of branch 615, whose names are derived from headers; `latest` stands
for a driver of tomorrow, which takes location type 7 for a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.charges import BLOCK, GIB, INVALID_VALUE, MIB, OUT_OF_MEMORY
from tests.support.handles import Handles, handles
from tests.support.machine import Sim
from tests.support.region_file import charged

DEVICE, DOMAIN, INVISIBLE, TOMORROW = 1, 6, 5, 7
BATCH, RESERVED, ENGINE, FABRIC = 14, 16, 17, 18
ENGINE_BYTES = 64 * MIB
FORMS = ["old", "v1", "v2", "v3"]


@dataclass(frozen=True, slots=True)
class Fenced:
    """A fenced place_commands on two GPUs, and the lines that the library wrote."""

    to: Handles
    log: Path

    def charges(self) -> tuple[int, int]:
        """What each GPU's row holds."""
        return charged(self.to.folder, 0), charged(self.to.folder, 1)

    def used(self) -> int:
        """What the machine says of the first GPU."""
        return self.to.used()

    def warnings(self) -> list[str]:
        """What the library said."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@contextmanager
def fenced(bare: Sim, state: Path, driver: str = "615", limit: str = "1g") -> Iterator[Fenced]:
    log = state.parent / "log"
    env = {**bare.env, "GPUFENCE_LOG_FILE": str(log)}
    sim = Sim(bare.build, bare.state, env, latest=True).with_env(DRIVER=driver, GPUS=2)
    with handles(sim, state, limit=limit, program="place_commands") as to:
        yield Fenced(to, log)


@pytest.mark.parametrize("kind", [DEVICE, DOMAIN])
@pytest.mark.parametrize("device", [0, 1])
def test_physical_memory_in_a_part_of_a_gpu_is_charged_to_that_gpu(
    bare: Sim, state: Path, kind: int, device: int
) -> None:
    with fenced(bare, state) as fence:
        before = fence.charges()

        handle = fence.to.make("create", kind, device, 512 * MIB)

        after = list(before)
        after[device] += 512 * MIB
        assert fence.charges() == tuple(after)
        fence.to.refused("create", kind, device, GIB)
        fence.to.does("release", handle)
        assert fence.charges() == before


@pytest.mark.parametrize("kind", [DEVICE, DOMAIN])
@pytest.mark.parametrize("device", [0, 1])
def test_a_pool_in_a_part_of_a_gpu_is_charged_to_that_gpu(
    bare: Sim, state: Path, kind: int, device: int
) -> None:
    with fenced(bare, state) as fence:
        before = fence.charges()
        pool = fence.to.make("pool", kind, device)

        fence.to.make("alloc", pool, 512 * MIB)

        after = list(before)
        after[device] += 512 * MIB
        assert fence.charges() == tuple(after)
        fence.to.refused("alloc", pool, 544 * MIB)


def test_a_pool_tells_which_part_of_its_gpu_it_lies_in(bare: Sim, state: Path) -> None:
    with fenced(bare, state) as fence:
        assert fence.to.ask("domain", fence.to.make("pool", DOMAIN, 0)) == [0, 1]
        assert fence.to.ask("domain", fence.to.make("pool", DEVICE, 0)) == [0, -1]


@pytest.mark.parametrize("which", ["default", "current"])
@pytest.mark.parametrize("kind", [DEVICE, DOMAIN])
def test_the_given_pool_of_another_gpu_is_charged_to_that_gpu(
    bare: Sim, state: Path, which: str, kind: int
) -> None:
    with fenced(bare, state) as fence:
        before = fence.charges()
        pool = fence.to.make("given", which, kind, 1)

        fence.to.make("alloc", pool, 512 * MIB)

        assert fence.charges() == (before[0], before[1] + 512 * MIB)
        fence.to.refused("alloc", pool, 544 * MIB)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", [0, 1])
def test_an_allocation_node_in_a_part_of_a_gpu_is_charged_at_its_launch(
    bare: Sim, state: Path, form: str, device: int
) -> None:
    with fenced(bare, state) as fence:
        before = fence.charges()
        graph = fence.to.make("graph", form, DOMAIN, device, 512 * MIB)
        too_much = fence.to.make("graph", form, DOMAIN, device, GIB + BLOCK)

        fence.to.does("launch", fence.to.make("instantiate", graph))

        after = list(before)
        after[device] += 512 * MIB
        assert fence.charges() == tuple(after)
        fence.to.refused("launch", fence.to.make("instantiate", too_much))


def test_a_child_graph_in_a_part_of_a_gpu_is_charged(bare: Sim, state: Path) -> None:
    with fenced(bare, state) as fence:
        child = fence.to.make("graph", "v3", DOMAIN, 0, GIB + BLOCK)

        fence.to.refused("launch", fence.to.make("instantiate", fence.to.make("around", child)))


@pytest.mark.parametrize("change", ["update", "swap"])
def test_an_executable_changed_to_more_memory_is_charged_for_it(
    bare: Sim, state: Path, change: str
) -> None:
    with fenced(bare, state) as fence:
        small = fence.to.make("graph", "v3", DOMAIN, 0, 64 * MIB)
        large = fence.to.make("graph", "v3", DOMAIN, 0, GIB + BLOCK)
        code, parent, node = fence.to.ask("around", small)
        assert code == 0
        executable = fence.to.make("instantiate", parent)

        if change == "swap":
            fence.to.does("swap", executable, node, large)
        else:
            fence.to.does("update", executable, fence.to.make("around", large))

        fence.to.refused("launch", executable)


@pytest.mark.parametrize("kind", [INVISIBLE, 0, TOMORROW])
@pytest.mark.parametrize("what", ["create", "graph"])
def test_memory_at_an_unknown_place_is_refused_with_a_line(
    bare: Sim, state: Path, kind: int, what: str
) -> None:
    with fenced(bare, state, driver="latest") as fence:
        before = fence.used()

        if what == "create":
            code = fence.to.ask("create", kind, 0, 512 * MIB)[0]
            assert code == INVALID_VALUE
        else:
            code, graph, _ = fence.to.ask("graph", "v3", kind, 0, 512 * MIB)
            if code == 0:
                assert fence.to.ask("instantiate", graph)[0] == OUT_OF_MEMORY

        # The simulator's driver of tomorrow has it: nobody but the library stands in the way.
        if kind == TOMORROW or what == "create":
            (line,) = fence.warnings()
            assert f"location of type {kind}, which this gpufence cannot charge" in line
        assert fence.used() - before <= (512 * MIB if what == "graph" else 0)


def test_a_pool_at_an_unknown_place_is_refused_with_a_line(bare: Sim, state: Path) -> None:
    with fenced(bare, state, driver="latest") as fence:
        assert fence.to.ask("pool", TOMORROW, 0)[0] == INVALID_VALUE

        (line,) = fence.warnings()
        assert "cuMemPoolCreate refused" in line


@pytest.mark.parametrize("what", ["create", "pool"])
def test_without_a_limit_every_place_is_the_drivers_own_affair(
    bare: Sim, state: Path, what: str
) -> None:
    sim = Sim(bare.build, bare.state, bare.env, latest=True).with_env(DRIVER="latest")
    with handles(sim, state, limit=None, program="place_commands") as to:
        to.does(what, TOMORROW, 0, 512 * MIB)


def test_what_an_external_engine_holds_is_charged(bare: Sim, state: Path) -> None:
    # Nobody can see what such a node needs: it is measured, and refused where it does not fit.
    with fenced(bare, state) as fence:
        before = fence.charges()

        fence.to.does("launch", fence.to.make("instantiate", fence.to.make("node", ENGINE)))

        assert fence.charges() == (before[0] + ENGINE_BYTES, before[1])


def test_an_external_engine_beyond_the_limit_is_refused(bare: Sim, state: Path) -> None:
    with fenced(bare, state) as fence:
        fence.to.make("create", DEVICE, 0, GIB - fence.charges()[0] - ENGINE_BYTES // 2)

        fence.to.refused("instantiate", fence.to.make("node", ENGINE))


def test_a_batch_of_copies_in_a_graph_takes_nothing(bare: Sim, state: Path) -> None:
    with fenced(bare, state) as fence:
        before = fence.charges()

        fence.to.does("launch", fence.to.make("instantiate", fence.to.make("node", BATCH)))

        assert fence.charges() == before


def test_memory_of_each_block_is_charged_when_its_limit_is_set(bare: Sim, state: Path) -> None:
    # Headers of CUDA 13.4: 32 blocks on each of 132 multiprocessors in the simulator.
    per_block = 1 << 16
    with fenced(bare, state) as fence:
        before = fence.charges()

        fence.to.does("limit", 10, per_block)

        assert fence.charges() == (before[0] + 32 * 132 * per_block, before[1])
        fence.to.does("limit", 10, 0)
        assert fence.charges() == before


@pytest.mark.parametrize("driver", ["590", "595", "610"])
def test_drivers_before_13_4_know_no_parts_of_a_gpu(bare: Sim, state: Path, driver: str) -> None:
    with fenced(bare, state, driver=driver) as fence:
        before = fence.charges()

        assert fence.to.ask("create", DOMAIN, 0, 512 * MIB)[0] == INVALID_VALUE
        assert fence.to.ask("node", ENGINE)[0] != 0

        assert fence.charges() == before
