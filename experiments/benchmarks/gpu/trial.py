"""Does a kernel work here?

A kernel that reads where it may not takes its process with it, and whatever was to be measured
afterwards. So each is tried in a process of its own, against the form that it stands for.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from experiments.benchmarks.gpu.kernels import KERNELS
from experiments.benchmarks.gpu.problem import algorithm_1, on_gpu, problem, start
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import FULL, SMALL
from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.simulation.blocked.simulate import simulate_blocked


def broken(
    record: Record, names: Sequence[str] = tuple(KERNELS), seconds: float = 60
) -> tuple[str, ...]:
    """The kernels that fail when they are tried, side by side; the record says how."""
    env = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    code = f"import sys; from {__name__} import tried; tried(sys.argv[1])"
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    begun = {
        name: subprocess.Popen([sys.executable, "-c", code, name], env=env, **pipes)
        for name in names
    }
    failed = []
    for name, process in begun.items():
        try:
            said = process.communicate(timeout=seconds)[1].strip()
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            said = f"did not end within {seconds:g} s"
        if process.returncode:
            failed.append(name)
            record.leave_out(name, f"failed when it was tried: {said[-500:]}")
    return tuple(failed)


def tried(name: str) -> None:
    """Plays a block of rounds; raises RuntimeError where other items are shown."""
    settings = FULL if on_gpu() else SMALL
    size = settings.sizes[0]._replace(blocked=settings.block)
    found, key = problem(size, size.blocked), jax.random.key(0)
    for learner in (presets.greedy(), algorithm_1()):
        state, stream = start(learner, found), found.stream
        play = jax.jit(partial(KERNELS[name](settings), learner))
        shown = play(state, stream, key)[1].item
        wanted = simulate_blocked(learner, state, Environment(), stream, key)[1].item
        if (same := float((shown == wanted).mean())) < 0.9:
            raise RuntimeError(f"{name}: {same:.0%} of the items that {learner.name} shows")
