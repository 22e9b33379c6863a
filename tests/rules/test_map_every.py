"""Query maps that change once per tile of rounds, against NumPy."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.feedback import Censoring
from jaxret.learners import presets
from jaxret.learners.rank_one import relearn, rule_of
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_query_map
from jaxret.rules import query_maps, schedules
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback
from tests.problems import coming_and_going, same

ITEMS, WIDTH = 40, 8
TAU, ETA, RATE, SHARE, COUNT = 0.2, 0.02, 0.5, 0.8, 20.0
MAPS = {
    "linear": query_maps.linear(rate=RATE),
    "mean_centred": query_maps.mean_centred(rate=RATE, share=SHARE, count=COUNT),
    "low_rank": query_maps.low_rank(rate=RATE, rank=3),
}
HARD = coming_and_going(  # silences whole tiles
    noise_rate=0.1, censoring=Censoring(after_success=0.4, after_failure=0.6)
)


def tiled(name, every):
    inner = presets.greedy(tau=TAU, eta=ETA, schedule=schedules.inverse_sqrt())
    return with_query_map(inner, MAPS[name], map_every=every)


class LinearByHand:
    """``q + M q``; the changes of a tile are summed and added at its end."""

    def __init__(self):
        self.m, self.change = np.zeros((WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH))

    def apply(self, q):
        return q + self.m @ q

    def learn(self, q, pull):
        self.change -= RATE * np.outer(pull, q)

    def close(self):
        self.m, self.change = self.m + self.change, np.zeros_like(self.m)


class CentredByHand(LinearByHand):
    """``q + M q`` for q minus a share of the mean of the answered queries of earlier tiles."""

    def __init__(self):
        super().__init__()
        self.mean, self.answered, self.seen = np.zeros(WIDTH), [], []

    def apply(self, q):
        return super().apply(q - self.mean)

    def learn(self, q, pull):
        super().learn(q - self.mean, pull)
        self.seen.append(q)

    def close(self):
        super().close()
        self.answered, self.seen = self.answered + self.seen, []
        self.mean = SHARE * np.sum(self.answered, axis=0) / (len(self.answered) + COUNT)


class LowRankByHand(LinearByHand):
    """``q + A B q``; the gradients of both are taken at the tile's A and B."""

    def __init__(self):
        super().__init__()
        self.a, self.b = map(np.asarray, MAPS["low_rank"].init(WIDTH, jnp.float64))
        self.changes = [np.zeros_like(self.a), np.zeros_like(self.b)]

    def apply(self, q):
        return q + self.a @ (self.b @ q)

    def learn(self, q, pull):
        self.changes[0] -= RATE * np.outer(pull, self.b @ q)
        self.changes[1] -= RATE * np.outer(self.a.T @ pull, q)

    def close(self):
        self.a, self.b = self.a + self.changes[0], self.b + self.changes[1]
        self.changes = [np.zeros_like(self.a), np.zeros_like(self.b)]


BY_HAND = {"linear": LinearByHand, "mean_centred": CentredByHand, "low_rank": LowRankByHand}


def written_in_numpy(query_map, every, catalogue, stream, trace):
    """Compute the final Theta and each round's sum of logits from a run's items and rewards."""
    theta, sums = np.asarray(catalogue.theta), []
    arrives, leaves = np.asarray(HARD.arrives), np.asarray(HARD.leaves)
    for t, query in enumerate(np.asarray(stream.order)):
        if t and t % every == 0:
            query_map.close()
        q = np.asarray(stream.queries[query])
        here = np.asarray(catalogue.available) & (t >= arrives) & (t < leaves)
        u = query_map.apply(q)
        z = np.where(here, theta @ u / TAU, -np.inf)
        sums.append(z[here].sum())
        if np.isnan(trace.reward[t]):  # no answer
            continue
        p = np.exp(z - z.max())
        p /= p.sum()
        a = trace.item[t]
        away = p - np.eye(ITEMS)[a]
        c = away if trace.reward[t] else -away * p[a] / (1 - p[a])
        step = ETA / np.sqrt(t + 1) / TAU
        query_map.learn(q, step * theta.T @ c)
        theta = theta - step * np.outer(c, u)
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    return theta, sums


@pytest.mark.parametrize(
    ("name", "every"), [("linear", 1), ("linear", 5), ("mean_centred", 8), ("low_rank", 8)]
)
def test_the_scan_is_the_rule_written_in_numpy(problem, name, every):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        rule = tiled(name, every)

        def run():
            start, key = rule.init(*catalogue), jax.random.key(5)
            return scan_rounds(rule, start, HARD, stream, key)

        state, trace = jax.device_get(quick_jit(run)())
        query_map = BY_HAND[name]()
        theta, sums = written_in_numpy(query_map, every, catalogue, stream, trace)
    assert 20 < np.isnan(trace.reward).sum() < 80
    np.testing.assert_allclose(state.theta, theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(trace.logit_sum, sums, rtol=1e-8, atol=1e-8)


@cache
def updating(rule):
    return quick_jit(rule.update)


def answer(rule, state, query, item, reward):
    choice = Choice(item=np.int32(item), propensity=np.float32(1.0))
    return updating(rule)(state, query, choice, Feedback(np.float32(reward)))


def test_queries_are_mapped_by_the_tile_of_the_next_round(problem):
    """Between two tiles, scores include the changes of the finished tile."""
    catalogue, stream = problem(items=ITEMS)
    rule, queries = tiled("linear", 2), np.asarray(stream.queries)
    state, mapped = quick_jit(rule.init)(*catalogue), quick_jit(rule.structure.map_queries)
    for t in range(2):
        np.testing.assert_array_equal(mapped(state, queries), queries)
        state = answer(rule, state, queries[t], t, 1.0)
    tile = jax.device_get(state.extra[0])
    np.testing.assert_allclose(mapped(state, queries), queries + queries @ tile.change.T, rtol=1e-6)
    assert np.abs(tile.change).max() > 1e-3
    assert not tile.params.any()


def test_replayed_rewards_belong_to_the_tile_of_the_round_before_them(problem):
    catalogue, stream = problem(items=ITEMS)
    inner = tiled("linear", 2)
    rule = with_experience_replay(inner, per_round=1, capacity=1)
    replayed, state = quick_jit(rule.init)(*catalogue), quick_jit(inner.init)(*catalogue)
    again, one = quick_jit(partial(relearn, rule_of(inner))), np.ones(1, np.float32)
    for t, query in enumerate(np.asarray(stream.queries[:2])):
        replayed = answer(rule, replayed, query, t, 1.0)
        state = answer(inner, state, query, t, 1.0)
        state = again(state, query[None], Choice(np.full(1, t, np.int32), one), one, one)
        assert state.extra[0].number == 0
        assert not state.extra[0].params.any()  # four rewards within the first tile
    same(replayed.extra[0], state.extra, tolerance=1e-6)
