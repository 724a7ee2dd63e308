"""What the library writes and what the command line reads are the same bytes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpufence.state import core_file, notices, region
from gpufence.state import shared_layout as layout
from gpufence.state.shared_file import Life

from tests.support.charges import MIB
from tests.support.machine import Sim


@pytest.fixture(scope="module")
def library(build: Path) -> Any:  # noqa: ANN401 - JSON
    """The C++ side's numbers, offsets and packed words."""
    program = build / "tests" / "shared_layout"
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return json.loads(printed)


def test_every_number_of_the_layout_is_the_same(library: Any) -> None:  # noqa: ANN401
    numbers = library["numbers"]

    assert {name: getattr(layout, name) for name in numbers} == numbers


def test_every_field_is_read_where_it_stands(library: Any) -> None:  # noqa: ANN401
    for name, offsets in library["fields"].items():
        form = getattr(layout, name)
        record = bytearray(struct.calcsize(form))
        # Each field gets its own number in its lowest byte, where the C++ side says that it is.
        for number, offset in enumerate(offsets, start=1):
            record[offset] = number

        fields = struct.unpack(form, record)

        seen = [field[0] if isinstance(field, bytes) else field for field in fields]
        assert seen == list(range(1, len(offsets) + 1)), name


def test_packed_words_mean_the_same(library: Any) -> None:  # noqa: ANN401
    turn = core_file.unpack_turn(library["turn"])

    assert turn == core_file.Turn(tenant=5, closing=True, began_us=123456789)
    assert core_file.unpack_turn(library["free_turn"]).tenant is None
    assert core_file.unpack_shares(library["shares"]) == core_file.Shares(30_000, 60_000)
    assert core_file.tenant_key("web-1") == library["hash"]


def test_a_living_process_is_read_as_it_is(bare: Sim, state: Path, tmp_path: Path) -> None:
    env = {
        "GPUFENCE_MEMORY_LIMIT": str(512 * MIB),
        "GPUFENCE_CORE_LIMIT": "30",
        "GPUFENCE_CORE_SOFT_LIMIT": "60",
        "GPUFENCE_CONTAINER": "web",
        "GPUFENCE_STATE_DIR": str(state),
        "GPUFENCE_NODE_DIR": str(tmp_path),
    }
    process = bare.spawn("handles_commands", preload=True, env=env)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write(f"alloc {64 * MIB}\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("0 ")
        (path,) = region.find({}, str(state))
        (core_path,) = core_file.find({}, str(state))
        (notice,) = notices.read_all({}, str(tmp_path))

        (device,) = region.read(path).devices
        cores = core_file.read(core_path)
    finally:
        process.kill()
        process.communicate()

    (use,) = device.uses
    assert (use.owner.pid, use.owner.uid, use.owner.life) == (process.pid, os.getuid(), Life.ALIVE)
    assert not use.owner.foreign
    assert (use.held_bytes, device.used_bytes) == (64 * MIB, 64 * MIB)
    assert use.limit_bytes == device.limit_bytes == 512 * MIB
    (tenant,) = cores.devices[0].tenants
    assert notice.author == cores.devices[0].author != 0
    assert notice.device == notices.device_key(device.uuid)
    assert notice.shares == core_file.Shares(hard=30_000, soft=60_000)
    assert notice.alive
    assert cores.same_clock
    assert cores.devices[0].uuid == device.uuid
    assert tenant.key == core_file.tenant_key("web")
    assert tenant.shares == core_file.Shares(hard=30_000, soft=60_000)
    assert [member.owner.pid for member in tenant.members] == [process.pid]
