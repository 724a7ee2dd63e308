"""Graph memory: nothing until a launch, then charged until the device's graphs are trimmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import CHUNK, GIB, MIB
from tests.support.handles import Handles, handles
from tests.support.machine import Sim

FORMS = ["v1", "v2", "flags", "params", "params_ptsz"]
RUNS = ["launch", "launch_ptsz", "upload", "upload_ptsz"]


def executable(fence: Handles, size: int, what: str = "free", form: str = "flags") -> int:
    return fence.make("instantiate", form, fence.make("graph", what, size))


@pytest.mark.parametrize("form", FORMS)
def test_every_instantiation_is_charged_at_its_launch(bare: Sim, state: Path, form: str) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = executable(fence, 512 * MIB, form=form)
        assert fence.charged() == start

        fence.does("run", "launch", graph)
        assert fence.charged() == start + 512 * MIB
        fence.does("sync")
        fence.does("end", graph)
        fence.does("trim")

        assert fence.charged() == start


@pytest.mark.parametrize("run", RUNS)
def test_a_launch_beyond_the_limit_is_refused_and_runs_nothing(
    bare: Sim, state: Path, run: str
) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = executable(fence, GIB + 32 * MIB)

        fence.refused("run", run, graph)

        assert fence.charged() == start
        assert fence.ask("attribute") == [0, 0]


def test_graphs_are_held_at_the_limit_exactly(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        small = fence.make("create", "device", 32 * MIB - start) if start else 0
        graph = executable(fence, GIB - (32 * MIB if start else 0), "keep")
        too_much = executable(fence, 32 * MIB, "keep")

        fence.does("run", "launch", graph)

        assert fence.charged() == GIB
        fence.refused("run", "launch", too_much)
        assert fence.ask("attribute") == [0, GIB - (32 * MIB if small else 0)]


@pytest.mark.parametrize("count", [31, 32, 33])
def test_every_node_of_a_graph_counts(bare: Sim, state: Path, count: int) -> None:
    with handles(bare, state, limit="2g") as fence:
        fence.make("create", "device", 2 * GIB - fence.charged() - (count - 1) * 32 * MIB)
        graph = fence.make("graph", "keep", *[32 * MIB] * count)
        launched = fence.make("instantiate", "flags", graph)

        fence.refused("run", "launch", launched)

        assert fence.ask("attribute") == [0, 0]


def test_an_exchanged_graph_of_a_few_nodes_is_read_in_one_question(
    bare: Sim, state: Path, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    with handles(bare.with_env(LOG=str(log)), state) as fence:
        graph = fence.make("kernels", "plain", 3)
        launched = fence.make("instantiate", "flags", graph)
        seen = len(log.read_text(encoding="utf-8").splitlines())

        fence.does("update", "v2", launched, graph)

        lines = log.read_text(encoding="utf-8").splitlines()[seen:]
    calls = [line.split()[0] for line in lines]
    assert calls.count("cuGraphGetNodes") == 1
    assert "cuCtxGetLimit" not in calls


def test_captured_allocations_are_charged_at_the_launch(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = fence.make("record", 256 * MIB)
        assert fence.charged() == start
        launched = fence.make("instantiate", "flags", graph)

        fence.does("run", "launch", launched)

        assert fence.charged() == start + 256 * MIB
        assert fence.used() + start >= 256 * MIB


def test_a_graph_that_runs_again_costs_nothing_more(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = executable(fence, 768 * MIB)
        fence.does("run", "launch", graph)
        fence.make("create", "device", 256 * MIB - start)

        for _ in range(20):
            fence.does("run", "launch", graph)
            assert fence.charged() == GIB
        fence.does("sync")


def test_freed_graph_memory_stays_charged_until_it_is_trimmed(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = executable(fence, 256 * MIB, "keep")
        fence.does("run", "launch", graph)
        fence.does("sync")

        fence.does("trim")  # still the program's
        assert fence.charged() == start + 256 * MIB
        fence.does("give")
        fence.does("sync")
        assert fence.charged() == start + 256 * MIB
        fence.does("trim")

        assert fence.charged() == start


def test_idle_graph_memory_makes_room_for_others(bare: Sim, state: Path) -> None:
    # Nobody is refused for a cache: what no graph needs now is trimmed first.
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = executable(fence, 768 * MIB)
        fence.does("run", "launch", graph)
        fence.does("sync")

        handle = fence.make("create", "device", 512 * MIB)

        assert fence.charged() == start + 512 * MIB
        fence.refused("run", "launch", graph)
        fence.does("release", handle)
        fence.does("run", "launch", graph)


def test_an_idle_graph_makes_room_for_another_graph(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        first = executable(fence, 640 * MIB)
        second = executable(fence, 640 * MIB)
        for _ in range(3):
            for graph in (first, second):
                fence.does("run", "launch", graph)
                fence.does("sync")
                assert fence.charged() == start + 640 * MIB


def test_cycles_of_graphs_return_to_the_start(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        for _ in range(10):
            graph = fence.make("graph", "free", 256 * MIB)
            launched = fence.make("instantiate", "flags", graph)
            fence.does("run", "launch", launched)
            fence.does("sync")
            fence.does("end", launched)
            fence.does("end_graph", graph)
            fence.does("trim")
            assert fence.charged() == start


def test_an_upload_at_instantiation_is_charged_there(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        too_much = fence.make("graph", "free", GIB + 32 * MIB)

        fence.refused("instantiate", "upload", too_much)

        assert fence.charged() == start
        fitting = executable(fence, 256 * MIB, form="upload")
        fence.does("run", "launch", fitting)
        fence.does("sync")
        fence.does("trim")
        assert fence.charged() == start

        # Known from then on: without room for it, it is not launched again.
        fence.make("create", "device", GIB - 128 * MIB)
        fence.refused("run", "launch", fitting)


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_an_updated_graph_is_charged_as_before(bare: Sim, state: Path, form: str) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = fence.make("graph", "free", 256 * MIB)
        launched = fence.make("instantiate", "flags", graph)
        fence.does("run", "launch", launched)
        fence.does("sync")

        fence.does("update", form, launched, graph)
        fence.does("run", "launch", launched)

        assert fence.charged() == start + 256 * MIB


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("cuGraphLaunch", ("run", "launch")),
        ("cuGraphLaunch_ptsz", ("run", "launch_ptsz")),
        ("cuGraphUpload", ("run", "upload")),
        ("cuGraphUpload_ptsz", ("run", "upload_ptsz")),
    ],
)
def test_a_launch_that_fails_in_the_driver_gives_back(
    bare: Sim, state: Path, call: str, words: tuple[str, str]
) -> None:
    with handles(bare, state, **{call: "1=999"}) as fence:
        start = fence.charged()
        graph = executable(fence, 256 * MIB)

        assert fence.ask(*words, graph) == [999]
        assert fence.charged() == start

        fence.does("run", "launch", graph)
        assert fence.charged() == start + 256 * MIB


def test_a_graph_whose_end_the_driver_refuses_is_still_known(bare: Sim, state: Path) -> None:
    with handles(bare, state, cuGraphExecDestroy="1=999") as fence:
        graph = executable(fence, GIB + 32 * MIB)

        assert fence.ask("end", graph) == [999]

        fence.refused("run", "launch", graph)


def test_a_launch_beside_a_capture_leaves_the_capture_alive(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = executable(fence, 64 * MIB)

        assert fence.ask("in_capture", graph) == [0, 0]

        # With the context's second stream come channels.
        assert fence.charged() == start + 64 * MIB + CHUNK


def test_processes_share_the_limit_for_graphs(bare: Sim, state: Path) -> None:
    with handles(bare, state) as first, handles(bare, state) as second:
        start = first.charged()
        graph = executable(first, 768 * MIB, "keep")
        other = executable(second, 512 * MIB, "keep")
        first.does("run", "launch", graph)

        second.refused("run", "launch", other)
        first.does("give")
        first.does("trim")

        second.does("run", "launch", other)
        assert second.charged() == start + 512 * MIB


@pytest.mark.parametrize("what", ["keep", "free"])
def test_after_a_context_the_charge_is_what_the_driver_holds(
    bare: Sim, state: Path, what: str
) -> None:
    with handles(bare, state) as fence:
        graph = executable(fence, 512 * MIB, what)
        fence.does("run", "launch", graph)
        fence.make("array", "deep", 2048, 2048, 0, 0, 1)

        fence.does("leave")

        assert fence.charged() == fence.used() == fence.ask("attribute")[1]


def test_graphs_without_memory_are_none_of_our_business(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        start = fence.charged()
        graph = fence.make("instantiate", "flags", fence.make("graph", "free"))

        fence.does("run", "launch", graph)
        fence.does("end", graph)

        assert fence.charged() == start


# 7 KiB more than a context has for each of 132 x 2048 threads.
DEEP = 1848 * MIB


@pytest.mark.parametrize("form", FORMS)
def test_a_graph_of_deep_kernels_pays_for_their_stack_when_it_is_instantiated(
    bare: Sim, state: Path, form: str
) -> None:
    with handles(bare, state) as fence:
        graph = fence.make("kernels", "deep", 3)
        before = fence.charged()

        fence.refused("instantiate", form, graph)

        assert fence.charged() == before
    with handles(bare, state, limit="4g") as fence:
        fence.make("instantiate", form, fence.make("kernels", "deep", 3))
        assert fence.charged() >= DEEP
        fence.refused("create", "device", 4 * GIB - DEEP + 32 * MIB)


@pytest.mark.parametrize("depth", [1, 15, 16, 17, 33, 100])
def test_kernels_of_child_graphs_pay_for_their_stack_however_deep(
    bare: Sim, state: Path, depth: int
) -> None:
    with handles(bare, state) as fence:
        graph = fence.make("nest", fence.make("kernels", "deep", 3), depth)
        before = fence.charged()

        fence.refused("instantiate", "flags", graph)

        assert fence.charged() == before


@pytest.mark.parametrize("form", ["v2", "generic"])
def test_a_deeper_kernel_in_a_nodes_place_is_refused_without_room(
    bare: Sim, state: Path, form: str
) -> None:
    with handles(bare, state) as fence:
        graph = fence.make("kernels", "plain", 1)
        launched = fence.make("instantiate", "flags", graph)

        fence.refused("exchange", form, launched, graph, "deep")
        fence.does("exchange", form, launched, graph, "plain")

        fence.does("run", "launch", launched)


def test_an_update_to_deeper_kernels_is_refused_without_room(bare: Sim, state: Path) -> None:
    with handles(bare, state) as fence:
        launched = fence.make("instantiate", "flags", fence.make("kernels", "plain", 1))

        fence.refused("update", "v2", launched, fence.make("kernels", "deep", 1))


def test_an_update_to_larger_allocations_is_charged_at_the_next_launch(
    bare: Sim, state: Path
) -> None:
    with handles(bare, state) as fence:
        graph = executable(fence, 256 * MIB)
        fence.does("update", "v2", graph, fence.make("graph", "free", GIB + 32 * MIB))

        fence.refused("run", "launch", graph)


def test_two_graphs_ask_for_the_memory_of_both(bare: Sim, state: Path) -> None:
    # Whether the second takes the first one's idle blocks is the driver's secret until it has run.
    with handles(bare, state) as fence:
        first = executable(fence, 640 * MIB, "keep")
        second = executable(fence, 640 * MIB, "keep")
        fence.does("run", "launch", first)

        fence.refused("run", "launch", second)


def test_a_graph_that_runs_again_in_its_stream_asks_for_nothing(bare: Sim, state: Path) -> None:
    # Its second launch may come while the first one runs, when no trim could make room for it.
    with handles(bare, state, cuDeviceGraphMemTrim="*=999") as fence:
        graph = executable(fence, 768 * MIB)
        fence.does("run", "launch", graph)

        for _ in range(3):
            fence.does("run", "launch", graph)

        fence.refused("run", "upload", graph)
