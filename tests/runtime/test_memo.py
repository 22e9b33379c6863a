"""Memoized factories: equal settings give the same object, and modules list their factories."""

from types import ModuleType

import pytest

from jaxret.rules import estimators, policies
from jaxret.runtime.memo import factories, memoized


def test_equal_settings_give_the_same_object():
    assert policies.softmax(k=2) is policies.softmax(temperature=1.0, k=2)
    assert policies.softmax(temperature=1) is not policies.softmax(temperature=1.0)
    assert policies.softmax(k=1) is not policies.softmax(k=True)


def test_a_module_lists_its_factories_that_take_settings_alone():
    assert list(factories(policies)) == ["softmax", "greedy", "epsilon_greedy"]  # not `exploring`
    assert factories(estimators)["clipped"] is estimators.clipped
    module = ModuleType("mine")
    module.plain, module.made = (lambda: 1), memoized(lambda *, x=1: x)
    assert list(factories(module)) == ["made"]


def test_the_least_recently_used_object_is_dropped():
    factory = memoized(lambda *, x: object(), kept=2)
    first, second = factory(x=1), factory(x=2)
    assert factory(x=1) is first
    factory(x=3)
    assert factory(x=1) is first
    assert factory(x=2) is not second
    with pytest.raises(TypeError, match="unexpected keyword"):
        factory(y=1)
