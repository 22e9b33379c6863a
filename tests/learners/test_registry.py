"""Presets record their settings, passed by position or by name, as Python numbers."""

import jax.numpy as jnp
import numpy as np

import jaxret as jr
from jaxret.learners.mixture import blend_of


def test_a_family_has_the_settings_that_were_given_by_position():
    learner = jr.mixture([jr.grid(jr.frozen, tau=[0.02, 0.04])])
    assert learner.facts.origin is None  # experts cannot be written as JSON
    family, numbers = jr.traced(learner)
    assert blend_of(family(*numbers)) == blend_of(learner)


def test_scalars_of_numpy_and_jax_are_numbers():
    assert jr.greedy(tau=np.float64(0.25), eta=jnp.float32(0.5)) is jr.greedy(tau=0.25, eta=0.5)
    parts = {"estimator": jr.estimators.clipped(floor=0.1), "policy": jr.policies.softmax()}
    hash(jr.rank_one("mine", **parts, tau=jnp.float32(0.25), eta=np.array(0.5)))
