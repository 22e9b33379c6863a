"""What each form must move and compute, whatever the machine: its limits, in one place.

A form moves bytes at the bandwidth of where its Theta or its weights lie (`machine.in_place`), and
computes at the machine's rate. Whichever takes longer is its limit:

    seconds >= max(bytes / bandwidth, operations / rate)

Of a simulation, a round:

    form                         multiply-adds        numbers moved
    scan, torch                  2 I d                3 I d       logits read Theta, the update
                                                                  reads and writes it
    floor (the two products)     2 I d                3 I d / B   the same once a block
    blocked, runs, one_program   2 I d + I (B + b)    3 I d / B   and what is pending: the block's
                                                                  each tile, the tile's each round

Of a network, m multiply-adds for a text of n tokens in l layers, H wide, with F inside:

    reading                      m = l (H (4 H + 2 F) n + 2 H n^2); weights are read once a batch
    step                         3 m: forward, and backward twice as much; AdamW reads and writes a
                                 weight, its gradient and two moments: 8 numbers a parameter

Left out is what is small or lies nearer than Theta: what a round does to its I logits, what is
pending, embeddings, heads, hidden states. So a form far above its limit is limited by what is left
out; below it none comes, but for reads, which can be a little quicker than passes in place.

Letters: I items, d width, B rounds a block, b rounds a tile.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxret.learners.learner import TILE
from jaxret.nn.bert import BertConfig
from jaxret.simulation.blocked.simulate import BLOCK

LIMITS = ("memory", "arithmetic")


class Work(NamedTuple):
    """Of a round, or of a call."""

    bytes: float
    operations: float  # a multiply-add is two

    def seconds(self, bandwidth: float, rate: float) -> dict[str, float]:
        """What each of `LIMITS` takes.

        Args:
          bandwidth: bytes a second.
          rate: operations a second.
        """
        return dict(zip(LIMITS, (self.bytes / bandwidth, self.operations / rate), strict=True))


def simulation(form: str, items: int, width: int) -> Work:
    """Of a round of a form of `experiments.benchmarks.simulate`."""
    theta = items * width
    if form in ("scan", "torch"):
        return _work(2 * theta, 3 * theta)
    pending = 0 if form == "floor" else items * (BLOCK + TILE)
    return _work(2 * theta + pending, 3 * theta / BLOCK)


def reading(config: BertConfig, lengths: Sequence[int], batches: int = 1) -> Work:
    """Of texts that a network reads.

    Args:
      config: of the network.
      lengths: tokens of each text, pads included where they are computed.
      batches: in which they come.
    """
    n, weights = np.asarray(lengths, np.float64), _weights(config)
    per_layer = float((weights * n + 2 * config.hidden * n**2).sum())
    return _work(config.layers * per_layer, config.layers * weights * batches)


def step(config: BertConfig, lengths: Sequence[int], parameters: int) -> Work:
    """Of a training step on a batch of texts.

    Args:
      config: of the network.
      lengths: as in `reading`.
      parameters: how many AdamW moves.
    """
    return Work(4.0 * 8 * parameters, 3 * reading(config, lengths).operations)


def _weights(config: BertConfig) -> int:
    """Of a layer: query, key, value and out, and the two of the perceptron."""
    return config.hidden * (4 * config.hidden + 2 * config.intermediate)


def _work(multiply_adds: float, numbers: float) -> Work:
    """Numbers in float32."""
    return Work(bytes=4.0 * numbers, operations=2.0 * multiply_adds)
