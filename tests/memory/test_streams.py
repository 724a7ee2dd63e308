"""What the driver takes for a stream is charged when the stream is made, not when it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.charges import CHUNK, MIB, OUT_OF_MEMORY, Allocator
from tests.support.machine import Sim, without_refusals

LIMIT = 64 * MIB
H200_STREAM = CHUNK // 4


class Streams:
    """A running memory_streams; `stream_bytes`: what a stream costs, foreseen as H200_STREAM."""

    def __init__(self, sim: Sim, folder: Path, stream_bytes: int) -> None:
        self.sim = sim = sim.with_env(CONTEXT_BYTES=0, STREAM_BYTES=stream_bytes)
        env = {"GPUFENCE_STATE_DIR": str(folder), "GPUFENCE_MEMORY_LIMIT": "64m"}
        self.process = sim.spawn("memory_streams", preload=True, env=env)
        assert self.process.stdin
        assert self.process.stdout
        self.fence = Allocator(self.process.stdin, self.process.stdout, folder)
        assert self.process.stdout.readline() == "ready\n"

    def used(self) -> int:
        """Bytes of the device, as the driver counts them."""
        return int(self.sim.run("handles_commands", "look").stdout)

    def end(self) -> None:
        """Close its input; it must end well."""
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, out, without_refusals(err)[1]) == (0, "", "")


def channels(streams: int) -> int:
    """What an H200 takes for them: the second, the sixth, ... costs a chunk."""
    return (streams + 2) // 4 * CHUNK


@pytest.mark.parametrize("kind", ["make", "priority"])
def test_streams_are_charged_what_they_take(sim: Sim, tmp_path: Path, kind: str) -> None:
    streams = Streams(sim, tmp_path, H200_STREAM)

    for made in range(1, 24):
        assert streams.fence.ask(kind) == [0, 1]
        assert streams.fence.charged() == channels(made)
    assert streams.used() == channels(23)
    streams.end()


@pytest.mark.parametrize("chunks", [1, 3])
def test_what_they_take_beyond_that_is_found(sim: Sim, tmp_path: Path, chunks: int) -> None:
    streams = Streams(sim, tmp_path, chunks * CHUNK)

    for _ in range(4):
        assert streams.fence.ask("make") == [0, 1]
        assert streams.fence.charged() == streams.used()
    streams.end()


def test_a_stream_without_room_is_refused(sim: Sim, tmp_path: Path) -> None:
    """The second stream takes a chunk; one that takes what nobody foresaw is ended again."""
    streams = Streams(sim, tmp_path, H200_STREAM)
    assert streams.fence.ask("make") == [0, 1]
    assert streams.fence.ask("fill", LIMIT) == [0, 0]

    assert streams.fence.ask("make") == [OUT_OF_MEMORY, 0]
    assert streams.fence.charged() == LIMIT
    streams.end()

    surprising = Streams(sim, tmp_path / "other", 3 * CHUNK)
    assert surprising.fence.ask("fill", LIMIT - 2 * CHUNK) == [0, 0]
    assert surprising.fence.ask("make") == [OUT_OF_MEMORY, 0]
    surprising.end()


def test_channels_stay_for_the_next_streams(sim: Sim, tmp_path: Path) -> None:
    streams = Streams(sim, tmp_path, H200_STREAM)
    for _ in range(6):
        assert streams.fence.ask("make") == [0, 1]
    assert streams.fence.ask("fill", LIMIT - channels(6)) == [0, 0]

    for _ in range(6):
        assert streams.fence.ask("end") == [0, 0]
    assert streams.fence.charged() == LIMIT
    for _ in range(9):
        assert streams.fence.ask("make") == [0, 1]
    assert streams.fence.ask("make") == [OUT_OF_MEMORY, 0]
    assert streams.fence.charged() == LIMIT == streams.used()
    streams.end()
