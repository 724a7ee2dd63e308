"""PyTorch: a small convolutional net trained for some steps, a captured graph, the allocator.

The allocator's mode comes from PYTORCH_CUDA_ALLOC_CONF.
"""

from __future__ import annotations

import os
from typing import Any

import evidence

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def train(torch: Any) -> None:  # noqa: ANN401
    """Eight deterministic steps; tells every loss and the trained weights."""
    nn = torch.nn
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(10)).cuda()
    inputs = torch.randn(32, 3, 32, 32).cuda()
    targets = torch.randint(0, 10, (32,)).cuda()
    model(inputs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        evidence.tell(f"loss {step}", loss.item())
    for name, weights in model.named_parameters():
        evidence.tell(f"weights {name}", evidence.digest(weights.detach().cpu().numpy()))


def capture(torch: Any) -> None:  # noqa: ANN401
    """A graph captured once and replayed on new inputs."""
    layer = torch.nn.Linear(256, 256).cuda()
    static = torch.randn(64, 256).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        layer(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = torch.relu(layer(static)) * 2
    for replay in range(3):
        static.copy_(torch.full((64, 256), 0.25 * replay))
        graph.replay()
        torch.cuda.synchronize()
        evidence.tell(f"replay {replay}", evidence.digest(output.cpu().numpy()))


def allocate(torch: Any) -> None:  # noqa: ANN401
    """The caching allocator's own books after a known sequence."""
    torch.cuda.empty_cache()
    start = torch.cuda.memory_allocated()
    blocks = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (1, 3, 20, 64)]
    evidence.tell("allocated", torch.cuda.memory_allocated() - start)
    del blocks[1:3]
    torch.cuda.synchronize()
    evidence.tell("allocated after free", torch.cuda.memory_allocated() - start)
    blocks.append(torch.zeros(40 << 20, dtype=torch.uint8, device="cuda"))
    evidence.tell("sum of zeros", int(blocks[-1].sum().item()))
    evidence.tell("total", torch.cuda.mem_get_info()[1])
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        evidence.tell("a petabyte", "granted")
    except torch.OutOfMemoryError:
        evidence.tell("a petabyte", "refused")


def main() -> None:
    """All three, on one device."""
    (torch,) = evidence.need("torch")
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        raise SystemExit(evidence.SKIPPED)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    evidence.tell("device", torch.cuda.get_device_name(0))
    evidence.tell("allocator", torch.cuda.get_allocator_backend())
    train(torch)
    capture(torch)
    allocate(torch)
    evidence.leave()


if __name__ == "__main__":
    main()
