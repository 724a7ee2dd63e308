"""The simulated machine: what its processes share, and what becomes of those that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.machine import Sim

MIB = 1 << 20
CONTEXT = 526 * MIB
SEVEN_CALLS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
print(*(cuda.cuDriverGetVersion(ctypes.byref(ctypes.c_int())) for _ in range(7)))
"""
NO_DEVICE, UNKNOWN, OUT_OF_MEMORY = 100, 999, 2


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; its stderr when there is none."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline().strip()
    return line or process.stderr.read()


def say(process: subprocess.Popen[str], text: str = "go") -> None:
    """Send a line."""
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


@contextmanager
def holding(sim: Sim, family: str, held_bytes: int) -> Iterator[subprocess.Popen[str]]:
    """A process that holds memory for the duration of a block."""
    process = sim.spawn("sim_families", "hold", family, held_bytes)
    try:
        assert read_line(process).startswith("held ")
        yield process
    finally:
        process.kill()
        process.communicate()


def used(process: subprocess.Popen[str]) -> int:
    """Bytes of the device in use, as that process sees it."""
    say(process)
    return int(read_line(process))


@pytest.mark.parametrize("family", ["linear", "managed", "async", "virtual", "array2d", "heap"])
def test_a_killed_process_gives_everything_back(sim: Sim, family: str) -> None:
    with holding(sim, "host", MIB) as watcher, holding(sim, family, 64 * MIB) as victim:
        assert used(watcher) == 2 * CONTEXT + 64 * MIB

        victim.kill()
        victim.wait()

        assert used(watcher) == CONTEXT


def test_a_process_that_forked_gives_everything_back_though_its_child_lives(sim: Sim) -> None:
    parent = sim.spawn("sim_fork", "orphan")
    with holding(sim, "host", MIB) as watcher:
        assert read_line(parent).startswith("held ")
        assert used(watcher) == 2 * CONTEXT + 64 * MIB

        parent.send_signal(signal.SIGKILL)
        parent.wait()

        assert used(watcher) == CONTEXT
    parent.communicate("\n")


def test_a_forked_child_of_an_initialised_process_is_refused(sim: Sim) -> None:
    facts = sim.run("sim_fork", "after").facts

    assert facts == {"cuInit": 3, "cuMemAlloc": 3, "cuDeviceGetCount": 3, "changed": 0}


def test_a_child_forked_before_cuinit_has_its_own_account(sim: Sim) -> None:
    assert sim.run("sim_fork", "before").facts == {"child": 0, "used": CONTEXT}


def test_racing_processes_fill_the_device_exactly(sim: Sim) -> None:
    # Eight contexts of 2 MiB and 240 MiB to race for.
    small = sim.with_env(MEMORY="256m", CONTEXT_BYTES="2m")
    racers = [small.spawn("sim_families", "fill", "linear", 2 * MIB) for _ in range(8)]
    for racer in racers:
        assert read_line(racer) == "ready"

    for racer in racers:
        say(racer)
    answers = [read_line(racer) for racer in racers]
    for racer in racers:
        racer.communicate("\n", timeout=60)

    granted = [int(answer.split('"granted": ')[1].split(",")[0]) for answer in answers]
    assert sum(granted) == 240 * MIB
    assert all(f'"code": {OUT_OF_MEMORY}' in answer for answer in answers)


def test_racing_processes_never_pass_capacity(sim: Sim) -> None:
    # Eight contexts of 2 MiB, and room for one block more: whoever has it is alone.
    small = sim.with_env(MEMORY="64m", CONTEXT_BYTES="2m")
    lock = sim.state.parent / "lock"
    duellists = [small.spawn("sim_duel", 48 * MIB, 1000, lock) for _ in range(8)]
    for duellist in duellists:
        assert read_line(duellist) == "ready"

    for duellist in duellists:
        say(duellist)
    facts = [json.loads(duellist.communicate(timeout=60)[0]) for duellist in duellists]

    assert sum(fact["won"] for fact in facts) > 0
    assert sum(fact["doubled"] for fact in facts) == 0


