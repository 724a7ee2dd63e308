"""What the library writes and what the command line reads are the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from gpufence.config.terms import Priority
from gpufence.state import notices, region, time_file
from gpufence.state.shared_file import Life

from tests.support.charges import MIB
from tests.support.machine import Sim


@pytest.fixture(scope="module")
def packed(build: Path) -> dict[str, int]:
    """The library's packed words."""
    program = build / "tests" / "packed_words"
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(json.loads(printed))


def test_packed_words_mean_the_same(packed: dict[str, int]) -> None:
    turn = time_file.unpack_turn(packed["turn"])

    assert turn == time_file.Turn(tenant=5, closing=True, began_us=123456789)
    assert time_file.unpack_turn(packed["free_turn"]).tenant is None
    assert time_file.unpack_shares(packed["shares"]) == time_file.Shares(30_000, 60_000)
    assert time_file.unpack_priority(packed["terms"]) is Priority.HIGH
    assert time_file.tenant_key("web-1") == packed["hash"]


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
        (core_path,) = time_file.find({}, str(state))
        (notice,) = notices.read_all({}, str(tmp_path))

        (device,) = region.read(path).devices
        cores = time_file.read(core_path)
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
    assert notice.shares == time_file.Shares(hard=30_000, soft=60_000)
    assert notice.alive
    assert cores.same_clock
    assert cores.devices[0].uuid == device.uuid
    assert tenant.key == time_file.tenant_key("web")
    assert tenant.shares == time_file.Shares(hard=30_000, soft=60_000)
    assert [member.owner.pid for member in tenant.members] == [process.pid]
