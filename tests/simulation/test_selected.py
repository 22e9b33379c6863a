"""Selectors outside the program: called in every round, and their choice is used."""

import numpy as np

import jaxret as jr
from tests.problems import make_task

TASK = make_task()
SEEDS = (0, 1)
ORDERS = jr.stream_orders(TASK, 1, SEEDS)[:, :20]


def played(pick):
    """Return the trace of twenty rounds in chunks of eight, and the selector's inputs."""
    asked = []

    def select(queries, items):
        asked.append((np.array(queries), np.array(items)))
        return pick(items)

    learner = jr.orag(tau=0.3, eta=0.02, k=3)
    run = jr.simulate(learner, TASK, rounds=20, seeds=SEEDS, select=select, chunk=8)
    assert run.form == "round by round, selected outside"
    queries, items = (np.stack(parts, axis=1) for parts in zip(*asked, strict=True))
    return run.trace, queries, items


def test_the_selector_is_called_in_every_round_and_its_choice_is_used():
    for place in (0, 2):
        trace, queries, items = played(lambda items, place=place: np.full(len(items), place))
        np.testing.assert_array_equal(queries, ORDERS)
        np.testing.assert_array_equal(trace.item, items[..., place])


def test_the_reward_is_the_selectors_where_it_gives_one():
    rewards = np.array([1.0, 0.0], np.float32)
    trace, *_ = played(lambda items: (np.zeros(len(items), int), rewards))
    np.testing.assert_array_equal(trace.reward, np.repeat(rewards[:, None], 20, axis=1))


def test_the_selector_is_shown_tools_ranked_with_the_prior_scores():
    scores = np.random.default_rng(0).random((60, 12))
    known = make_task(prior=scores)
    first = lambda queries, items: np.zeros(len(items), int)  # noqa: E731
    run = jr.simulate(jr.hybrid(lexical=0.5, k=3), known, rounds=20, select=first)
    best = (known.queries @ known.theta.T + scores).argmax(axis=1)
    np.testing.assert_array_equal(run.trace.item[0], best[run.order[0]])
