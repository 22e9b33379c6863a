"""PyTorch, where it is installed: its device, the precision of its products, and its compiler."""

import importlib.util
from collections.abc import Callable, Generator
from contextlib import contextmanager

LIMIT = 64  # programs of one function


def here() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


def device() -> str:
    """Where it computes."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def tf32(allowed: bool) -> Generator[None]:
    """Products of float32 matrices may take TF32, or not; without a GPU they never do."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed and device() == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def compiled(function: Callable) -> Callable:
    """`torch.compile`, a program a shape.

    Of the ninth program of a function PyTorch would say a word in its log and go on without
    compiling; here it is compiled too, and the `LIMIT`-th fails.
    """
    import torch

    torch._dynamo.config.recompile_limit = LIMIT
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(function, dynamic=False)


def wait(tensor) -> None:
    """Until everything on the tensor's device is done."""
    import torch

    if tensor.is_cuda:
        torch.cuda.synchronize()
