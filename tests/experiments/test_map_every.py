"""Query maps that change only once in many rounds, on the small world."""

import numpy as np

from experiments import map_every
from jaxret.environments.environment import Environment
from jaxret.simulation.blocked.simulate import has_blocked_form, parts_of_all
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of


def configure(world, directory, *more):
    small = [*in_world(world, directory), "seeds=2", "rules=[mapped]", "every=[1,8]"]
    return config_of("map_every", *small, *more)


def test_every_tile_length_is_simulated_and_compared_with_the_first(world, tmp_path):
    map_every.main(configure(world, tmp_path))
    results = values_of(tmp_path)
    assert set(results) == {f"mapped {b}/{x}" for b in (1, 8) for x in ("online", "gain")}
    assert not results["mapped 1/gain"].any()
    gain = results["mapped 8/online"] - results["mapped 1/online"]
    np.testing.assert_allclose(results["mapped 8/gain"], gain)


def test_the_tile_is_that_of_every_map():
    for make in map_every.MAKERS.values():
        for every in (1, 32):
            rules = [rule for rule, _ in parts_of_all(make(every))]
            assert all(rule.map_every == every for rule in rules if rule.query_map is not None)
            assert any(rule.query_map is not None for rule in rules)
        assert has_blocked_form(make(32), Environment())
