"""When kernels ran, by CUPTI's records, and what that covers. Needs no GPU: CUPTI is imitated."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "workloads"))

import kernel_records
import steps

RECORD_BYTES = 176
CALLS, KERNEL = 4, 10  # kinds: a call of the driver, a kernel
TIMES = struct.Struct("<QQ8xI")


def record(kind: int, begin: int, end: int, device: int = 0) -> bytes:
    """The head of a record as CUPTI writes it, and something behind."""
    head = struct.pack("<I", kind).ljust(kernel_records.TIMES_AT, b"\xff")
    return (head + TIMES.pack(begin, end, device)).ljust(RECORD_BYTES, b"\xee")


class Imitation:
    """As much of libcupti as is called: fills buffers of two records and hands them over late."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records
        self.enabled = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return {
            "cuptiActivityRegisterCallbacks": self.register,
            "cuptiActivityEnable": self.enable,
            "cuptiActivityDisable": self.disable,
            "cuptiActivityFlushAll": self.flush,
            "cuptiActivityGetNextRecord": self.following,
        }[name]

    def register(self, asked: Any, done: Any) -> int:  # noqa: ANN401
        self.asked, self.done = asked, done
        return 0

    def enable(self, kind: int) -> int:
        self.enabled = kind == KERNEL
        return 0 if self.enabled else 1

    def disable(self, _kind: int) -> int:
        self.enabled = False
        return 0

    def flush(self, _flag: int) -> int:
        assert self.enabled
        for at in range(0, len(self.records), 2):
            buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
            self.asked(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
            body = b"".join(self.records[at : at + 2])
            assert buffer.value is not None
            assert (buffer.value % 8, most.value) == (0, 0)
            assert size.value >= len(body)
            ctypes.memmove(buffer.value, body, len(body))
            self.done(None, 0, buffer.value, size.value, len(body))
        self.records = []
        return 0

    def following(self, buffer: Any, used: Any, place: Any) -> int:  # noqa: ANN401
        before = place._obj.value  # what byref refers to
        after = buffer.value if before is None else before + RECORD_BYTES
        if after >= buffer.value + used.value:
            return 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
        place._obj.value = after
        return 0


def imitated(
    monkeypatch: pytest.MonkeyPatch, *records: bytes, device: int | None = None
) -> kernel_records.KernelRecords:
    cupti = Imitation(list(records))
    monkeypatch.setattr(kernel_records, "_load", lambda: cupti)
    return kernel_records.KernelRecords(device)


def test_every_kernel_of_every_buffer_is_told_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = imitated(
        monkeypatch,
        record(KERNEL, 300, 400),
        record(KERNEL, 10, 20),
        record(CALLS, 1, 999),
        record(KERNEL, 20, 50),
        record(KERNEL, 0, 0),  # one whose times CUPTI could not get
    )

    kept.begin()

    assert kept.end() == [(10, 20), (20, 50), (300, 400)]
    assert kept._buffers == {}


def test_of_a_process_with_several_gpus_those_of_one_can_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = (record(KERNEL, 10, 20), record(KERNEL, 30, 40, device=1))
    one, all_of_them = imitated(monkeypatch, *both, device=1), imitated(monkeypatch, *both)

    one.begin()
    all_of_them.begin()

    assert one.end() == [(30, 40)]
    assert all_of_them.end() == [(10, 20), (30, 40)]


def test_a_second_run_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = imitated(monkeypatch, record(KERNEL, 1, 2))
    kept.begin()
    kept.end()

    kept.begin()

    assert kept.end() == []


def test_what_cupti_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Imitation, "enable", lambda *_: 15)
    kept = imitated(monkeypatch)

    with pytest.raises(OSError, match="cuptiActivityEnable: CUPTI's status 15"):
        kept.begin()


def test_overlapping_kernels_count_once() -> None:
    busy = steps.united([(0, 40), (20, 60), (60, 70), (100, 900), (110, 120)])

    assert busy == [(0, 70), (100, 900)]
    assert steps.covered_ns(busy, 30, 130) == 70


def test_shares_are_of_whole_cycles_whole_seconds_and_steps() -> None:
    """Kernels of half a second, each half a second behind the one before."""
    spans = [(at * steps.SECOND_NS, at * steps.SECOND_NS + steps.SECOND_NS // 2) for at in range(4)]

    said = steps.described(spans, 2)

    seconds = [50.0, 50.0, 50.0]
    assert said == {"share": 50.0, "seconds": seconds, "step_ms": 1000.0, "kernels": 2.0}
