"""SquareCB's and FastCB's chances against those of Vowpal Wabbit, for costs of its own.

SQUARECB: Vowpal Wabbit 9.11.9, `--cb_explore_adf --squarecb --gamma_scale 20 --gamma_exponent 0
--cb_type mtr --cb_min_cost -1 --cb_max_cost 0`, for four queries after 40 random bits of five
tools; the costs are what `--cb_adf --cb_type mtr` predicted after the same bits (both `--sgd
--power_t 0 -l 0.1 --noconstant -q qt`, no importance weights).

FASTCB: no release has it. The fork of one of its authors has, as `--squarecb --fast --sigmoid`
(github.com/canondetortugas/vowpal_wabbit, commit 5615f7c, cb_explore_adf_squarecb.cc): its loop
from the scores of a logistic model of costs to chances was compiled by itself, gamma 20. Where the
best cost is 0 it divides 0 by 0, and `inverse_gap` does not.

Both computed in 32 bits.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.fastcb import fastcb
from jaxret.learners.bandits.inverse_gap import inverse_gap

GAMMA, TOOLS = 20.0, 5
SQUARECB = [  # costs, chances
    (
        [-0.245149538, -0.374759614, -0.503322005, -0.195106044, -0.490379155],
        [0.0983917937, 0.132078618, 0.489803076, 0.0895710588, 0.190155402],
    ),
    (
        [-0.240843371, -0.503359675, -0.187885299, -0.124493271, -0.364733249],
        [0.0975578725, 0.605854392, 0.0884213299, 0.0795081481, 0.128658265],
    ),
    (
        [-0.488704115, -0.618070364, -0.877477288, -0.499173254, -0.733857751],
        [0.0782750472, 0.0981533527, 0.616966069, 0.0795793086, 0.127026215],
    ),
    (
        [-0.0749592409, -0.120117873, -0.193857819, -0.17236872, -0.060842678],
        [0.135538608, 0.154444948, 0.395303845, 0.184169456, 0.130543143],
    ),
]
FASTCB = [  # scores of costs, chances
    (
        [-2.0, 0.5, -0.3, 1.2, -1.1],
        [0.925139904, 0.011181063, 0.0177303348, 0.00877624471, 0.0371724516],
    ),
    (
        [-4.0, -3.5, -1.0, 2.0, -3.9],
        [0.796996117, 0.0568371862, 0.00352047081, 0.00103689928, 0.141609296],
    ),
    (
        [0.4, 0.1, 2.5, -0.6, 1.0],
        [0.0532159619, 0.068347685, 0.0269101076, 0.813449383, 0.0380768366],
    ),
]


@pytest.mark.parametrize(("costs", "expected"), SQUARECB)
def test_squarecb_shows_tools_as_vowpal_wabbit_does(float64, costs, expected):
    with float64():
        got = inverse_gap(-jnp.asarray(costs), jnp.ones(TOOLS, bool), GAMMA / TOOLS)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(("scores", "expected"), FASTCB)
def test_fastcb_shows_tools_as_its_authors_fork_does(float64, scores, expected):
    """Of rows of one number: what they score is success, and the cost is what is left of 1."""
    learner = fastcb(gamma=GAMMA / TOOLS, tau=1.0, start="zero")
    with float64():
        state = learner.init(jnp.zeros((TOOLS, 1)))
        state = state._replace(theta=-jnp.asarray(scores)[:, None])
        got = learner.chances(state, jnp.ones(1))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
