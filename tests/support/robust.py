"""Whether somebody's thread holds a robust mutex, or is about to: as the kernel would find out.

The simulated driver's shared locks are such mutexes; the library has none. Must not know where they
lie.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from pathlib import Path

_GET_ROBUST_LIST = {"x86_64": 274, "aarch64": 100}
_HEAD = struct.Struct("=QqQ")  # the first one held, an offset, the one about to be taken or given


def holds_robust_mutex(pid: int) -> bool:
    """Of a stopped process. False where the kernel does not say, or the process is gone."""
    number = _GET_ROBUST_LIST.get(platform.machine())
    try:
        tids = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        return number is not None and any(_holds(number, tid) for tid in tids)
    except OSError:
        return False


def _holds(number: int, tid: int) -> bool:
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    libc = ctypes.CDLL(None)
    asked = libc.syscall(number, tid, ctypes.byref(head), ctypes.byref(size))
    if asked != 0 or not head.value:
        return False
    with Path(f"/proc/{tid}/mem").open("rb") as memory:
        memory.seek(head.value)
        first, _, pending = _HEAD.unpack(memory.read(_HEAD.size))
    return bool(first != head.value or pending != 0)
