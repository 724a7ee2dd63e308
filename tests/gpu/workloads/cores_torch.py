"""PyTorch training under a core limit: its rate, and how long its kernels ran.

`cores_torch.py MODEL`: convolution, convolution-graph, transformer or transformer-graph.
Large enough that the GPU and not the host decides the rate, too small for the power cap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import evidence
import steps


def convolution(torch: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """A small residual-free network on small images."""
    nn = torch.nn
    layers = []
    for wide_in, wide_out in ((3, 64), (64, 128), (128, 128)):
        layers += [nn.Conv2d(wide_in, wide_out, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return model.cuda(), torch.randn(512, 3, 32, 32, device="cuda")


def transformer(torch: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Two encoder layers and a head."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(512, 10)
    )
    return model.cuda(), torch.randn(64, 128, 512, device="cuda")


def stepper(torch: Any, model: Any, inputs: Any, *, graph: bool) -> Callable[[], None]:  # noqa: ANN401
    """One training step as a call, plain or as a captured graph."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(inputs).square().mean().backward()
        optimizer.step()

    if not graph:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()

    # The graph knows addresses alone; what they belong to lives as long as the call.
    def replay(_kept: object = (model, inputs)) -> None:
        captured.replay()

    return replay


def main() -> None:
    """Answers on stdout as steps.py says."""
    (torch,) = evidence.need("torch")
    name = sys.argv[1]
    torch.manual_seed(7)
    build = {"convolution": convolution, "transformer": transformer}[name.split("-")[0]]
    step = stepper(torch, *build(torch), graph=name.endswith("-graph"))
    steps.serve(step, torch.cuda.synchronize)


if __name__ == "__main__":
    main()