def test_killing_racers_at_random_never_loses_a_byte(sim: Sim) -> None:
    small = sim.with_env(MEMORY="256m", CONTEXT_BYTES="2m")
    for delay_ms in range(0, 20, 2):
        racers = [small.spawn("sim_families", "fill", "linear", 64 << 10) for _ in range(4)]
        for racer in racers:
            assert read_line(racer) == "ready"
        for racer in racers:
            say(racer)
        time.sleep(delay_ms / 1000)  # where in its work each racer dies is the point
        for racer in racers:
            racer.kill()
            racer.communicate()

    out, _ = small.spawn("sim_families", "fill", "linear", 2 * MIB).communicate("go\n\n")

    assert f'"granted": {254 * MIB}' in out


def test_a_deleted_machine_file_heals_with_what_its_processes_hold(sim: Sim) -> None:
    with holding(sim, "linear", 64 * MIB) as first, holding(sim, "linear", 32 * MIB) as second:
        for file in sim.state.parent.glob("machine*"):
            file.unlink()

        assert used(first) == CONTEXT + 64 * MIB
        assert used(second) == 2 * CONTEXT + 96 * MIB
        assert used(first) == 2 * CONTEXT + 96 * MIB


@pytest.mark.parametrize("content", [b"", b"junk", bytes(1 << 16)])
def test_a_damaged_machine_file_is_replaced(sim: Sim, content: bytes) -> None:
    sim.run("sim_devices")
    (file,) = sim.state.parent.glob("machine*")
    file.write_bytes(content)

    assert sim.run("sim_families", "cycle", "linear", MIB).facts["left"] == 0


def test_a_foreign_layout_of_the_right_size_is_replaced(sim: Sim) -> None:
    sim.run("sim_devices")
    (file,) = sim.state.parent.glob("machine*")
    with file.open("r+b") as stream:
        stream.write(b"!OTHER!!" + b"\xff" * 64)

    assert sim.run("sim_families", "cycle", "linear", MIB).facts["left"] == 0


def test_other_machines_beside_a_live_one_are_other_machines(sim: Sim) -> None:
    with holding(sim, "linear", 64 * MIB) as process:
        other = sim.with_env(GPUS=2)

        assert len(other.run("sim_devices").facts["devices"]) == 2
        assert other.run("sim_families", "cycle", "linear", MIB).facts["left"] == 0
        assert used(process) == CONTEXT + 64 * MIB


