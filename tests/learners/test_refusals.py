"""Settings and compositions that are refused, each with one line that says why."""

import jax.numpy as jnp
import optax
import pytest

import jaxret as jr
from jaxret.learners.minibatch import adamw
from jaxret.learners.mixture import heaviest
from jaxret.rules import policies, preconditioners
from jaxret.types import Choice, Feedback

GREEDY, SLATES = jr.greedy(), jr.greedy(k=2)
REPLAYED, MAPPED = jr.with_experience_replay(GREEDY), jr.with_query_map(GREEDY)
BY_ROW = preconditioners.by_row()
MEMORY = jr.with_memory(GREEDY)


def mute(*, tau: float = 0.1) -> jr.Learner:
    return jr.greedy(tau=tau)._replace(name="mute", logits=None)


REFUSED = [
    (lambda: jr.check_learner(jr.greedy), r"got the function greedy: call it, greedy\(\)"),
    (lambda: jr.with_confidence(jr.greedy), r"got the function greedy: call it, greedy\(\)"),
    (lambda: jr.with_lexical(jr.greedy), r"got the function greedy: call it, greedy\(\)"),
    (lambda: jr.with_query_map(jr.greedy), r"got the function greedy: call it, greedy\(\)"),
    (lambda: jr.traced(jr.greedy), r"got the function greedy: call it, greedy\(\)"),
    (lambda: jr.grid(GREEDY, tau=[0.1]), "a function that makes learners, such as jr.greedy, got"),
    (lambda: jr.mixture([GREEDY]), r"one grid or more, from jr.grid\(..\), got \['greedy'\]"),
    (lambda: jr.orag(tau=0.0), "tau must be > 0, got 0.0"),
    (lambda: jr.greedy(eta=-0.1), "eta must be >= 0, got -0.1"),
    (lambda: jr.orag(divide_by="q"), "divide_by must be"),
    (lambda: jr.banditron(epsilon=2.0), r"epsilon must be in \[0, 1\], got 2.0"),
    (lambda: jr.mapped(map_every=0), "map_every must be a whole number >= 1, got 0"),
    (lambda: jr.mapped(map_every=2.5), "map_every must be a whole number >= 1, got 2.5"),
    (lambda: jr.guarded(GREEDY, 14.0), "budget must be >= 14.9, the doubt that delta=0.05"),
    (lambda: jr.guarded(GREEDY, 50, delta=1.0), r"delta must be in \(0, 1\), got 1.0"),
    (lambda: jr.guarded(GREEDY, 50, epsilon=0.0), r"epsilon must be in \(0, 1\), got 0.0"),
    (
        lambda: jr.guarded(SLATES, 50),
        "learner 'greedy' does not give the probability of each item: a guard needs one item",
    ),
    (lambda: jr.with_query_map(REPLAYED), "'greedy.replay' is not rank one: a query map needs"),
    (
        lambda: jr.with_query_map(adamw(tau=1.0, eta=1e-5)),
        "'adamw' is not rank one: a query map needs",
    ),
    (
        lambda: jr.with_preconditioner(REPLAYED, BY_ROW),
        "'greedy.replay' is not rank one: a preconditioner needs the parts of a rank-one",
    ),
    (
        lambda: jr.with_query_map(MAPPED),
        "'greedy.linear' already has the query map 'linear': give one",
    ),
    (
        lambda: jr.with_preconditioner(jr.row_steps(), BY_ROW),
        "'row_steps' already has the preconditioner 'by_row': give one",
    ),
    (
        lambda: jr.with_experience_replay(REPLAYED),
        "'greedy.replay' is not rank one: experience replay needs",
    ),
    (lambda: jr.with_exploration(SLATES), "policy 'greedy' with k=2 does not give the probability"),
    (
        lambda: jr.with_exploration(jr.with_experience_replay(SLATES)),
        "learner 'greedy.replay' does not give the probability of each item",
    ),
    (lambda: jr.with_exploration(GREEDY, 1.5), r"epsilon must be in \[0, 1\], got 1.5"),
    (
        lambda: jr.minibatch("mine", None, tau=0.3, batch=5),
        "optimiser must be a transformation of optax, such as optax.sgd.*, got None",
    ),
    (lambda: jr.minibatch("mine", optax.sgd(0.1), tau=0.3, batch=0), "batch must be >= 1, got 0"),
    (
        lambda: jr.with_experience_replay(adamw(tau=1.0, eta=1e-5)),
        "'adamw' is not rank one: experience replay",
    ),
    (lambda: jr.with_experience_replay(GREEDY, per_round=0), "per_round must be >= 1, got 0"),
    (lambda: jr.with_experience_replay(GREEDY, capacity=0), "capacity must be >= 1, got 0"),
    (lambda: jr.with_labels(jr.linucb()), "'linucb' is not rank one"),
    (lambda: jr.mixture([]), "experts must be one grid or more"),
    (
        lambda: jr.mixture([jr.grid(jr.full_information, tau=[0.1])]),
        "'full_information' is an oracle",
    ),
    (lambda: jr.mixture([jr.grid(mute, tau=[0.1])]), "'mute' has no softmax"),
    (lambda: jr.mixture(alpha=1.0), r"alpha must be in \[0, 1\), got 1.0"),
    (lambda: jr.mixture(beta=0.0), "beta must be > 0"),
    (lambda: jr.mixture(trust=0.0), "trust must be > 0, got 0.0"),
    (lambda: jr.mixture(floor=0.5), r"floor must be in \(0, 0.5\)"),
    (lambda: jr.mixture(prior=[1.0]), "prior must be 6 numbers"),
    (lambda: jr.mixture(prior=[0.0] * 6), "prior must be > 0"),
    (lambda: heaviest(GREEDY, None), "is not a mixture"),
    (lambda: jr.with_memory(GREEDY, bandwidth=0.0), "bandwidth must be > 0, got 0.0"),
    (lambda: jr.with_memory(GREEDY, strength=-1), "strength must be > 0, got -1"),
    (lambda: jr.with_memory(GREEDY, discount=0.0), r"discount must be in \(0, 1\], got 0.0"),
    (lambda: jr.with_memory(GREEDY, capacity=0), "capacity must be a whole number >= 1"),
    (lambda: jr.with_memory(jr.linucb()), "'linucb' has no softmax"),
    (lambda: jr.with_memory(MEMORY), "'greedy.memory' is wrapped: call with_memory once"),
    (
        lambda: jr.with_memory(jr.guarded(GREEDY, budget=100)),
        "'greedy.guard' is wrapped: .*before with_exploration and guarded",
    ),
    (
        lambda: jr.with_memory(GREEDY._replace(logits=jr.frozen().logits)),
        "'greedy' has no known policy: give policy=",
    ),
    (lambda: policies.exploring(policies.greedy(), epsilon=-1.0), "epsilon must be in"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_settings_and_compositions_are_refused(make, message):
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_an_oracle_without_labels_is_refused():
    rule, choice = jr.full_information(), Choice(jnp.asarray(0), jnp.asarray(1.0))
    with pytest.raises(ValueError, match="'full_information' is an oracle: it needs Feedback"):
        rule.update(rule.init(jnp.eye(2)), jnp.ones(2), choice, Feedback(jnp.asarray(1.0)))
