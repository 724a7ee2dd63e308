"""Transformer layers as functions over plain tensors, and captured graphs.

`torch` is handed in: importing it takes seconds, and tests read these modules without it. Values of
PyTorch are Any here, since no part of the project's checks installs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STEADY_RUNS = 100  # of a captured graph; as many before them bring the clock to its place
MOST_NOISE_RUNS = 20  # of a captured graph; the shortest counts, the others met a neighbour


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a transformer."""

    layers: int
    width: int
    heads: int
    context: int
    words: int


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights: the projections to query, key and value, out of attention, up and down."""

    query: Any
    key: Any
    value: Any
    out: Any
    up: Any
    down: Any


@dataclass(frozen=True, slots=True)
class Model:
    """Weights of a whole transformer."""

    shape: Shape
    table: Any
    places: Any
    layers: list[Layer]


def build(torch: Any, shape: Shape, device: str, dtype: Any) -> Model:  # noqa: ANN401
    """Random weights, small enough that nothing overflows."""

    def weights(*size: int) -> Any:  # noqa: ANN401
        return torch.randn(*size, device=device, dtype=dtype) * shape.width**-0.5

    wide, four = shape.width, 4 * shape.width
    layers = [
        Layer(
            query=weights(wide, wide),
            key=weights(wide, wide),
            value=weights(wide, wide),
            out=weights(wide, wide),
            up=weights(four, wide),
            down=weights(wide, four),
        )
        for _ in range(shape.layers)
    ]
    return Model(shape, weights(shape.words, wide), weights(shape.context, wide), layers)


def split(torch: Any, shape: Shape, flat: Any) -> Any:  # noqa: ANN401
    """(batch, time, width) to (batch, heads, time, width / heads)."""
    batch, time, _ = flat.shape
    return flat.view(batch, time, shape.heads, -1).transpose(1, 2)


def attend(torch: Any, model: Model, layer: Layer, inputs: Any) -> Any:  # noqa: ANN401
    """One layer over a whole sequence."""
    functional = torch.nn.functional
    wide = (model.shape.width,)
    normal = functional.layer_norm(inputs, wide)
    parts = [
        split(torch, model.shape, functional.linear(normal, weight))
        for weight in (layer.query, layer.key, layer.value)
    ]
    seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
    seen = seen.transpose(1, 2).reshape(inputs.shape)
    inputs = inputs + functional.linear(seen, layer.out)
    normal = functional.layer_norm(inputs, wide)
    up = functional.gelu(functional.linear(normal, layer.up))
    return inputs + functional.linear(up, layer.down)


def forward(torch: Any, model: Model, tokens: Any) -> Any:  # noqa: ANN401
    """The next token of each sequence of tokens."""
    functional = torch.nn.functional
    hidden = functional.embedding(tokens, model.table) + model.places[: tokens.shape[1]]
    for layer in model.layers:
        hidden = attend(torch, model, layer, hidden)
    return functional.linear(hidden[:, -1], model.table).argmax(-1)


@dataclass(frozen=True, slots=True)
class Decoding:
    """Sequences under way: their last tokens, keys and values so far, and the next place."""

    tokens: Any
    place: Any
    keys: list[Any]
    values: list[Any]


def begin_decoding(torch: Any, model: Model, batch: int, device: str, dtype: Any) -> Decoding:  # noqa: ANN401
    """Sequences of nothing, with room for the whole context."""
    shape = model.shape
    size = (batch, shape.heads, shape.context, shape.width // shape.heads)
    keys, values = (
        [torch.zeros(size, device=device, dtype=dtype) for _ in model.layers] for _ in range(2)
    )
    tokens = torch.zeros(batch, 1, device=device, dtype=torch.long)
    return Decoding(tokens, torch.zeros(1, device=device, dtype=torch.long), keys, values)


def gelu_in_pieces(torch: Any, inputs: Any) -> Any:  # noqa: ANN401
    """The tanh form, a kernel for each of its operations, as many published models have it."""
    inner = 0.7978845608 * (inputs + 0.044715 * torch.pow(inputs, 3.0))
    return 0.5 * inputs * (1.0 + torch.tanh(inner))


def decode(torch: Any, model: Model, state: Decoding, *, pieces: bool) -> None:  # noqa: ANN401
    """One token more for each sequence, in place; when the context is full it begins again.

    With `pieces` attention and activation are many small kernels, else fused ones.
    """
    functional, shape = torch.nn.functional, model.shape
    wide = (shape.width,)
    hidden = functional.embedding(state.tokens, model.table) + model.places[state.place]
    for layer, keys, values in zip(model.layers, state.keys, state.values, strict=True):
        normal = functional.layer_norm(hidden, wide)
        query, key, value = (
            split(torch, shape, functional.linear(normal, weight))
            for weight in (layer.query, layer.key, layer.value)
        )
        keys.index_copy_(2, state.place, key)
        values.index_copy_(2, state.place, value)
        if pieces:
            scores = torch.matmul(query, keys.transpose(2, 3)) * query.shape[-1] ** -0.5
            seen = torch.matmul(torch.softmax(scores, -1), values)
        else:
            seen = functional.scaled_dot_product_attention(query, keys, values)
        seen = seen.transpose(1, 2).reshape(hidden.shape)
        hidden = hidden + functional.linear(seen, layer.out)
        up = functional.linear(functional.layer_norm(hidden, wide), layer.up)
        up = gelu_in_pieces(torch, up) if pieces else functional.gelu(up)
        hidden = hidden + functional.linear(up, layer.down)
    state.tokens.copy_(functional.linear(hidden[:, -1:], model.table).argmax(-1))
    state.place.add_(1).remainder_(shape.context)


def captured(torch: Any, step: Callable[[], object]) -> Any:  # noqa: ANN401
    """A CUDA graph of one step, after some that warm up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def gpu_ms(torch: Any, graph: Any) -> float:  # noqa: ANN401
    """Milliseconds of the GPU that a replay takes."""
    least = float("inf")
    for _ in range(MOST_NOISE_RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        least = min(least, begin.elapsed_time(end))
    return least


def steady_gpu_ms(torch: Any, graph: Any) -> float:  # noqa: ANN401
    """Milliseconds of the GPU that each of many replays takes, one behind the other.

    Who keeps the GPU busy has it at the clock that its power allows, not at the highest one.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for mark in (begin, end):
        for _ in range(STEADY_RUNS):
            graph.replay()
        mark.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / STEADY_RUNS
