"""Prints what a driver says about itself without a GPU, as JSON: a script for test_versions.py.

Usage: driver_facts.py CUDA_LIBRARY NVML_LIBRARY [init | CUDA_NAMES NVML_NAMES]
With `init`, NVML is initialised first. With two files of names, each of these is called before any
initialisation, and that is all.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

TEXT_BYTES = 80
CODES = range(-2, 1010)


def errors(cuda: ctypes.CDLL) -> dict[int, list[object]]:
    """Return code, name and text of every CUresult that it knows, and of some unknown."""
    found: dict[int, list[object]] = {}
    for code in CODES:
        answers: list[object] = []
        for function in (cuda.cuGetErrorName, cuda.cuGetErrorString):
            text = ctypes.c_char_p(b"untouched")
            rc = function(code, ctypes.byref(text))
            answers += [rc, text.value.decode() if text.value is not None else None]
        if answers[0] == 0 or code in (-2, 12, 1009):
            found[code] = answers
    return found


def nvml_texts(nvml: ctypes.CDLL) -> dict[int, str]:
    """What nvmlErrorString says."""
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    return {code: nvml.nvmlErrorString(code).decode() for code in [*range(-1, 40), 999, 1000]}


def nvml_versions(nvml: ctypes.CDLL) -> dict[str, list[object]]:
    """Return code and text of the version functions, with room and without."""
    found: dict[str, list[object]] = {}
    for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"):
        for room in (TEXT_BYTES, 4):
            buffer = ctypes.create_string_buffer(b"untouched", TEXT_BYTES)
            rc = getattr(nvml, name)(buffer, room)
            found[f"{name}/{room}"] = [rc, buffer.value.decode()]
    for name in ("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"):
        if not hasattr(nvml, name):
            continue  # from driver 418 on
        number = ctypes.c_int(-7)
        found[name] = [getattr(nvml, name)(ctypes.byref(number)), number.value]
    return found


def before_init(library: ctypes.CDLL, listing: str) -> dict[str, int]:
    """What every listed function answers before initialisation to pointers at zeroes.

    Each runs in a process of its own: -N stands for signal N. Functions about which pointers at
    zeroes say nothing (they look at what is behind a handle first) are the caller's to leave out.
    """
    answers: dict[str, int] = {}
    for name in Path(listing).read_text(encoding="ascii").split():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            buffers = [ctypes.create_string_buffer(4096) for _ in range(16)]
            rc = getattr(library, name)(*(ctypes.cast(b, ctypes.c_void_p) for b in buffers))
            os.write(writer, str(rc).encode())
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        text = os.read(reader, 64)
        os.close(reader)
        answers[name] = int(text) if text else -(status & 127)
    return answers


def main() -> None:
    """Ask, then print."""
    cuda, nvml = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
    if len(sys.argv) == 5:
        listings = zip((cuda, nvml), sys.argv[3:], strict=True)
        print(json.dumps([before_init(library, names) for library, names in listings]))
        return
    version = ctypes.c_int(-7)
    facts: dict[str, object] = {
        "cuDriverGetVersion": [cuda.cuDriverGetVersion(ctypes.byref(version)), version.value],
        "cuDriverGetVersion(NULL)": cuda.cuDriverGetVersion(None),
        "cuGetExportTable": cuda.cuGetExportTable(
            ctypes.byref(ctypes.c_void_p()), ctypes.create_string_buffer(16)
        ),
        "nvmlShutdown": nvml.nvmlShutdown(),
        "nvmlInternalGetExportTable": nvml.nvmlInternalGetExportTable(
            ctypes.byref(ctypes.c_void_p()), ctypes.create_string_buffer(16)
        ),
        "errors": errors(cuda),
        "nvml_texts": nvml_texts(nvml),
    }
    if sys.argv[3:] == ["init"]:
        facts["nvmlInit_v2"] = nvml.nvmlInit_v2()
    facts["nvml_versions"] = nvml_versions(nvml)
    print(json.dumps(facts))


main()
