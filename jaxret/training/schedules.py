"""Learning rates for training: up in a line, down in half a cosine.

A schedule maps the optimiser's step t = 0, 1, ..., T - 1 to a learning rate, as optax takes it.
Step sizes of the online learner are another thing: `jaxret.rules.schedules`.

Letters: W warm-up steps, T steps in all.
"""

import jax.numpy as jnp
import optax

from jaxret.runtime.validate import require


def warmup_cosine(peak: float, *, warmup: int, total: int) -> optax.Schedule:
    """From peak / W at step 0 to the peak at step W - 1, then a half cosine to 0 at step T.

    Every step moves, the first one and the last one too; from T on the rate is 0.

    Args:
      peak: the largest learning rate.
      warmup: W; 1 starts at the peak.
      total: T.
    """
    require("warmup", warmup, ">= 1 (1 starts at the peak)", lambda x: x >= 1)
    require("total", total, f">= warmup = {warmup}", lambda x: x >= warmup)

    def rate(t):
        since_peak = jnp.minimum(t, total) - (warmup - 1)
        falling = 0.5 * (1 + jnp.cos(jnp.pi * since_peak / (total - warmup + 1)))
        return peak * jnp.where(t < warmup, (t + 1) / warmup, falling)

    return rate


def reference_warmup_cosine(peak: float, *, warmup: int, total: int) -> optax.Schedule:
    """The rule of all of Tool2Vec's trainers, for runs that repeat theirs.

        peak t / W                                            t <  W
        peak (W - 1) / W  (1 + cos(pi (t - W + 1) / T)) / 2   t >= W

    Its first step has rate 0, the peak is never reached, and the cosine has period T though it
    starts after the warm-up, so that the last rate is above 0.

    Args:
      peak: the learning rate by name.
      warmup: W, at least 2: with 1 the rule is 0 at every step.
      total: T.
    """
    require("warmup", warmup, ">= 2 (with 1 this rule never moves)", lambda x: x >= 2)
    require("total", total, f">= warmup = {warmup}", lambda x: x >= warmup)

    def rate(t):
        falling = (warmup - 1) / warmup * (1 + jnp.cos(jnp.pi * (t - warmup + 1) / total)) / 2
        return peak * jnp.where(t < warmup, t / warmup, falling)

    return rate
