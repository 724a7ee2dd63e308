"""Triton: a vector sum, compiled into an empty cache and launched by Triton's own launcher."""

import os
import tempfile

import evidence

_CACHE = tempfile.TemporaryDirectory()
os.environ["TRITON_CACHE_DIR"] = _CACHE.name

torch, triton, tl = evidence.need("torch", "triton", "triton.language")


@triton.jit  # type: ignore[untyped-decorator]
def add(a, b, out, count, block: tl.constexpr):  # type: ignore[no-untyped-def, name-defined]  # noqa: ANN001, ANN201
    """Adds two vectors, one block of elements a program."""
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    mask = offsets < count
    total = tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


def main() -> None:
    """One launch."""
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        raise SystemExit(evidence.SKIPPED)
    torch.manual_seed(7)
    a = torch.randn(98_432).cuda()
    b = torch.randn(98_432).cuda()
    out = torch.empty_like(a)
    add[(triton.cdiv(out.numel(), 1024),)](a, b, out, out.numel(), block=1024)
    evidence.tell("sum", evidence.digest(out.cpu().numpy()))
    evidence.tell("right", bool(torch.equal(out, a + b)))
    evidence.leave()


if __name__ == "__main__":
    main()
