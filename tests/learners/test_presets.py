"""The presets: each has defaults for all arguments and an entry in the list of learners."""

import inspect
import json

import pytest

from jaxret.learners import registry
from jaxret.learners.rank_one import rule_of

# The paper's presets have no projection; the bound of Gaptron requires a convex set.
ELSEWHERE = {
    "frozen": "none",
    "hybrid": "none",
    "paper_sgd": "none",
    "paper_adamw": "none",
    "gaptron": "ball",
}


@pytest.mark.parametrize("name", registry.factories())
def test_every_argument_has_a_default_and_the_learner_bears_its_name(name):
    make = registry.factories()[name]
    defaults = [one.default for one in inspect.signature(make).parameters.values()]
    assert inspect.Parameter.empty not in defaults
    assert make().name == name


@pytest.mark.parametrize("name", registry.factories())
def test_rows_are_on_the_sphere_by_default(name):
    rule = rule_of(registry.factories()[name]())
    if rule is not None:
        assert rule.projection.name == ELSEWHERE.get(name, "sphere")


def test_all_are_listed_with_one_line_each():
    lines = registry.learners()
    assert list(lines) == list(registry.factories())
    assert all(line.endswith((".", ":")) and len(line) > 20 for line in lines.values()), lines


@pytest.mark.parametrize("name", registry.factories())
def test_a_learner_can_be_a_static_argument_of_a_compiled_function(name):
    make = registry.factories()[name]
    arguments = inspect.signature(make).parameters.values()
    number = next(one.name for one in arguments if isinstance(one.default, float))
    learner = make(**{number: 0.15})
    assert hash(learner) == hash(learner._replace())
    preset, settings = learner.facts.origin
    assert preset == name
    assert json.loads(settings) == {number: 0.15}
    assert registry.restore(name, learner.facts.origin).facts.origin == learner.facts.origin
