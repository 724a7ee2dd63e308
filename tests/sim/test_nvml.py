"""NVML over the simulated machine: one truth with CUDA, its own manners, its own re-entrance."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.machine import Sim

MIB = 1 << 20
GIB = 1 << 30
SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 0, 1, 2, 3, 6
INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT = 7, 9, 10
FUNCTION_NOT_FOUND, VERSION_MISMATCH = 13, 25
SAMPLE_US = 180_000


def query(sim: Sim, *arguments: str | int) -> Any:  # noqa: ANN401 - JSON
    """What nvml_query prints."""
    return sim.run("nvml_query", *arguments).facts


class Load:
    """A process that holds memory of a GPU and works on command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Wait until it holds what it was told to hold."""
        self.process = process
        held = self.line()
        assert held.startswith("held "), held
        self.pid = int(held.split()[1])

    def line(self) -> str:
        """The next line that the process prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def busy(self, milliseconds: int, percent: int) -> None:
        """Keep the GPU busy for that long; returns when it is done."""
        self.start_busy(milliseconds, percent)
        assert self.line() == "done"

    def start_busy(self, milliseconds: int, percent: int) -> None:
        """Begin to; returns at once."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"busy {milliseconds} {percent}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it the hard way and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@contextmanager
def load(sim: Sim, held_bytes: int, device: int = 0) -> Iterator[Load]:
    """A Load for the duration of a block."""
    process = sim.spawn("nvml_load", device, held_bytes)
    try:
        yield Load(process)
    finally:
        process.kill()
        process.communicate()


def test_a_device_is_found_again_by_all_its_marks(sim: Sim) -> None:
    devices = query(sim.with_env(GPUS=3), "devices")

    ways = ("minor", "by_uuid", "by_serial", "by_bus_id", "by_bus_id_legacy")
    assert [[device[way] for way in ways] for device in devices] == [[0] * 5, [1] * 5, [2] * 5]
    for mark in ("uuid", "serial", "bus_id"):
        assert len({device[mark] for device in devices}) == 3
    assert re.fullmatch(r"GPU-\w{8}-\w{4}-\w{4}-\w{4}-\w{12}", devices[0]["uuid"])
    assert re.fullmatch(r"[\dA-F]{8}:[\dA-F]{2}:[\dA-F]{2}\.0", devices[0]["bus_id"])


def test_every_process_of_a_machine_sees_the_same_devices(sim: Sim) -> None:
    sim = sim.with_env(GPUS=2)

    first, second = query(sim, "devices"), query(sim, "devices")

    assert first == second


def test_cuda_and_nvml_speak_of_the_same_devices(sim: Sim) -> None:
    source = (
        "import ctypes, json, uuid\n"
        "c = ctypes.CDLL('libcuda.so.1')\n"
        "c.cuInit(0)\n"
        "def ask(function, size, *rest):\n"
        "    out = ctypes.create_string_buffer(size)\n"
        "    assert function(out, *rest) == 0\n"
        "    return out.raw\n"
        "print(json.dumps([{\n"
        "    'name': ask(c.cuDeviceGetName, 96, 96, device).rstrip(b'\\0').decode(),\n"
        "    'uuid': f'GPU-{uuid.UUID(bytes=ask(c.cuDeviceGetUuid_v2, 16, device))}',\n"
        "    'bus': ask(c.cuDeviceGetPCIBusId, 32, 32, device).rstrip(b'\\0').decode(),\n"
        "    'total': int.from_bytes(ask(c.cuDeviceTotalMem_v2, 8, device), 'little'),\n"
        "} for device in range(2)]))\n"
    )
    sim = sim.with_env(GPUS=2)

    cuda = sim.run(sys.executable, "-c", source).facts

    assert cuda == [
        {
            "name": device["name"],
            "uuid": device["uuid"],
            "bus": device["bus_id_legacy"],
            "total": device["total"] - device["reserved"],
        }
        for device in query(sim, "devices")
    ]


def test_a_forked_child_begins_and_ends_nvml_for_itself(sim: Sim) -> None:
    source = (
        "import ctypes, json, os\n"
        "n = ctypes.CDLL('libnvidia-ml.so.1')\n"
        "count = lambda: n.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint()))\n"
        "n.nvmlInit_v2()\n"
        "if os.fork() == 0:\n"
        "    calls = (count, n.nvmlShutdown, n.nvmlInit_v2, count, n.nvmlShutdown, count)\n"
        "    print(json.dumps([call() for call in calls]), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "os._exit(count())\n"
    )

    done = sim.run(sys.executable, "-c", source)

    assert done.returncode == SUCCESS
    assert done.facts == [UNINITIALIZED, UNINITIALIZED, SUCCESS, SUCCESS, SUCCESS, UNINITIALIZED]


def test_without_a_gpu_nvml_finds_no_driver(sim: Sim) -> None:
    assert query(sim.with_env(GPUS=0), "devices") == {"nvmlInit_v2": DRIVER_NOT_LOADED}


def test_both_memory_queries_tell_one_truth(sim: Sim) -> None:
    (idle,) = query(sim.with_env(MEMORY="4g"), "devices")

    reserved = 18 * MIB  # 0.43 % of 4 GiB in whole MiB
    assert idle["reserved"] == reserved
    assert idle["total"] == idle["v2_total"] == 4 * GIB + reserved
    assert (idle["used"], idle["v2_used"]) == (reserved, 0)
    assert idle["free"] == idle["v2_free"] == 4 * GIB
    assert idle["bar1_total"] == 8 * GIB == idle["bar1_used"] + idle["bar1_free"]


def test_memory_of_other_processes_is_seen_at_once_and_comes_back_when_they_die(sim: Sim) -> None:
    sim = sim.with_env(MEMORY="4g", CONTEXT_BYTES="100m", GPUS=2)

    with load(sim, GIB) as holder:
        held, other = query(sim, "devices")
        holder.kill()
        left, _ = query(sim, "devices")

    assert held["v2_used"] == GIB + 100 * MIB
    assert held["free"] == 3 * GIB - 100 * MIB
    assert other["v2_used"] == 0
    assert (left["v2_used"], left["free"]) == (0, 4 * GIB)


def test_process_lists_name_who_holds_how_much(sim: Sim) -> None:
    sim = sim.with_env(CONTEXT_BYTES="100m")

    with load(sim, GIB) as one, load(sim, 2 * GIB) as two:
        lists = query(sim, "processes", 0, 8)

    expected = {one.pid: GIB + 100 * MIB, two.pid: 2 * GIB + 100 * MIB}
    for form in ("v1", "v2", "v3", "detail"):
        assert lists[form]["rc"] == SUCCESS
        assert lists[form]["count"] == 2
        assert {entry["pid"]: entry["bytes"] for entry in lists[form]["list"]} == expected, form
    assert lists["graphics"] == {"rc": SUCCESS, "count": 0, "list": []}


def test_a_process_list_is_told_of_the_room_that_it_lacks(sim: Sim) -> None:
    empty = query(sim, "processes", 0, 0)
    with load(sim, 0), load(sim, 0):
        none = query(sim, "processes", 0, 0)
        one = query(sim, "processes", 0, 1)

    for form in ("v1", "v2", "v3", "detail"):
        assert empty[form] == {"rc": SUCCESS, "count": 0, "list": []}
        assert none[form] == one[form] == {"rc": INSUFFICIENT_SIZE, "count": 2, "list": []}


def test_dead_processes_leave_the_lists(sim: Sim) -> None:
    with load(sim, GIB) as dead, load(sim, GIB) as alive:
        dead.kill()
        lists = query(sim, "processes", 0, 8)

    assert [entry["pid"] for entry in lists["v3"]["list"]] == [alive.pid]


def test_utilisation_is_the_share_of_the_last_second_in_which_kernels_ran(sim: Sim) -> None:
    with load(sim, 0) as half, load(sim, 0):
        half.busy(1600, 50)
        seen = query(sim, "utilization", 0, 0, 8)

    # The program sleeps between kernels, so a loaded test machine can only lower the share.
    for form in ("samples", "infos"):
        (sample,) = seen[form]["list"]
        assert sample["pid"] == half.pid
        assert 15 <= sample["sm"] <= 52
        assert 0 <= seen["now_us"] - sample["us"] <= SAMPLE_US + 200_000


def test_idle_processes_have_no_samples(sim: Sim) -> None:
    with load(sim, 0):
        idle = query(sim, "utilization", 0, 0, 8)

    assert (idle["rc"], idle["gpu"]) == (SUCCESS, 0)
    assert idle["samples"] == idle["infos"] == {"rc": NOT_FOUND, "count": 0, "list": []}


def test_a_sample_that_was_seen_is_not_told_again(sim: Sim) -> None:
    with load(sim, 0) as worker:
        worker.busy(500, 90)
        first = query(sim, "utilization", 0, 0, 8)
        newest = max(sample["us"] for sample in first["samples"]["list"])
        again = query(sim, "utilization", 0, newest + 10 * SAMPLE_US, 8)
        no_room = query(sim, "utilization", 0, 0, 0)

    assert again["samples"]["rc"] == again["infos"]["rc"] == NOT_FOUND
    assert no_room["samples"] == {"rc": INSUFFICIENT_SIZE, "count": 1, "list": []}
    assert no_room["infos"] == {"rc": INSUFFICIENT_SIZE, "count": 1, "list": []}


def test_samples_come_at_their_own_pace_whoever_asks_how_often(sim: Sim) -> None:
    with load(sim, 0) as worker:
        worker.start_busy(1500, 80)
        samples = query(sim, "watch", 0, 1200)
        assert worker.line() == "done"

    times = [sample["us"] for sample in samples]
    assert times == sorted(set(times))
    steps = {times[i + 1] - times[i] for i in range(len(times) - 1)}
    assert steps <= {SAMPLE_US - 1, SAMPLE_US, SAMPLE_US + 1}  # in whole microseconds
    assert 40 <= max(sample["gpu"] for sample in samples) <= 100


def test_two_busy_processes_share_the_device_in_the_samples_too(sim: Sim) -> None:
    with load(sim, 0) as one, load(sim, 0) as two:
        one.start_busy(1800, 100)
        two.busy(1800, 100)
        assert one.line() == "done"
        shares = {s["pid"]: s["sm"] for s in query(sim, "utilization", 0, 0, 8)["samples"]["list"]}

    assert shares.keys() == {one.pid, two.pid}
    assert sum(shares.values()) <= 101  # each is rounded to whole percent


def test_misuse_is_refused_with_nvmls_own_codes(sim: Sim) -> None:
    codes = query(sim, "misuse")

    assert codes == {
        "name into 22 bytes": INSUFFICIENT_SIZE,
        "written": 0,
        "name into 23 bytes": SUCCESS,
        "uuid into 40 bytes": INSUFFICIENT_SIZE,
        "uuid into 41 bytes": SUCCESS,
        "name into null": INVALID_ARGUMENT,
        "name of null": INVALID_ARGUMENT,
        "own name": SUCCESS,
        "own name tells": 1,
        "name of nobody": NOT_FOUND,
        "index beyond": INVALID_ARGUMENT,
        "unknown uuid": NOT_FOUND,
        "unknown serial": NOT_FOUND,
        "unknown bus": NOT_FOUND,
        "no bus": INVALID_ARGUMENT,
        "uuid null": INVALID_ARGUMENT,
        "still nothing": 1,
        "memory without version": FUNCTION_NOT_FOUND,
        "memory of other size": FUNCTION_NOT_FOUND,
        "memory untouched": 1,
        "utilization without version": VERSION_MISMATCH,
        "pci without version": VERSION_MISMATCH,
        "pci": SUCCESS,
        "pci class": 3,
        "list without buffer": INVALID_ARGUMENT,
        "pci v2": SUCCESS,
        "pci v2 keeps to 36 bytes": 1,
        "pci v1": SUCCESS,
        "pci v1 keeps to 32 bytes": 1,
        "event set": SUCCESS,
        "register": SUCCESS,
        "register unknown": NOT_SUPPORTED,
        "wait": TIMEOUT,
        "free": SUCCESS,
        "fan": NOT_SUPPORTED,
        "mig": SUCCESS,
        "mig is": 0,
        "mig device": NOT_FOUND,
        "init again": SUCCESS,
        "shutdown": SUCCESS,
        "still up": SUCCESS,
        "last shutdown": SUCCESS,
        "down": UNINITIALIZED,
        "count untouched": 1,
        "shutdown too often": UNINITIALIZED,
    }


def interposed(sim: Sim, program: str) -> list[str]:
    """Names of exports through which calls came, in order, while ctypes runs `program` on `n`."""
    source = (
        "import ctypes\n"
        "n = ctypes.CDLL('libnvidia-ml.so.1')\n"  # RTLD_LOCAL: only its own calls reach the outside
        "device, out = ctypes.c_void_p(), ctypes.create_string_buffer(256)\n" + program
    )
    interposer = sim.build / "tests" / "nvml_interposer.so"
    done = sim.run(sys.executable, "-c", source, env={"LD_PRELOAD": str(interposer)})
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


@pytest.mark.parametrize(
    ("call", "chain"),
    [
        ("n.nvmlInit_v2()", ["nvmlInitWithFlags"]),
        ("n.nvmlInit()", ["nvmlInit_v2", "nvmlInitWithFlags"]),
        ("n.nvmlDeviceGetCount(out)", ["nvmlDeviceGetCount_v2"]),
        ("n.nvmlDeviceGetHandleByIndex(0, out)", ["nvmlDeviceGetHandleByIndex_v2"]),
        ("n.nvmlDeviceGetHandleByPciBusId(b'0:0.0', out)", ["nvmlDeviceGetHandleByPciBusId_v2"]),
        ("n.nvmlDeviceGetMemoryInfo(device, out)", ["nvmlDeviceGetMemoryInfo_v2"]),
        ("n.nvmlDeviceGetMemoryInfo_v2(device, out)", []),
        ("n.nvmlDeviceGetPowerUsage(device, out)", []),
        (
            "n.nvmlDeviceGetPciInfo(device, out)",
            ["nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3"],
        ),
    ],
)
def test_nvml_calls_its_own_exports_through_its_interposer(
    sim: Sim, call: str, chain: list[str]
) -> None:
    setup = "n.nvmlInitWithFlags(0)\nn.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))\n"

    assert interposed(sim, setup + call) == chain


def test_calls_are_counted_and_faulted_before_they_reach_nvml(sim: Sim) -> None:
    source = (
        "import ctypes\n"
        "n, c = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.c_uint()\n"
        "n.nvmlInit_v2()\n"
        "print(*[n.nvmlDeviceGetCount_v2(ctypes.byref(c)) for _ in range(3)])\n"
    )

    done = sim.with_env(FAULTS="nvmlDeviceGetCount_v2@2=15").run(sys.executable, "-c", source)

    assert done.stdout == "0 15 0\n"
