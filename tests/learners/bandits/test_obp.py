"""The step of logistic UCB against obp 0.5.7, the pipeline of the Open Bandit Dataset.

Its `MiniBatchLogisticRegression` is Algorithm 3 of Chapelle and Li (2011). It is not installed
here; the numbers are its means after one bit each, from priors at THETA / tau of precision 0.8. It
stops at a gradient of 1e-5. What it adds to the precision is left out: there it takes the logit for
one larger than it is. Its LogisticUCB adds the same bonus, to the probability.
"""

import jax.numpy as jnp
import numpy as np

from jaxret.learners.bandits.logistic_ucb import logistic_ucb
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback

RNG = np.random.default_rng(0)
THETA, QUERIES, BITS = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 3)), [0, 1, 1, 0, 1, 0]
TAU_TIMES_MEANS = [
    [0.047190927011437254, -0.331016889663927, 0.6649471227567529],
    [0.2349624195373181, -0.598983726330482, 0.39505237741600313],
    [1.3186507428325, 0.9486054691757847, -0.7157918404027316],
    [-0.7751248046149246, -0.37979473175774514, -0.07580319793547816],
    [-2.3285266895842067, -0.2195159575618837, -1.2464622815108202],
    [-0.8008436252434349, -0.5714765889091774, -0.36135947778675603],
]


def test_a_bit_moves_a_row_as_obp_moves_its_mean(float64):
    learner = logistic_ucb(ridge=0.8, tau=0.5, centre=0.0)
    update = quick_jit(learner.update)
    with float64():
        state = learner.init(jnp.asarray(THETA))
        for item, (query, bit) in enumerate(zip(QUERIES, BITS, strict=True)):
            choice = Choice(jnp.asarray(item, jnp.int32), jnp.asarray(1.0))
            state = update(state, jnp.asarray(query), choice, Feedback(jnp.asarray(1.0 * bit)))
    np.testing.assert_allclose(state.theta, TAU_TIMES_MEANS, atol=1e-5)
