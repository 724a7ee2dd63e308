"""The file that vgpu.rs's hypervisor shares with a pod, layout 2: two limits of each GPU, by UUID.

Its tokens and its heartbeat are for vgpu.rs's own limiter, and stay 0. Owns its bytes; must not
know who reads it.
"""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

from gpufence.errors import ToolError

from .book import WHOLE, Grant

FOLDER = "/run/tensor-fusion/shm"  # in a container
_NAME = "shm"
_BYTES = 35504
_LAYOUT = 1
_DEVICES_AT, _DEVICE_BYTES = 8, 136
_COUNT_AT = _DEVICES_AT + 16 * _DEVICE_BYTES
# UUID, percent, bytes, 44 bytes that are vgpu.rs's own, and whether it is there.
_DEVICE = struct.Struct("<64sI4xQ48xI")


def content(grant: Grant) -> bytes:
    """What the container of a grant reads.

    Raises:
        ToolError: exit 1, it has more GPUs than the layout.
    """
    found = bytearray(_BYTES)
    struct.pack_into("<I", found, 0, _LAYOUT)
    for index, gpu in enumerate(grant.gpus):
        at = _DEVICES_AT + index * _DEVICE_BYTES
        if at >= _COUNT_AT:
            raise ToolError(
                what=f"{grant.owner} refused",
                why=f"{len(grant.gpus)} GPUs are more than vgpu.rs's file has room for",
                fix="Ask for at most 16, or take hypervisor_listen out of the configuration",
            )
        _DEVICE.pack_into(found, at, gpu.encode(), grant.cores or WHOLE, grant.memory_bytes, 1)
    struct.pack_into("<I", found, _COUNT_AT, len(grant.gpus))
    return bytes(found)


def write(folder: Path, grant: Grant) -> None:
    """Have the file in a folder that the container cannot write to.

    Raises:
        OSError: it cannot be written.
        ToolError: as `content`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{_NAME}.", dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(content(grant))
    os.chmod(draft, 0o644)
    os.replace(draft, folder / _NAME)
