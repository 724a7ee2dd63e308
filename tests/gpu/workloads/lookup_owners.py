"""Which file holds the function that a lookup finds: one JSON object on stdout.

Usage: lookup_owners.py QUESTIONS, a JSON file {"names": [...], "procedures": [[base, version,
flags], ...]}. Every name is looked up by dlsym in libcuda.so.1, every procedure by
cuGetProcAddress_v2. Answers are file names without folder; a miss is null.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path


class DlInfo(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file_name", ctypes.c_char_p),
        ("file_base", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("symbol_address", ctypes.c_void_p),
    )


def main() -> None:
    """Asks everything once."""
    questions = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    process = ctypes.CDLL(None)
    process.dlsym.restype = ctypes.c_void_p
    process.dlsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    process.dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(DlInfo))
    driver = ctypes.CDLL("libcuda.so.1")

    def owner(address: int | None) -> str | None:
        info = DlInfo()
        if not address or not process.dladdr(address, ctypes.byref(info)):
            return None
        return os.path.basename(info.file_name.decode()) if info.file_name else "?"

    def find(name: str) -> int | None:
        address: int | None = process.dlsym(driver._handle, name.encode())
        return address

    def procedure(base: str, version: int, flags: int) -> int | None:
        address, status = ctypes.c_void_p(), ctypes.c_int()
        ask = driver.cuGetProcAddress_v2
        ask.argtypes = (
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_int,
            ctypes.c_uint64,
            ctypes.POINTER(ctypes.c_int),
        )
        code = ask(base.encode(), ctypes.byref(address), version, flags, ctypes.byref(status))
        return address.value if code == 0 else None

    answers = {
        "names": {name: owner(find(name)) for name in questions["names"]},
        "procedures": [[*one, owner(procedure(*one))] for one in questions["procedures"]],
    }
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
