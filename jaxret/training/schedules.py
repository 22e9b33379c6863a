"""Learning-rate schedules for training: linear warm-up, then half a cosine.

A schedule maps the optimiser's step t = 0, 1, ..., T - 1 to a learning rate, as in optax. The step
sizes of online learners are in `jaxret.rules.schedules`.

Letters: W warm-up steps, T steps in all.
"""

import jax.numpy as jnp
import optax

from jaxret.runtime.validate import require


def warmup_cosine(peak: float, *, warmup: int, total: int) -> optax.Schedule:
    """Make a schedule that rises from peak / W at step 0 to the peak at step W - 1, then falls.

    The rate is above 0 at every step before T and 0 from T on.

    Args:
      peak: the largest learning rate.
      warmup: warm-up steps, W; 1 starts at the peak.
      total: steps in all, T.

    Raises:
      ValueError: if W is below 1 or above T.
    """
    require("warmup", warmup, ">= 1 (1 starts at the peak)", lambda x: x >= 1)
    require("total", total, f">= warmup = {warmup}", lambda x: x >= warmup)

    def rate(t):
        since_peak = jnp.minimum(t, total) - (warmup - 1)
        falling = 0.5 * (1 + jnp.cos(jnp.pi * since_peak / (total - warmup + 1)))
        return peak * jnp.where(t < warmup, (t + 1) / warmup, falling)

    return rate


def reference_warmup_cosine(peak: float, *, warmup: int, total: int) -> optax.Schedule:
    """Make the schedule of Tool2Vec's trainers.

        peak t / W                                            t <  W
        peak (W - 1) / W  (1 + cos(pi (t - W + 1) / T)) / 2   t >= W

    The first step has rate 0 and the peak is never reached. The cosine starts after the warm-up but
    has period T, so the last rate is above 0.

    Args:
      peak: the nominal learning rate.
      warmup: warm-up steps, W, at least 2: with 1 the rate is 0 at every step.
      total: steps in all, T.

    Raises:
      ValueError: if W is below 2 or above T.
    """
    require("warmup", warmup, ">= 2 (with 1 this rule never moves)", lambda x: x >= 2)
    require("total", total, f">= warmup = {warmup}", lambda x: x >= warmup)

    def rate(t):
        falling = (warmup - 1) / warmup * (1 + jnp.cos(jnp.pi * (t - warmup + 1) / total)) / 2
        return peak * jnp.where(t < warmup, t / warmup, falling)

    return rate
