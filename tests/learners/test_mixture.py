"""A mixture of experts against Bayes' rule in NumPy."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

import jaxret as jr
from jaxret.learners.mixture import heaviest, mixture
from jaxret.simulation.streams import exposures
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback

CERTAIN = 1e6  # prior precision that disables calibration


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(3)
    theta = rng.normal(size=(7, 5))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(7, size=40)
    queries = theta[labels] + 0.6 * rng.normal(size=(40, 5))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return jr.Task.from_arrays(theta, queries, labels, name="seven")


def bayes(task, order, taus, *, alpha=0.0, beta=1.0, floor=1e-3, prior=None):
    """Compute the tools shown, the losses and the final weights of frozen experts."""
    experts = len(taus)
    prior = np.full(experts, 1 / experts) if prior is None else np.asarray(prior)
    weights, items, losses = prior.copy(), [], []
    for query in order:
        z = task.theta.astype(np.float64) @ task.queries[query].astype(np.float64)
        p = np.stack([softmax(z / tau) for tau in taus])
        item = int((weights @ p).argmax())
        bit = float(item in task.labels[query])
        sure = np.clip(p[:, item], floor, 1 - floor)
        likelihood = np.where(bit, sure, 1 - sure)
        losses.append(-np.log([weights @ likelihood, *likelihood]))
        weights = weights * likelihood**beta
        weights = (1 - alpha) * weights / weights.sum() + alpha * prior
        items.append(item)
    return np.array(items), np.array(losses), weights


@pytest.mark.parametrize(
    "settings",
    [{"alpha": 0.2, "beta": 0.5}, {"floor": 0.2, "prior": [0.7, 0.2, 0.1], "alpha": 0.1}],
)
def test_weights_and_tools_are_those_of_bayes_rule(task, settings):
    taus = [0.02, 0.2, 2.0]
    learner = mixture(
        [jr.grid(jr.frozen, tau=taus)], **{"alpha": 0.0, "trust": CERTAIN, **settings}
    )
    run = jr.simulate(learner, task, exposures=2, seeds=1)
    items, losses, weights = bayes(task, exposures(40, 2, 0), taus, **settings)
    np.testing.assert_array_equal(run.trace.item[0], items)
    np.testing.assert_allclose(np.exp(run.states.extra.log_weights[0]), weights, atol=1e-4)
    np.testing.assert_allclose(run.states.extra.losses[0], losses.sum(axis=0), rtol=1e-4)


def test_an_expert_learns_from_the_rewards_of_the_mixture_as_it_would_alone(task):
    """Compare rows with those of a single learner that receives the same choices."""
    alone = jr.greedy(tau=0.1, eta=0.05)
    experts = [jr.grid(jr.frozen, tau=[0.05]), jr.grid(jr.greedy, tau=[0.1, 0.3], eta=0.05)]
    learner = mixture(experts, alpha=0.0)
    rounds = np.array([2, 5, 2]), np.float32([1, 0, 1])

    @quick_jit
    def learned(theta, query):
        def one(states, line):
            choice, feedback = Choice(line[0], 1.0), Feedback(line[1])
            pairs = zip((learner, alone), states, strict=True)
            return tuple(x.update(state, query, choice, feedback) for x, state in pairs), None

        return lax.scan(one, (learner.init(theta), alone.init(theta)), rounds)[0]

    theta = task.theta.astype(np.float32)
    mixed, own = learned(theta, task.queries[0].astype(np.float32))
    np.testing.assert_allclose(mixed.extra.rows[1].theta[0], own.theta, rtol=1e-6)
    assert np.abs(mixed.extra.rows[1].theta[0] - mixed.extra.rows[1].theta[1]).max() > 1e-3
    assert mixed.extra.rows[0].theta == ()  # frozen experts have no rows
    np.testing.assert_array_equal(mixed.theta, theta)


def test_an_expert_is_calibrated_by_the_rewards_of_its_choices(task):
    """Compare u and v, which are fitted online, with a direct optimiser of the posterior."""
    learner = mixture([jr.grid(jr.frozen, tau=[0.02])], alpha=0.0, trust=2.0)
    run = jr.simulate(learner, task, exposures=12, seeds=1)
    z = task.queries.astype(np.float64) @ task.theta.T / 0.02
    p = np.clip(softmax(z, axis=1), 1e-12, 1 - 1e-6)
    order, items = run.order[0], run.trace.item[0]
    predicted = np.log(p / (1 - p))[order, items]
    bits = run.trace.reward[0].astype(np.float64)

    def posterior(line):
        logits = line[0] * predicted + line[1]
        loss = np.logaddexp(0, logits) - bits * logits
        return loss.sum() + (line[0] - 1) ** 2 + line[1] ** 2  # half of the precision 2

    best = minimize(posterior, [1.0, 0.0]).x
    found = run.states.extra.calibration.line[0, 0]
    assert best[0] < 0.5  # a temperature of 0.02 is overconfident
    np.testing.assert_allclose(found, best, atol=0.15)
    uncalibrated = jr.simulate(
        mixture([jr.grid(jr.frozen, tau=[0.02])], alpha=0.0, trust=CERTAIN), task, exposures=12
    )
    assert run.states.extra.losses[0, 0] < 0.7 * uncalibrated.states.extra.losses[0, 0]
    np.testing.assert_array_equal(
        uncalibrated.trace.item, run.trace.item
    )  # one expert keeps the order


@pytest.mark.parametrize("line", [[[1.0, 0.0], [1.0, 0.0]], [[0.3, -1.5], [2.0, 1.0]]])
def test_scores_rank_by_the_mixed_probabilities(task, line):
    """Use the initial calibration, and one that changes which item is best."""
    learner = mixture([jr.grid(jr.frozen, tau=[0.05, 1.0])], prior=[0.25, 0.75])

    @quick_jit
    def computed(theta, queries, line):
        state = learner.init(theta)
        calibration = state.extra.calibration._replace(line=line)
        state = state._replace(extra=state.extra._replace(calibration=calibration))
        rows = jax.vmap(learner.logits, (None, 0))(state, queries[:3])
        return learner.scores(state, queries), rows

    scores, rows = computed(*(np.asarray(x, np.float32) for x in (task.theta, task.queries, line)))
    z, expected = task.queries.astype(np.float64) @ task.theta.T, 0.0
    for weight, tau, (u, v) in zip((0.25, 0.75), (0.05, 1.0), line, strict=True):
        p = np.clip(softmax(z / tau, axis=1), 1e-12, 1 - 1e-6)
        expected = expected + weight * expit(u * np.log(p / (1 - p)) + v)
    expected = np.log(expected)
    np.testing.assert_allclose(scores, expected, rtol=1e-3)
    np.testing.assert_allclose(rows, expected[:3], rtol=1e-3)


def test_an_expert_that_is_always_wrong_loses_its_weight(task):
    """Mix an expert that ranks the right tool last with an expert that ranks it first."""

    def backwards(*, tau: float = 0.1) -> jr.Learner:
        learner = jr.frozen(tau=tau)
        return learner._replace(
            name="backwards",
            logits=lambda state, query: -learner.logits(state, query),
        )

    learner = mixture([jr.grid(backwards, tau=[0.1]), jr.grid(jr.frozen, tau=[0.1])], alpha=0.0)
    run = jr.simulate(learner, task, exposures=3, seeds=1)
    assert np.exp(run.states.extra.log_weights[0, 1]) > 0.999
    chosen, state = heaviest(learner, run.state(0))
    assert chosen.name == "mixture: frozen(tau=0.1)"
    np.testing.assert_array_equal(state.theta, task.theta)


def test_rows_of_the_heaviest_expert_are_what_is_saved(task, tmp_path):
    learner = mixture([jr.grid(jr.frozen, tau=[5.0]), jr.grid(jr.centred, tau=[0.1], eta=0.02)])
    run = jr.simulate(learner, task, exposures=5, seeds=1)
    run.save(tmp_path)
    saved = jr.load_embeddings(tmp_path)
    assert saved.facts["learner"] == "mixture: centred(tau=0.1)"
    state = run.state(0)
    np.testing.assert_allclose(saved.theta, state.extra.rows[1].theta[0], rtol=1e-6)
    assert json.loads((tmp_path / "embeddings.json").read_text())["settings"]["tau"] == 0.1


@pytest.mark.slow
def test_the_default_mixture_satisfies_the_contract():
    check_learner(mixture())


def test_the_likelihood_of_a_slate_is_the_product_over_its_items(task):
    taus, floor = [0.05, 0.5], 1e-3
    learner = mixture([jr.grid(jr.frozen, tau=taus)], alpha=0.0, floor=floor, trust=CERTAIN)
    choice, bits = Choice(np.array([1, 4, 6]), np.ones(3, np.float32)), np.float32([0, 1, 0])
    run = quick_jit(
        lambda theta, query: learner.update(learner.init(theta), query, choice, Feedback(bits))
    )
    query = task.queries[0]
    new = run(task.theta.astype(np.float32), query.astype(np.float32))
    z = task.theta.astype(np.float64) @ query
    p = np.stack([np.clip(softmax(z / tau), floor, 1 - floor) for tau in taus])[:, [1, 4, 6]]
    log_p = np.log(np.where(bits == 1, p, 1 - p)).sum(axis=1)
    expected = log_p - logsumexp(log_p)
    np.testing.assert_allclose(new.extra.log_weights, expected, rtol=1e-5, atol=1e-6)


def test_an_index_adds_new_tools_to_every_expert(task):
    experts = [jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.greedy, tau=[0.1, 0.2], eta=0.05)]
    index = jr.Index(mixture(experts), task)
    for n in range(4):
        index.feedback(index.search(task.queries[n], k=2), worked=1.0)
    learnt = np.array(index.state.extra.rows[1].theta)
    row = np.full(5, 5**-0.5, np.float32)
    index.add(["new"], [row])
    for rows in index.state.extra.rows[1].theta:
        np.testing.assert_allclose(rows[7], row, rtol=1e-6)
    np.testing.assert_array_equal(index.state.extra.rows[1].theta[:, :7], learnt)
    index.redescribe([task.ids[3]], [row], how="reset")
    np.testing.assert_allclose(index.state.extra.rows[1].theta[:, 3], [row, row], rtol=1e-6)


def test_the_default_experts_are_few_and_most_read_words():
    names = mixture().structure.experts
    assert len(names) == 6
    assert names[0] == "frozen(tau=0.02)"
    assert sum("lexical=0.25" in one for one in names) == 4
    state = jax.eval_shape(mixture().init, jnp.eye(4))
    assert state.extra.rows[0].theta == ()  # frozen experts have no rows
