"""What the driver takes for a stream is charged when the stream is made, not when it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from .charges import CHUNK, MIB, OUT_OF_MEMORY, Allocator
from .conftest import Sim

LIMIT = 64 * MIB


class Streams:
    """A running memory_streams."""

    def __init__(self, sim: Sim, folder: Path, stream_bytes: int) -> None:
        sim = sim.with_env(CONTEXT_BYTES=0, STREAM_BYTES=stream_bytes)
        env = {"GPUFENCE_STATE_DIR": str(folder), "GPUFENCE_MEMORY_LIMIT": "64m"}
        self.process = sim.spawn("memory_streams", preload=True, env=env)
        assert self.process.stdin
        assert self.process.stdout
        self.fence = Allocator(self.process.stdin, self.process.stdout, folder)
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> None:
        """Close its input; it must end well."""
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("kind", ["make", "priority"])
@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_a_stream_is_charged_what_it_takes(
    sim: Sim, tmp_path: Path, kind: str, chunks: int
) -> None:
    streams = Streams(sim, tmp_path, chunks * CHUNK)
    before = streams.fence.charged()

    for made in range(1, 4):
        assert streams.fence.ask(kind) == [0, 1]
        assert streams.fence.charged() == before + made * chunks * CHUNK
    streams.end()


def test_a_stream_without_room_is_refused_and_leaves_nothing(sim: Sim, tmp_path: Path) -> None:
    streams = Streams(sim, tmp_path, 3 * CHUNK)
    assert streams.fence.ask("fill", LIMIT - 2 * CHUNK) == [0, 0]

    assert streams.fence.ask("make") == [OUT_OF_MEMORY, 0]
    assert streams.fence.charged() == LIMIT - 2 * CHUNK
    assert streams.fence.ask("fill", 2 * CHUNK) == [0, 0]
    streams.end()


def test_a_stream_needs_room_for_what_it_may_take(sim: Sim, tmp_path: Path) -> None:
    """One more than ever lived at once may take a chunk; one in place of another does not."""
    streams = Streams(sim, tmp_path, 0)
    assert streams.fence.ask("make") == [0, 1]
    assert streams.fence.ask("fill", LIMIT) == [0, 0]

    assert streams.fence.ask("make") == [OUT_OF_MEMORY, 0]
    assert streams.fence.ask("end") == [0, 0]
    assert streams.fence.ask("make") == [0, 1]
    assert streams.fence.charged() == LIMIT
    streams.end()


def test_memory_gets_only_what_streams_left(sim: Sim, tmp_path: Path) -> None:
    """Nothing had to be refused before for the streams to be counted."""
    streams = Streams(sim, tmp_path, CHUNK)
    assert streams.fence.ask("make") == [0, 1]

    assert streams.fence.ask("fill", LIMIT) == [OUT_OF_MEMORY, 0]
    assert streams.fence.ask("fill", LIMIT - CHUNK) == [0, 0]
    streams.end()
