"""The guard's guarantee against adversarial environments, in 2,000 runs each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.scenarios import guarantee
from tests.experiments.configs import config_of
from tests.experiments.conftest import values_of

SMALL = ["tracking=files", "seeds=2", "runs=1000", "rounds=60"]


def configure(directory, *more):
    settings = [*SMALL, "epsilons=[0.3]", "times=[1.0]", f"directory={directory}", *more]
    return config_of("scenarios_guarantee", *settings)


@pytest.fixture(scope="module", params=[0.3, pytest.param(0.1, marks=pytest.mark.slow)])
def found(request, tmp_path_factory):
    """Return a guard and the results of its runs."""
    directory = tmp_path_factory.mktemp("runs") / "guarantee"
    guarantee.main(configure(directory, f"deltas=[{request.param}]"))
    return guarantee.Guarded(request.param, 0.3, 1.0), values_of(directory)


@pytest.mark.parametrize("environment", guarantee.ENVIRONMENTS)
def test_the_budget_is_violated_with_probability_delta_at_most(found, environment):
    guard, results = found
    violated = results[f"{guard}/{environment}/violated"]
    assert violated.shape == (2,)
    assert violated.mean() <= guard.delta


def test_a_harmful_learner_is_stopped_and_violates_the_budget_at_the_exact_rate(found):
    """The rate is the chance that no coin selects static retrieval before the budget is spent."""
    guard, results = found
    chance = 0.7 ** (np.floor(guard.budget) + 1)
    error = np.sqrt(chance * (1 - chance) / 2_000)
    assert abs(results[f"{guard}/harms/violated"].mean() - chance) < 4 * error
    assert (results[f"{guard}/harms/stopped"] > 0.99).all()
    assert (results[f"{guard}/equal/violated"] == 0).all()


def past(lots, time=0.0, loss=0.0, bound=1.0):
    return guarantee.Past(jnp.array(lots), *(jnp.asarray(x) for x in (time, loss, bound)))


@pytest.mark.parametrize(
    ("environment", "state", "bits"),
    [
        ("harms", past([0.0, 0.9]), [1, 0]),
        ("worse", past([0.3, 0.3]), [1, 0]),
        ("equal", past([0.0, 0.9]), [1, 1]),
        ("drifts", past([0.4, 0.4], time=0.49), [0, 1]),
        ("drifts", past([0.4, 0.4], time=0.51), [1, 0]),
        ("turns", past([0.4, 0.4], time=0.02), [0, 1]),
        ("turns", past([0.4, 0.4], time=0.07), [1, 0]),
        ("knows", past([0.4, 0.4], loss=0.0, bound=0.1), [1, 1]),
        ("knows", past([0.4, 0.4], loss=0.2, bound=0.1), [1, 0]),
    ],
)
def test_environments_give_the_bits_of_their_words(environment, state, bits):
    np.testing.assert_array_equal(jax.jit(guarantee.ENVIRONMENTS[environment])(state), bits)
