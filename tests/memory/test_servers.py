"""Inference servers inside a limit: the calls of vLLM and SGLang in their order, with their traps.

The servers themselves need a GPU and do not fit here. What they do with memory is known from their
sources: how vLLM sizes its cache (`determine_available_memory`), how memory sleeps (vLLM's
`cumem_allocator.cpp`, SGLang's torch_memory_saver), and how ranks share buffers (vLLM's custom
all-reduce by IPC handles, NCCL by exported descriptors).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.charges import GIB, MIB, OUT_OF_MEMORY
from tests.support.handles import Handles
from tests.support.machine import Sim

LIMIT = 4 * GIB
SEGMENT = 20 * MIB  # of PyTorch's caching allocator
WEIGHTS = 40
ACTIVATIONS = 16


@contextmanager
def server(sim: Sim, folder: Path, gpu: int = 0, **env: str) -> Iterator[Handles]:
    """A rank of a server on one of the GPUs that it sees, by default inside 4 GiB."""
    folder.mkdir(exist_ok=True)
    limits = {"GPUFENCE_MEMORY_LIMIT": "4g"} if not any("LIMIT" in name for name in env) else {}
    env = {"GPUFENCE_STATE_DIR": str(folder), **limits, **env}
    with sim.driven("server_calls", str(gpu), env=env) as (to, answers):
        yield Handles(to, answers, folder, sim)


def info(rank: Handles) -> tuple[int, int]:
    """Free and total bytes, as cuMemGetInfo shows them."""
    code, free, total = rank.ask("info")
    assert code == 0
    return free, total


def take(rank: Handles, segments: int) -> list[int]:
    return [rank.make("alloc", SEGMENT) for _ in range(segments)]


def profile(rank: Handles) -> int:
    """Load weights, run once with the largest batch; what is left for the cache at 90 %."""
    free_before, total = info(rank)
    take(rank, WEIGHTS)
    activations = take(rank, ACTIVATIONS)
    for address in activations:  # empty_cache()
        rank.does("free", address)
    free_after, _ = info(rank)
    assert free_after <= free_before, "Error in memory profiling"
    return total * 9 // 10 - (total - free_after) - ACTIVATIONS * SEGMENT


def test_a_profiled_cache_fills_the_limit_and_no_more(sim: Sim, state: Path) -> None:
    with server(sim, state) as rank:
        _, total = info(rank)
        assert total == LIMIT
        cache = profile(rank)

        blocks = [rank.make("alloc", cache // 32 // MIB * MIB) for _ in range(32)]
        take(rank, ACTIVATIONS)  # the first real batch

        free, _ = info(rank)
        assert len(blocks) == 32
        assert LIMIT // 10 - 64 * MIB <= free <= LIMIT // 10 + 64 * MIB
        rank.refused("alloc", free + 2 * MIB)
        assert rank.used() - rank.charged() < 600 * MIB  # the context of who asks


@pytest.mark.parametrize("moved", ["leaves", "comes"])
def test_a_neighbour_that_moves_while_a_server_profiles_changes_nothing(
    sim: Sim, state: Path, tmp_path: Path, moved: str
) -> None:
    """Without a limit vLLM sees the neighbour's memory come back, and gives up."""
    with server(sim, state) as rank, server(sim, tmp_path / "other") as other:
        held = take(other, 100) if moved == "leaves" else []
        undisturbed = info(rank)

        if moved == "leaves":
            for address in held:
                other.does("free", address)
        else:
            take(other, 100)

        assert info(rank) == undisturbed
        assert profile(rank) > 0


def test_cuda_and_nvml_tell_a_server_the_same_size(sim: Sim, state: Path) -> None:
    with server(sim, state) as rank:
        take(rank, 10)

        free, total = info(rank)

        assert rank.ask("nvml", 0) == [0, free, total]


