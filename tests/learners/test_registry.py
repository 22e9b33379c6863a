"""Presets record their settings, passed by position or by name."""

import jaxret as jr
from jaxret.learners.mixture import blend_of


def test_a_family_has_the_settings_that_were_given_by_position():
    learner = jr.mixture([jr.grid(jr.frozen, tau=[0.02, 0.04])])
    assert learner.facts.origin is None  # experts cannot be written as JSON
    family, numbers = jr.traced(learner)
    assert blend_of(family(*numbers)) == blend_of(learner)