def test_a_state_folder_that_is_missing_fails_cuinit_with_one_line(sim: Sim) -> None:
    done = sim.run("sim_devices", env={"GPUFENCE_SIM_STATE": "/nonexistent/machine"})

    assert done.facts["init"] == 304
    assert done.stderr.count("\n") == 1
    assert "GPUFENCE_SIM_STATE='/nonexistent/machine" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GPUS", "-1"),
        ("GPUS", "17"),
        ("GPUS", "two"),
        ("MEMORY", "1GBB"),
        ("MEMORY", "-4g"),
        ("MEMORY", "1m"),
        ("MEMORY", "99999999999999999999"),
        ("MEMORY", "1.g"),
        ("SMS", "0"),
        ("SPEED", "0"),
        ("SPEED", "fast"),
        ("SPEED", "1."),
        ("SPEED", "1e9"),
        ("BUS_MB_PER_S", "0"),
        ("KERNEL_NS", "1us"),
        ("EVENT_NS", "-1"),
        ("LAUNCH_NS", "1e3"),
        ("SLICE_NS", "999"),
        ("SWITCH_NS", "-1"),
        ("MPS", "2"),
        ("CONTEXT_BYTES", "0x10"),
        ("MIG", "8"),
        ("FAULTS", "cuMemAlloc_v2"),
        ("FAULTS", "cuMemAlloc_v2@0=2"),
        ("FAULTS", "cuMemAlloc_v2@0/2=2"),
        ("FAULTS", "cuMemAlloc_v2@2/0=2"),
        ("FAULTS", "cuMemAlloc_v2@2/=2"),
        ("FAULTS", "cuMemAlloc_v2@/2=2"),
        ("FAULTS", "cuMemAlloc_v2@2/3/4=2"),
        ("FAULTS", "cuMemAlloc_v2@*/2=2"),
        ("FAULTS", "cuMemAlloc_v9@1=2"),
        ("FAULTS", "cuMemAlloc_v2@1=stop"),
        ("FAULTS", "cuMemAlloc_v2@1=block:"),
        ("FAULTS", "cuMemAlloc_v2@1=late"),
        ("FAULTS", "cuMemAlloc_v2@1=0"),
        ("STATE", "x" * 600),
    ],
)
def test_a_setting_that_cannot_be_understood_fails_cuinit_with_one_line(
    sim: Sim, variable: str, value: str
) -> None:
    done = sim.run("sim_devices", env={f"GPUFENCE_SIM_{variable}": value})

    assert done.facts == {"init": UNKNOWN, "devices": []}
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"gpufence-sim: GPUFENCE_SIM_{variable}='{value[:300]}")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("64m", 64 * MIB), ("1.5GiB", 1536 * MIB), ("128MB", 128 * MIB), ("4194304", 4 * MIB)],
)
def test_sizes_take_every_usual_suffix(sim: Sim, value: str, expected: int) -> None:
    facts = sim.with_env(MEMORY=value).run("sim_devices").facts

    assert facts["devices"][0]["bytes"] == expected


def test_a_device_is_what_was_configured(sim: Sim) -> None:
    (device,) = sim.with_env(SMS=84, MEMORY="8g").run("sim_devices").facts["devices"]

    assert device["name"] == "gpufence simulated GPU"
    assert (device["sms"], device["major"], device["bytes"]) == (84, 9, 8 << 30)
    assert (device["bus"], device["by_bus"]) == ("0000:08:00.0", 0)


def test_a_machine_without_gpus_has_no_device(sim: Sim) -> None:
    assert sim.with_env(GPUS=0).run("sim_devices").facts == {"init": NO_DEVICE, "devices": []}


def gpu_text(uuid: str) -> str:
    """A UUID as CUDA_VISIBLE_DEVICES takes it."""
    groups = [uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]]
    return "GPU-" + "-".join(groups)


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("3,1", [3, 1]),
        (" 2 , 0 ", [2, 0]),
        ("1,-1,2", [1]),
        ("0,4,1", [0]),
        ("2,x,1", [2]),
        ("-1", []),
        ("", []),
        (",1", []),
        ("0,0", []),
        ("{1}", [1]),
        ("{2:12},0", [2, 0]),
        ("GPU-", []),
        ("GPU-ffffffff", []),
        ("MIG-1", []),
    ],
)
def test_visible_devices_are_read_in_every_form(sim: Sim, text: str, visible: list[int]) -> None:
    machine = sim.with_env(GPUS=4)
    uuids = [device["uuid"] for device in machine.run("sim_devices").facts["devices"]]
    value = text.replace("{1}", gpu_text(uuids[1])).replace("{2:12}", gpu_text(uuids[2])[:12])

    facts = machine.run("sim_devices", env={"CUDA_VISIBLE_DEVICES": value}).facts

    assert [device["uuid"] for device in facts["devices"]] == [uuids[index] for index in visible]
    assert facts["init"] == (0 if visible else NO_DEVICE)


def test_an_ambiguous_uuid_prefix_names_nobody(sim: Sim) -> None:
    machine = sim.with_env(GPUS=16)
    uuids = [device["uuid"] for device in machine.run("sim_devices").facts["devices"]]
    shared = next(uuid[0] for uuid in uuids if sum(other[0] == uuid[0] for other in uuids) > 1)

    facts = machine.run("sim_devices", env={"CUDA_VISIBLE_DEVICES": f"GPU-{shared}"}).facts

    assert facts["init"] == NO_DEVICE


