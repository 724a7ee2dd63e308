"""What every Python workload of the GPU run shares: skipping, exact numbers, and evidence.

Results go to stdout and must be the same with and without the library. Evidence (was the library
there?) goes to the file named by GPUFENCE_TEST_EVIDENCE and must differ.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

SKIPPED = 77


def need(*modules: str) -> list[ModuleType]:
    """Imports modules by name, or ends the workload as skipped with the reason on stdout."""
    try:
        return [importlib.import_module(name) for name in modules]
    except Exception as error:  # a broken installation raises anything
        print(f"{', '.join(modules)} cannot be imported: {type(error).__name__}: {error}")
        raise SystemExit(SKIPPED) from None


def tell(name: str, value: object) -> None:
    """Prints one result; floats bit by bit."""
    text = value.hex() if isinstance(value, float) else str(value)
    print(f"{name}: {text}", flush=True)


def digest(array: Any) -> str:  # noqa: ANN401 - any array with NumPy's tobytes
    """A fingerprint of an array's bytes."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def leave() -> None:
    """Writes the evidence; call it last, when everything is loaded."""
    path = os.environ.get("GPUFENCE_TEST_EVIDENCE")
    if path is None:
        return
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    body = {
        "libgpufence": "libgpufence.so" in maps,
        "libcuda": "libcuda.so" in maps,
        "libnvidia_ml": "libnvidia-ml.so" in maps,
    }
    Path(path).write_text(json.dumps(body) + "\n", encoding="utf-8")
