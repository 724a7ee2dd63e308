"""Every memory family of the simulated driver: its price, its refusals, its way back to zero."""

from __future__ import annotations

import pytest

from tests.support.machine import Sim

MIB = 1 << 20
CONTEXT = 526 * MIB  # of an H200 under driver 580
OUT_OF_MEMORY = 2

# Bytes that 16 MiB of a family take: granules of 2 MiB, pool segments of 32 MiB, a mipmap's smaller
# levels, and nothing for what lives on the host or owns no memory.
PRICES = {
    "linear": 16 * MIB,
    "low": 16 * MIB,
    "pitch": 16 * MIB,
    "managed": 16 * MIB,
    "async": 32 * MIB,
    "async_freed_plainly": 32 * MIB,
    "pool": 32 * MIB,
    "virtual": 16 * MIB,
    "virtual_host": 0,
    "array1d": 4 * MIB,  # a row lies in blocks of eight
    "array2d": 16 * MIB,
    "array3d": 16 * MIB,
    "layered": 16 * MIB,
    "cubemap": 6 * MIB,
    "mipmap": 22 * MIB,
    "sparse": 0,
    "host": 0,
    "registered": 0,
    "heap": 16 * MIB,
    "context": CONTEXT,
    "primary": CONTEXT,
}
# What outlives the context in which it was made.
SURVIVORS = {"virtual", "virtual_host", "context", "primary"}


@pytest.mark.parametrize(("family", "price"), PRICES.items())
def test_a_family_costs_its_price_and_gives_all_of_it_back(
    sim: Sim, family: str, price: int
) -> None:
    facts = sim.run("sim_families", "cycle", family, 16 * MIB).facts

    assert facts["held"] == price
    assert facts["left"] == 0
    assert facts["given_with_context"] == CONTEXT + (0 if family in SURVIVORS else price)


@pytest.mark.parametrize("family", ["linear", "pitch", "async", "pool", "virtual", "array2d"])
def test_a_family_fills_the_device_to_its_last_granule_and_then_refuses(
    sim: Sim, family: str
) -> None:
    # 256 MiB of capacity beside the context, taken in pieces that divide it.
    small = sim.with_env(MEMORY="300m", CONTEXT_BYTES="44m")

    filler = small.spawn("sim_families", "fill", family, 32 * MIB)
    out, err = filler.communicate("go\n\n", timeout=60)

    assert out.splitlines()[1:] == [f'{{"granted": {256 * MIB}, "code": {OUT_OF_MEMORY}}}'], err


def test_small_blocks_share_a_granule(sim: Sim) -> None:
    small = sim.with_env(MEMORY="64m", CONTEXT_BYTES="60m")

    out, _ = small.spawn("sim_families", "fill", "linear", 512).communicate("go\n\n", timeout=60)

    assert f'"granted": {4 * MIB}' in out


def test_wrong_arguments_are_refused_by_their_codes_and_give_null(sim: Sim) -> None:
    facts = sim.run("sim_codes", "wrong").facts

    assert facts.pop("result is null") == 1
    assert facts == {
        "zero bytes": 1,
        "no result": 1,
        "too much": 2,
        "overflow": 2,
        "pool too much": 2,
        "pool overflow": 2,
        "pool zero bytes": 0,
        "pitch of 3 bytes": 1,
        "managed without attachment": 1,
        "32-bit form": 201,
        "free of null": 0,
        "free of nonsense": 1,
        "free inside": 1,
        "free": 0,
        "free again": 1,
        "no such device": 101,
        "negative device": 101,
        "context on no device": 101,
        "set of nonsense": 201,
        "destroy of nonsense": 201,
        "array of nonsense": 400,
        "pool of nonsense": 1,
        "release of nonsense": 1,
        "after its end": 709,
        "destroy again": 709,
        "unretained primary": 201,
    }


def test_nothing_works_before_cuinit_nor_without_a_context(sim: Sim) -> None:
    before = sim.run("sim_codes", "before").facts
    without = sim.run("sim_codes", "without").facts

    assert before.pop("result is null") == without.pop("result is null") == 1
    assert set(before.values()) == {3}
    assert without == {
        "cuInit": 0,
        "cuDeviceGetCount": 0,
        "cuCtxGetCurrent": 0,
        "cuMemAlloc": 201,
        "cuMemFree": 1,  # an address that nobody has comes before the lack of a context
        "cuMemGetInfo": 201,
        "cuMemAllocManaged": 201,
        "cuCtxPopCurrent": 201,
    }


@pytest.mark.parametrize("way", ["ipc", "virtual", "pool"])
def test_shared_memory_carries_bytes_both_ways_and_costs_the_importer_nothing(
    sim: Sim, way: str
) -> None:
    facts = sim.run("sim_share", way).facts

    assert facts == {
        "import": 0,
        "cost": 0,
        "seen": 1,
        "written": 1,
        "close": 0,
        "close again": 0 if way == "virtual" else 1,  # unmapping what is not mapped is no error
    }


@pytest.mark.parametrize("way", ["ipc_dead", "ipc_freed"])
def test_a_handle_of_what_ended_leads_nowhere(sim: Sim, way: str) -> None:
    assert sim.run("sim_share", way).facts == {"import": 1, "cost": 0}


def test_bytes_move_within_bounds_only(sim: Sim) -> None:
    facts = sim.run("sim_bytes").facts

    assert facts == {
        "round trip": 1,
        "pattern": 1,
        "past the end": 1,
        "freed": 1,
        "managed from the host": 1,
        "across two mappings": 1,
        "mapped without access": 1,
        "released but mapped": 1,
        "unmapped": 1,
        "unmapped gives back": 1,
        "freed pages go back": 1,
        "array round trip": 1,
        "fresh memory is zero": 1,
    }


def test_pointers_say_what_they_are(sim: Sim) -> None:
    facts = sim.run("sim_pointers").facts

    assert facts == {
        "linear type": 2,
        "linear managed": 0,
        "linear ipc": 1,
        "linear size": 5000,
        "linear offset": 0,
        "managed type": 2,
        "managed managed": 1,
        "managed host": 1,
        "pool ipc": 0,
        "pool has pool": 1,
        "host type": 1,
        "host same": 1,
        "unknown": 1,
        "unknown of many": 0,
        "unknown type": 0,
    }


def test_pools_count_what_they_use_and_keep_what_they_may(sim: Sim) -> None:
    facts = sim.run("sim_pools").facts

    assert facts == {
        "used": 3 * MIB,
        "reserved": 32 * MIB,
        "used after free": 0,
        "reserved after free": 32 * MIB,
        "reserved after sync": 0,
        "used peak": 3 * MIB,
        "reserved peak": 32 * MIB,
        "kept by threshold": 32 * MIB,
        "kept after trim": 0,
        "destroyed default": 1,
        "beyond its size": OUT_OF_MEMORY,
        "within its size": 0,
        "used after plain free": 8 * MIB,
        "in need of it": 0,
        "used again": 16 * MIB,
        "used in the end": 16 * MIB,
    }
