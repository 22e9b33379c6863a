"""Query maps that change once per tile of rounds: against NumPy, in split runs, and in blocks."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.environments.feedback import Censoring
from jaxret.learners import presets
from jaxret.learners.rank_one import relearn, rule_of
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_query_map
from jaxret.rules import projections, query_maps, schedules
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback

ITEMS, ROUNDS, WIDTH = 40, 100, 8
TAU, ETA, RATE, SHARE, COUNT = 0.2, 0.02, 0.5, 0.8, 20.0
IDS = np.arange(ITEMS)
MAPS = {
    "linear": query_maps.linear(rate=RATE),
    "mean_centred": query_maps.mean_centred(rate=RATE, share=SHARE, count=COUNT),
    "low_rank": query_maps.low_rank(rate=RATE, rank=3),
}
ARRIVES, LEAVES = np.where(IDS % 4 == 1, 30, 0), np.where(IDS % 4 == 2, 50, ROUNDS)
HARD = Environment(
    noise_rate=0.1,
    arrives=jnp.asarray(ARRIVES),
    leaves=jnp.asarray(LEAVES),
    censoring=Censoring(after_success=0.4, after_failure=0.6),  # silences whole tiles
)
SILENT = Environment(censoring=Censoring(after_success=1.0, after_failure=1.0))


@cache
def tiled(name, every, projection=presets.SPHERE):
    schedule = schedules.inverse_sqrt()
    inner = presets.greedy(tau=TAU, eta=ETA, schedule=schedule, projection=projection)
    return with_query_map(inner, MAPS[name], map_every=every)


@cache
def compiled(how, rule, silent):
    environment = SILENT if silent else HARD
    return jax.jit(lambda state, stream: how(rule, state, environment, stream, jax.random.key(5)))


def finish(how, rule, state, stream, silent=False):
    return jax.tree.map(np.asarray, compiled(how, rule, silent)(state, stream))


def same(got, expected, tolerance=0.0):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


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
    for t, query in enumerate(np.asarray(stream.order)):
        if t and t % every == 0:
            query_map.close()
        q = np.asarray(stream.queries[query])
        here = np.asarray(catalogue.available) & (t >= ARRIVES) & (t < LEAVES)
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
    ("name", "every"),
    [("linear", 1), ("linear", 5), *((name, 8) for name in MAPS)],
)
def test_the_scan_is_the_rule_written_in_numpy(problem, name, every):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        rule = tiled(name, every)
        state, trace = finish(scan_rounds, rule, rule.init(*catalogue), stream)
        query_map = BY_HAND[name]()
        theta, sums = written_in_numpy(query_map, every, catalogue, stream, trace)
    assert 20 < np.isnan(trace.reward).sum() < 80
    np.testing.assert_allclose(state.theta, theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(trace.logit_sum, sums, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "every", "block", "projection"),
    [
        *((name, 8, None, presets.SPHERE) for name in MAPS),
        ("low_rank", 256, None, presets.SPHERE),
        ("linear", 24, None, projections.none()),
        ("mean_centred", 32, 16, presets.SPHERE),
        ("low_rank", 32, 16, projections.ball(radius=0.9)),
    ],
)
def test_blocks_are_the_scan(problem, name, every, block, projection):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        rule = tiled(name, every, projection)
        start = rule.init(*catalogue)
        scanned = finish(scan_rounds, rule, start, stream)
        blocked = finish(partial(simulate_blocked, block=block), rule, start, stream)
    np.testing.assert_array_equal(blocked[1].item, scanned[1].item)
    same(blocked, scanned, tolerance=1e-12)


def part_of(stream, start, end):
    """Stream a slice of rounds, padded with -1 (end of stream) to a fixed shape."""
    order = np.full(ROUNDS, -1, stream.order.dtype)
    order[: end - start] = stream.order[start:end]
    return stream._replace(order=order)


@pytest.mark.parametrize("how", [scan_rounds, simulate_blocked])
def test_a_run_can_be_cut_and_resumed_anywhere(problem, how):
    """Exact in the scan and at the end of blocks; elsewhere up to rounding."""
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        rule = tiled("mean_centred", 32)
        start = rule.init(*catalogue)
        end, whole = finish(how, rule, start, stream)
        for cut in (37, 64):
            middle, first = finish(how, rule, start, part_of(stream, 0, cut))
            last, second = finish(how, rule, middle, part_of(stream, cut, ROUNDS))
            joined = jax.tree.map(
                lambda a, b, cut=cut: np.concatenate([a[:cut], b[: ROUNDS - cut]]), first, second
            )
            exact = how is scan_rounds or cut % 32 == 0
            same((last, joined), (end, whole), tolerance=0.0 if exact else 1e-12)


@pytest.mark.parametrize("how", [scan_rounds, simulate_blocked])
def test_the_first_minus_one_ends_a_stream(problem, how):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        rule = tiled("mean_centred", 32)
        start = rule.init(*catalogue)
        short, trace = finish(how, rule, start, part_of(stream, 0, 40))
        trace = jax.tree.map(lambda x: x[:40], trace)
        ended = stream._replace(order=np.where(np.arange(ROUNDS) == 40, -1, stream.order))
        state, longer = finish(how, rule, start, ended)
    same((state, jax.tree.map(lambda x: x[:40], longer)), (short, trace))


def test_blocks_without_an_answer_leave_the_map_unchanged(problem):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        rule = tiled("mean_centred", 32)
        middle, _ = finish(simulate_blocked, rule, rule.init(*catalogue), stream)
        state, _ = finish(simulate_blocked, rule, middle, stream, silent=True)
    same(state.extra, middle.extra)
    assert state.t == 2 * ROUNDS


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


def test_blocks_that_do_not_fit_a_tile_are_refused(problem):
    catalogue, stream = problem()
    for every, block, message in (
        (32, 24, "block must be a divisor of map_every=32, got 24"),
        (12, None, "has no blocked form: use scan_rounds"),
    ):
        rule = tiled("linear", every)
        with pytest.raises(ValueError, match=message):
            finish(partial(simulate_blocked, block=block), rule, rule.init(*catalogue), stream)
