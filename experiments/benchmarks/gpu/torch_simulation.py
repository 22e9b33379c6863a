"""Algorithm 1 as one would write it in PyTorch, without autograd, Theta in place on the same GPU.

    torch_eager             as it is written: no number comes back to Python
    torch_graphs            some rounds captured as one CUDA graph, which is replayed
    torch_compiled          a round by torch.compile, captured and replayed too

Without a GPU there is `torch_eager` alone; without torch nothing.
"""

import importlib.util
from collections.abc import Callable
from functools import partial

import numpy as np

from experiments.benchmarks.gpu.problem import ETA, TAU, Problem
from experiments.benchmarks.gpu.timing import Build, Call

CAPTURED = 32  # rounds a graph


def here() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


def torch_forms(found: Problem, rounds: int) -> dict[str, Build]:
    """The forms that this machine can run."""
    if not here():
        return {}
    import torch

    builds: dict[str, Build] = {"torch_eager": partial(eager, found, rounds)}
    if torch.cuda.is_available():
        builds["torch_graphs"] = partial(graphs, found, rounds, compiled=False)
        builds["torch_compiled"] = partial(graphs, found, rounds, compiled=True)
    return builds


def eager(found: Problem, rounds: int) -> tuple[Call, float]:
    """Launch by launch."""
    import torch

    rows, queries, labels, order = _tensors(found, rounds)
    order = order.tolist()

    @torch.inference_mode()
    def run():
        for query in order:
            play(rows, queries[query], labels[query])
        wait(rows)

    return run, rounds


def graphs(found: Problem, rounds: int, *, compiled: bool) -> tuple[Call, float]:
    """Graph by graph: each replay plays the rounds whose numbers were copied into its input."""
    import torch

    rows, queries, labels, order = _tensors(found, rounds)
    captured = min(CAPTURED, rounds)
    now = order[:captured].clone()
    step: Callable = torch.compile(play) if compiled else play

    def several():
        for position in range(captured):
            query = now[position : position + 1]
            step(rows, queries.index_select(0, query)[0], labels.index_select(0, query)[0])

    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            several()  # compiles, and finds its memory, before it is captured
            several()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            several()

    def run():
        for first in range(0, rounds - captured + 1, captured):
            now.copy_(order[first : first + captured])
            graph.replay()
        wait(rows)

    return run, rounds // captured * captured


def play(rows, q, labels) -> None:
    """One round: softmax, a draw, the bit, Eq. (4), the step."""
    import torch

    p = torch.softmax(torch.mv(rows, q) / TAU, dim=0)
    noise = torch.empty_like(p).exponential_(1)
    item = torch.argmax(p / noise).reshape(1)  # how torch.multinomial draws one
    y = (labels == item).any().to(p.dtype)
    p.scatter_add_(0, item, -y / p.gather(0, item))
    rows.addr_(p, q, alpha=-ETA / TAU)


def wait(tensor) -> None:
    """Until everything on the tensor's device is done."""
    import torch

    if tensor.is_cuda:
        torch.cuda.synchronize()


def _tensors(found: Problem, rounds: int):
    import torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    arrays = found.theta, found.stream.queries, found.stream.labels
    rows, queries, labels = (torch.tensor(np.asarray(x), device=where) for x in arrays)
    order = torch.tensor(np.asarray(found.stream.order)[:rounds], device=where).long()
    return rows, queries, labels.long(), order
