"""Numba: a kernel written in Python, compiled and launched through the driver API."""

from __future__ import annotations

from typing import Any

import evidence


def restore_removed_names(numpy: Any) -> None:  # noqa: ANN401
    """Give numpy back the names that numba-cuda still imports and numpy 2.5 no longer has."""
    for removed, successor in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
        if not hasattr(numpy, removed):
            setattr(numpy, removed, getattr(numpy, successor))


def main() -> None:
    """A vector sum with device arrays, a stream and memory information."""
    (numpy,) = evidence.need("numpy")
    restore_removed_names(numpy)
    (cuda,) = evidence.need("numba.cuda")
    if not cuda.is_available():
        print("Numba sees no GPU")
        raise SystemExit(evidence.SKIPPED)

    @cuda.jit
    def add(a, b, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a[i] + b[i] * 2

    a = numpy.arange(100_000, dtype=numpy.float32)
    stream = cuda.stream()
    on_device = cuda.to_device(a, stream=stream)
    out = cuda.device_array_like(on_device, stream=stream)
    add[400, 256, stream](on_device, on_device, out)
    evidence.tell("sum", evidence.digest(out.copy_to_host(stream=stream)))
    stream.synchronize()
    context = cuda.current_context()
    evidence.tell("total", context.get_memory_info().total)
    evidence.tell("capability", context.device.compute_capability)
    evidence.leave()


if __name__ == "__main__":
    main()
