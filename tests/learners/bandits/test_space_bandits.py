"""Neural-linear's regression and noise against those of space-bandits 0.0.993, on one small log.

That is the code of Riquelme, Tucker and Snoek (2018) as a package; it needs PyTorch and is not
installed here. The numbers are what one arm of its `LinearBandits` (a0 6, b0 1.25, lambda_prior
0.8) had learnt from the features of the tools shown. It puts a 1 behind the features, which here is
the last number of every query.
"""

import jax.numpy as jnp
import numpy as np

from jaxret.learners.bandits import posterior, shared
from jaxret.learners.bandits.neural_linear import neural_linear
from tests.learners.bandits.conftest import Rounds

RNG = np.random.default_rng(0)
QUERIES = np.column_stack([RNG.normal(size=(30, 3))[:, :2], np.ones(30)])
LOG = Rounds(
    queries=QUERIES,
    items=RNG.integers(4, size=30),
    rewards=RNG.integers(2, size=30).astype(float),
    theta=RNG.normal(size=(4, 3)),
    propensities=np.full(30, np.nan),  # which it does not read
)
MEAN = [
    0.005778953346762455,
    -0.0913755419482921,
    0.05890061707502425,
    -0.015412926347109272,
    -0.03151406356606967,
    0.01702675896362882,
    0.5129060595700843,
]
DEVIATIONS = [0.22125413779023329, 0.3331219019882089, 0.2724812293848304, 0.24412309628008014]
SHAPE, RATE = 21.0, 4.8322281874553425


def test_it_learns_the_weights_and_the_noise(taught, float64):
    state = taught(neural_linear(ridge=0.8, shape=6.0, rate=1.25, start="zero"), LOG)[-1]
    np.testing.assert_allclose(state.extra.mean, MEAN, rtol=1e-11)
    np.testing.assert_allclose([state.extra.shape, state.extra.rate], [SHAPE, RATE], rtol=1e-11)
    with float64():
        x = shared.features(jnp.asarray(LOG.theta), jnp.asarray(QUERIES[0]), shared.itself)
        got = posterior.deviations(state.extra, x)
    np.testing.assert_allclose(got, DEVIATIONS, rtol=1e-11)
