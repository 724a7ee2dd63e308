"""One process of a job on several GPUs that is told what to do on stdin, as all of its ranks are.

`ranks.py KIND RANK RANKS MEETING [cpu]`; MEETING is a file of this job alone. Kinds: "ddp" and
"fsdp" train the network of clients.py, a rank for each GPU; "stages" is a pipeline in which each
rank computes with what the one before it sends; "pmap" is JAX, one process with all GPUs. Answers
on one line of JSON each:

    results          {"lines": what it computed, "libgpufence": was it there}
    rate SECONDS     {"rate": steps a second, "steps"}
    share SECONDS    the same, and what steps.py tells of its kernels, on its first GPU
    refused          what clients.py tells

The ranks agree when a time is over, since none can make a step alone.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clients
import evidence
import kernel_records
import memory_limit
import steps
from clients import CPU, DEVICE, PIECE_MIB, Client

WARM_UP = 6
WIDE, DEPTH, BATCH = (64, 2, 8) if CPU else (4096, 3, 2048)


@dataclass(frozen=True, slots=True)
class Job:
    """A client, and how its ranks agree: true for all when it is true for one."""

    client: Client
    agree: Callable[[bool], bool]
    device: int | None = None  # whose kernels count; None: of all, since there is but one


def joined(rank: int, ranks: int, meeting: str) -> Any:  # noqa: ANN401
    """PyTorch, with a process group of all ranks."""
    torch = clients.torch_module()
    if not CPU:
        if torch.cuda.device_count() < ranks:
            clients.no_gpu(f"rank {rank} of {ranks}")
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "gloo" if CPU else "nccl", init_method=f"file://{meeting}", rank=rank, world_size=ranks
    )
    return torch


def agreement(torch: Any) -> Callable[[bool], bool]:  # noqa: ANN401
    """By a flag that all ranks sum."""
    flag = torch.zeros(1, device=DEVICE)

    def agree(over: bool) -> bool:
        flag.fill_(float(over))
        torch.distributed.all_reduce(flag)
        return bool(flag.item() > 0)

    return agree


def training(kind: str, rank: int, ranks: int, meeting: str) -> Job:
    """Steps of the network; each rank has a batch of its own."""
    torch = joined(rank, ranks, meeting)
    nn = torch.nn
    torch.manual_seed(8 + rank)
    inputs = torch.randn(4 if CPU else 256, 3, 32, 32).to(DEVICE)

    def begin() -> Callable[[], Any]:
        model = clients.network(torch)
        if kind == "ddp":
            model = nn.parallel.DistributedDataParallel(model)
        else:
            from torch.distributed.fsdp import fully_shard

            mesh = torch.distributed.device_mesh.init_device_mesh(DEVICE, (ranks,))
            fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def step() -> Any:  # noqa: ANN401
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    def result() -> list[str]:
        step = begin()
        return [float(step().detach()).hex() for _ in range(4)]

    return Job(clients.on_torch(torch, begin(), result), agreement(torch))


def stages(rank: int, ranks: int, meeting: str) -> Job:
    """Each rank receives from the one before it, computes, and sends to the one behind it."""
    torch = joined(rank, ranks, meeting)
    torch.manual_seed(7 + rank)
    dtype = torch.float32 if CPU else torch.bfloat16
    weights = [torch.randn(WIDE, WIDE).to(DEVICE, dtype) / WIDE**0.5 for _ in range(DEPTH)]
    first = torch.randn(BATCH, WIDE).to(DEVICE, dtype)
    came = torch.empty_like(first)

    def step() -> Any:  # noqa: ANN401
        values = first
        if rank > 0:
            torch.distributed.recv(came, rank - 1)
            values = came
        for weight in weights:
            values = torch.tanh(values @ weight)
        if rank + 1 < ranks:
            torch.distributed.send(values, rank + 1)
        return values

    def result() -> list[str]:
        values = [step() for _ in range(2)][-1]
        return [clients.fingerprint(values.float().cpu())]

    return Job(clients.on_torch(torch, step, result), agreement(torch))


def everywhere(devices: int) -> Job:
    """JAX over all GPUs."""
    client = clients.jax(parallel=True)
    (library,) = evidence.need("jax")
    if library.local_device_count() < devices:
        clients.no_gpu("JAX over several devices")
    return Job(client, lambda over: over, device=0)


def made(kind: str, rank: int, ranks: int, meeting: str) -> Job:
    """A job by its kind."""
    if kind == "pmap":
        return everywhere(ranks)
    if kind == "stages":
        return stages(rank, ranks, meeting)
    return training(kind, rank, ranks, meeting)


def run(job: Job, seconds: float) -> dict[str, float]:
    """Steps until the ranks agree that the time is over."""
    began, count, over = time.monotonic(), 0, False
    while not over:
        for _ in range(job.client.at_once):
            job.client.step()
        count += job.client.at_once
        job.client.wait()
        over = job.agree(time.monotonic() - began >= seconds)
    return {"rate": count / (time.monotonic() - began), "steps": count}


def observed(job: Job, records: kernel_records.KernelRecords, seconds: float) -> dict[str, object]:
    """The same, and what its kernels' times say."""
    records.begin()
    ran = run(job, seconds)
    spans = records.end()
    return {**ran, **(steps.described(spans, ran["steps"]) if spans else {})}


def refused(job: Job) -> dict[str, object]:
    """Takes memory until the library's own error, gives it back and computes again."""
    client = job.client
    client.wait()
    gc.collect()
    client.give_back()
    said = memory_limit.filled(client.allocate, PIECE_MIB, client.errors)
    gc.collect()
    client.give_back()
    return {**said, "lines": client.result()}


def results(lines: list[str]) -> dict[str, object]:
    """What was computed at first, and whether the library is there."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return {"lines": lines, "libgpufence": "libgpufence.so" in maps}


def main() -> None:
    """See the module's text."""
    answers, sys.stdout = sys.stdout, sys.stderr
    kind, rank, ranks, meeting = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    job = made(kind, rank, ranks, meeting)
    lines = job.client.result()
    for _ in range(WARM_UP):
        job.client.step()
    job.client.wait()
    print("ready", file=answers, flush=True)
    records: kernel_records.KernelRecords | None = None
    for line in sys.stdin:
        what, *seconds = line.split()
        answer: dict[str, Any]
        if what == "results":
            answer = results(lines)
        elif what == "refused":
            answer = refused(job)
        elif what == "rate":
            answer = run(job, float(seconds[0]))
        else:
            try:
                records = records or kernel_records.KernelRecords(job.device)
            except OSError as error:
                answer = {"unseen": str(error), **run(job, float(seconds[0]))}
            else:
                answer = observed(job, records, float(seconds[0]))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