def test_memory_that_sleeps_is_free_for_others_and_wakes_as_it_was(sim: Sim, state: Path) -> None:
    with server(sim, state) as rank, server(sim, state) as trainer:
        awake = rank.charged()
        weights = rank.make("virtual", GIB)
        cache = rank.make("virtual", 3 * GIB // 2)
        rank.does("fill", weights, GIB, 0x5A)
        assert rank.charged() == awake + 5 * GIB // 2
        trainer.refused("alloc", 3 * GIB // 2)

        rank.does("save", weights, GIB)
        rank.does("sleep", weights)
        rank.does("sleep", cache)

        assert rank.charged() == awake
        borrowed = trainer.make("alloc", 3 * GIB // 2)
        # It must not wake over the limit, and must be able to try again.
        rank.does("wake", weights)
        rank.refused("wake", cache)
        trainer.does("free", borrowed)
        rank.does("wake", cache)
        rank.does("load", weights)
        assert rank.ask("ends", weights, GIB) == [0, 0x5A, 0x5A]
        assert rank.charged() == awake + 5 * GIB // 2
        for address in (weights, cache):
            rank.does("end", address)
        assert rank.charged() == awake


def test_a_server_that_sleeps_and_wakes_all_day_loses_no_byte(sim: Sim, state: Path) -> None:
    with server(sim, state) as rank:
        start = rank.charged()
        tensors = [rank.make("virtual", size * 2 * MIB) for size in range(1, 33)]
        awake = rank.charged()

        for _ in range(20):
            for address in tensors:
                rank.does("sleep", address)
            assert rank.charged() == start
            for address in reversed(tensors):
                rank.does("wake", address)
            assert rank.charged() == awake

        for address in tensors:
            rank.does("end", address)
        assert rank.charged() == start


def test_a_server_killed_asleep_or_awake_gives_everything_back(sim: Sim, state: Path) -> None:
    env = {"GPUFENCE_STATE_DIR": str(state), "GPUFENCE_MEMORY_LIMIT": "4g"}
    with server(sim, state) as watcher:
        start = watcher.charged()
        victim = sim.spawn("server_calls", "0", preload=True, env=env)
        assert victim.stdin
        assert victim.stdout
        killed = Handles(victim.stdin, victim.stdout, state, sim)
        assert killed.answers.readline() == "ready\n"
        slept = killed.make("virtual", GIB)
        killed.make("virtual", GIB)
        killed.does("sleep", slept)
        assert watcher.charged() >= start + GIB

        victim.kill()
        victim.communicate()

        watcher.make("alloc", LIMIT - start)
        assert watcher.charged() == LIMIT


@pytest.fixture
def pair(sim: Sim) -> Sim:
    """Two GPUs that reach each other's memory."""
    return sim.with_env(GPUS=2)


def test_ranks_exchange_their_buffers_by_ipc_handles_and_pay_each_for_its_own(
    pair: Sim, state: Path
) -> None:
    """As vLLM does for its own all-reduce: every rank allocates, and opens all others' buffers."""
    size = 8 * MIB
    with server(pair, state, 0) as first, server(pair, state, 1) as second:
        ranks = (first, second)
        before = [info(rank)[0] for rank in ranks]
        own = [rank.make("alloc", size) for rank in ranks]
        for rank, address, byte in zip(ranks, own, (1, 2), strict=True):
            rank.does("fill", address, size, byte)
        charged = first.charged()
        handles = [rank.ask("ipc_get", address) for rank, address in zip(ranks, own, strict=True)]
        assert [handle[0] for handle in handles] == [0, 0]

        opened = [first.make("ipc_open", *handles[1][1:]), second.make("ipc_open", *handles[0][1:])]

        assert first.ask("ends", opened[0], size) == [0, 2, 2]
        assert second.ask("ends", opened[1], size) == [0, 1, 1]
        assert first.charged() == charged
        assert [info(rank)[0] for rank in ranks] == [free - size for free in before]
        for rank, peer, address in zip(ranks, opened, own, strict=True):
            rank.does("ipc_close", peer)
            rank.does("free", address)
        assert [info(rank)[0] for rank in ranks] == before


def test_ranks_share_buffers_by_descriptors_as_nccl_does(pair: Sim, state: Path) -> None:
    size = 32 * MIB
    with server(pair, state, 0) as first, server(pair, state, 1) as second:
        # NCCL asks first whether it may go by multicast (NVLS), and by the peer's memory.
        assert first.ask("multicast") == [0, 0]
        first.does("peer", 1)
        free = info(first)[0]
        buffer = first.make("virtual", size)
        first.does("fill", buffer, size, 7)
        charged = first.charged()
        descriptor = first.make("share", buffer)
        fetched = second.make("fetch", first.make("pid"), descriptor)
        second_free = info(second)[0]

        adopted = second.make("adopt", fetched, size)
        second.does("close", fetched)
        first.does("close", descriptor)

        assert second.ask("ends", adopted, size) == [0, 7, 7]
        assert first.charged() == charged
        assert info(second)[0] == second_free  # it lies on the first one's GPU
        first.does("end", buffer)
        assert first.charged() == charged  # the second rank still has it
        first.refused("alloc", free)
        second.does("end", adopted)
        first.make("alloc", free)


def test_a_server_on_a_subset_of_the_gpus_is_told_its_own_gpus_limit(
    pair: Sim, state: Path, tmp_path: Path
) -> None:
    """The size comes from NVML, by the number that CUDA_VISIBLE_DEVICES gives."""
    uuids = [device["uuid"] for device in pair.run("device_identity").facts]
    limits = {
        f"GPUFENCE_MEMORY_LIMIT_{uuid}": text
        for uuid, text in zip(uuids, ("4g", "6g"), strict=True)
    }

    with server(pair, state, 0, CUDA_VISIBLE_DEVICES="1", **limits) as rank:
        free, total = info(rank)

        assert total == 6 * GIB
        assert rank.ask("nvml", 1) == [0, free, total]
        rank.make("alloc", 5 * GIB)
        assert rank.ask("alloc", GIB)[0] == OUT_OF_MEMORY
