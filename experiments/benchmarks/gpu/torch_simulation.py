"""Algorithm 1 as one would write it in PyTorch, without autograd, Theta in place on the same GPU.

    torch_eager             as it is written: no number comes back to Python
    torch_graphs            some rounds captured as one CUDA graph, which is replayed
    torch_compiled          a round by torch.compile, captured and replayed too

Without a GPU there is `torch_eager` alone; without torch nothing. Each of them in

    float32     products as they are written
    tf32        allowed for products of matrices. A round has none: it multiplies a matrix by a
                vector, and a vector by a vector. So expect the time of float32
    bfloat16    Theta and queries are kept in it, p is not: half of the bytes, but logits are
                rounded, and rows at each step (ours stay in float32, as do logits)
"""

from functools import partial

import numpy as np

from experiments.benchmarks.gpu.problem import ETA, TAU, Problem
from experiments.benchmarks.gpu.timing import Build, Call, within
from experiments.benchmarks.gpu.torch_here import compiled, device, here, tf32, wait

CAPTURED = 32  # rounds a graph


def torch_forms(found: Problem, rounds: int, precision: str) -> dict[str, Build]:
    """The forms that this machine can run, named ``<form>/<precision>``."""
    if not here():
        return {}
    builds: dict[str, Build] = {"torch_eager": partial(eager, found, rounds, precision)}
    if device() == "cuda":
        builds["torch_graphs"] = partial(graphs, found, rounds, precision, False)
        builds["torch_compiled"] = partial(graphs, found, rounds, precision, True)
    products = partial(tf32, precision == "tf32")
    return {f"{name}/{precision}": within(products, build) for name, build in builds.items()}


def eager(found: Problem, rounds: int, precision: str) -> tuple[Call, float]:
    """Launch by launch; a call returns Theta, which the next one goes on with."""
    import torch

    rows, queries, labels, order = _tensors(found, rounds, precision)
    order = order.tolist()

    @torch.inference_mode()
    def run():
        for query in order:
            play(rows, queries[query], labels[query])
        wait(rows)
        return rows

    return run, rounds


def graphs(found: Problem, rounds: int, precision: str, faster: bool) -> tuple[Call, float]:
    """Graph by graph: each replay plays the rounds whose numbers were copied into its input."""
    import torch

    step = compiled(play) if faster else play
    rows, queries, labels, order = _tensors(found, rounds, precision)
    captured = min(CAPTURED, rounds)
    now = order[:captured].clone()

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


def accuracy(found: Problem, rounds: int, precision: str) -> float:
    """The share of successes. PyTorch draws by its own numbers, so items are not comparable."""
    import torch

    torch.manual_seed(0)
    rows, queries, labels, order = _tensors(found, rounds, precision)
    with torch.inference_mode(), tf32(precision == "tf32"):
        bits = [play(rows, queries[query], labels[query]) for query in order.tolist()]
        return torch.stack(bits).mean().item()


def play(rows, q, labels):
    """One round: softmax, a draw, the bit, Eq. (4), the step; returns the bit."""
    import torch

    p = torch.softmax(torch.mv(rows, q).float() / TAU, dim=0)
    item = draw(p)
    y = (labels == item).any().to(p.dtype)
    p.scatter_add_(0, item, -y / p.gather(0, item))
    rows.addr_(p.to(rows.dtype), q, alpha=-ETA / TAU)
    return y


def draw(p):
    """An item [1] in proportion to p [I], as torch.multinomial draws one."""
    import torch

    return torch.argmax(p / torch.empty_like(p).exponential_(1)).reshape(1)


def _tensors(found: Problem, rounds: int, precision: str):
    import torch

    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    arrays = found.theta, found.stream.queries, found.stream.labels
    rows, queries, labels = (torch.tensor(np.asarray(x), device=device()) for x in arrays)
    order = torch.tensor(np.asarray(found.stream.order)[:rounds], device=device()).long()
    return rows.to(kind), queries.to(kind), labels.long(), order
