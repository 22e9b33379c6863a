"""Banditron and SOBA against the MATLAB of DOGMA, on one small stream.

DOGMA is the library of Orabona, who is an author of SOBA. The numbers are what its
`banditron_multi_train.m` and `soba_diag_multi_train.m`, as they are in
github.com/bahh723/separable-bandit-classification at commit b0bdee5, made of this stream under
Octave 7.3, with gamma 0.2, a 0.1, and `rand` replaced by `DRAWS`.

That code and the algorithm of `soba` part over successes of a tool that was shown by chance: it
leaves their m out of the sum that must not fall below 0. There are two such successes here, and
both sums decide every round alike, so that rows and A are the same.
"""

import jax.numpy as jnp
import numpy as np

from jaxret.learners.bandits.banditron import banditron
from jaxret.learners.bandits.soba import soba
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback

RNG = np.random.default_rng(9)
TRUTH, QUERIES, DRAWS = RNG.normal(size=(4, 3)), RNG.normal(size=(60, 3)), RNG.random(60)
LABELS = (QUERIES @ TRUTH.T).argmax(axis=1)
BANDITRON = [
    [0.32169410255538677, 0.25419710470667434, -1.6698200530752776],
    [1.4536202242365643, 1.6457875011313632, 0.68028191562864682],
    [12.125617649755775, -6.7314616144615487, -5.4547232486896329],
    [-0.5925427344711609, -1.6562288250628359, 1.8598896420952875],
]
SOBA = [
    [0.15736034931876108, 0.045240916129951764, -0.35906424371758178],
    [0.35681041800749724, 1.3796986142983407, -0.2629201577392839],
    [0.17434671212858963, -0.24818852861704133, -1.1010577439360965],
    [-0.68748714165079583, -0.68775321370843578, 0.72118363311972511],
]
SOBA_A = [
    [23.200946918922572, 17.60229235472207, 15.580197118618972],
    [47.18942679239603, 19.84782838763092, 36.23506263348706],
    [36.859102129424194, 23.030565537593915, 11.809457718979516],
    [39.14960709616431, 32.663523097531126, 38.99716197130667],
]


def play(learner):
    """The state after all rounds, and the successes of tools that were not the best."""
    state = learner.init(jnp.zeros((4, 3)))
    chances, update = quick_jit(learner.chances), quick_jit(learner.update)
    lucky = 0
    for query, label, draw in zip(QUERIES, LABELS, DRAWS, strict=True):
        pi = np.asarray(chances(state, query))
        item = int(np.argmax(draw < pi.cumsum()))
        lucky += item == label and item != pi.argmax()
        choice = Choice(jnp.asarray(item, jnp.int32), jnp.asarray(pi[item]))
        state = update(state, query, choice, Feedback(jnp.asarray(float(item == label))))
    return state, lucky


def test_banditron_ends_with_the_rows_of_dogma(float64):
    with float64():
        state, lucky = play(banditron(tau=1.0, eta=1.0, epsilon=0.2, start="zero"))
    np.testing.assert_allclose(state.theta, BANDITRON, rtol=1e-12)
    assert lucky > 0


def test_soba_ends_with_the_rows_and_the_a_of_dogma(float64):
    with float64():
        state, lucky = play(soba(gamma=0.2, ridge=0.1, tau=1.0, start="zero"))
    np.testing.assert_allclose(state.theta, SOBA, rtol=1e-12)
    np.testing.assert_allclose(state.extra.diagonal, SOBA_A, rtol=1e-12)
    assert lucky == 2