def test_a_planned_fault_hits_the_call_it_names(sim: Sim) -> None:
    faulty = sim.with_env(FAULTS="cuMemGetInfo_v2@2=999;cuCtxCreate_v2@*=2")

    assert faulty.run("sim_families", "hold", "linear", MIB).stderr.startswith("cuCtxCreate_v2")
    faulty = sim.with_env(FAULTS="cuMemGetInfo_v2@2=999")
    assert "&free_bytes" in faulty.run("sim_families", "cycle", "linear", MIB).stderr


@pytest.mark.parametrize(
    ("calls", "failed"),
    [
        ("*", [1, 2, 3, 4, 5, 6, 7]),
        ("3", [3]),
        ("2/3", [2, 5]),
        ("7/2", [7]),
        ("1/1", [*range(1, 8)]),
    ],
)
def test_a_planned_fault_hits_each_call_that_it_names(
    sim: Sim, calls: str, failed: list[int]
) -> None:
    faulty = sim.with_env(FAULTS=f"cuDriverGetVersion@{calls}=999")

    codes = faulty.run(sys.executable, "-c", SEVEN_CALLS).stdout.split()

    assert [place for place, code in enumerate(codes, 1) if code == "999"] == failed
    assert set(codes) <= {"0", "999"}


def test_a_planned_kill_kills(sim: Sim) -> None:
    with holding(sim, "host", MIB) as watcher:
        faulty = sim.with_env(FAULTS="cuMemAlloc_v2@3=kill", MEMORY="143155m")

        done = faulty.spawn("sim_families", "fill", "linear", MIB)
        done.communicate("go\n")

        assert done.returncode == -signal.SIGKILL
        assert used(watcher) == CONTEXT


def test_a_planned_block_blocks(sim: Sim) -> None:
    slow = sim.with_env(FAULTS="cuDeviceGetCount@1=block:300")
    begin = time.monotonic()

    assert slow.run("sim_devices").facts["init"] == 0
    assert time.monotonic() - begin >= 0.3


def test_a_planned_delay_comes_after_the_deed(sim: Sim) -> None:
    late = sim.with_env(FAULTS="cuMemAlloc_v2@1=late:600000")
    process = late.spawn("sim_families", "hold", "linear", MIB)
    try:
        with holding(sim, "host", MIB) as watcher:
            deadline = time.monotonic() + 60
            while used(watcher) < 2 * CONTEXT + 2 * MIB:
                assert time.monotonic() < deadline, "what was asked for is not there"
                time.sleep(0.01)

        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_the_log_has_one_line_per_call_with_raw_arguments(sim: Sim) -> None:
    log = sim.state.parent / "calls"

    sim.with_env(LOG=str(log)).run("sim_codes", "wrong")

    lines = log.read_text().splitlines()
    assert all(line.rsplit(" ", 1)[1].startswith("#") for line in lines)
    names = [line.split()[0] for line in lines]
    assert names[:2] == ["cuInit", "cuCtxCreate_v2"]
    assert names.count("cuMemAlloc_v2") == 6
    zero_bytes = next(line for line in lines if line.startswith("cuMemAlloc_v2"))
    assert zero_bytes.split()[2] == "0x0"
    assert lines[0].split()[1] == "0x0"


def test_descriptors_and_environment_are_the_programs_own(sim: Sim) -> None:
    # All that the driver opened is closed by exec, or a child would keep its parent's slot.
    with holding(sim, "linear", MIB) as process:
        folder = f"/proc/{process.pid}/fd"
        flags = {
            os.readlink(f"{folder}/{fd}"): Path(f"/proc/{process.pid}/fdinfo/{fd}").read_text()
            for fd in os.listdir(folder)
            if int(fd) > 2
        }

    assert flags
    for target, info in flags.items():
        octal = next(line for line in info.splitlines() if line.startswith("flags:")).split()[1]
        assert int(octal, 8) & os.O_CLOEXEC, target
