"""Simulations that receive SIGTERM."""

import signal
from collections.abc import Callable

import pytest

from jaxret.runtime.checkpoint import Interrupted
from jaxret.simulation.engine import Simulation


def stopped(simulate: Callable[[], object], *, at: int = 2) -> None:
    """Run a simulation, and send SIGTERM during chunk number ``at``."""
    steps, step = [], Simulation.step

    def interrupting(*args):
        steps.append(args)
        if len(steps) == at:
            signal.raise_signal(signal.SIGTERM)
        return step(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "step", interrupting)
        with pytest.raises(Interrupted):
            simulate()
    assert len(steps) == at
