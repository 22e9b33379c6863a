"""Logs of a live index: lists, of which one tool is drawn, and tools that come and go."""

import itertools
import warnings

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.logs import load_log
from jaxret.offline.lists import list_weights, on_lists, without_rest
from jaxret.offline.off_policy import importance_weights
from jaxret.offline.snapshots import target, warm_start, with_probabilities
from tests.problems import make_task
from tests.slow import slowly

TASK = make_task(items=6, queries=40)
SERVING = jr.with_exploration(jr.greedy(tau=0.1, eta=0.02), 0.4)
POLICY = jr.orag(tau=0.2)
START = jax.jit(POLICY.init)
HALF = [one for n, one in enumerate(TASK.ids) if n != 2]


def right(row):
    """Return the right tools of a query as a mask."""
    return np.isin(np.arange(6), TASK.labels[row])


def worked_with(row, tool):
    """Return how probably a tool works for a query."""
    return 0.8 if right(row)[tool] else 0.2


def value(probabilities, masks):
    """Return the exact value of a policy: the mean over queries of each mask, by enumeration."""
    rewards = np.array([[worked_with(row, a) for a in range(6)] for row in range(len(TASK))])
    return np.mean([(probabilities(mask) * rewards).sum(axis=1).mean() for mask in masks])


def softmax_of(mask):
    """Return the probabilities [N, I] of `POLICY` over the tools of a mask."""
    z = np.where(mask, np.float64(TASK.queries) @ np.float64(TASK.theta).T / 0.2, -np.inf)
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def live(path, rng, rounds, *, come_and_go=False, chooses=False):
    """Serve searches with k = 3 and answer them; return the mask of each round.

    Args:
      path: file of the log.
      rng: draws the queries and the outcomes.
      rounds: number of searches.
      come_and_go: whether tools are removed, added and hidden.
      chooses: whether an agent uses the right tool of a list if there is one, and else the first;
        None of the others work.
    """
    index, masks = jr.Index(SERVING, TASK, seed=int(rng.integers(2**31)), log=path), []
    for t in range(rounds):
        if come_and_go and t == rounds // 3:
            index.remove(["tool_4"])
        if come_and_go and t == 2 * rounds // 3:
            index.add(["tool_4"], TASK.theta[4:5])
        row, allowed = int(rng.integers(len(TASK))), HALF if come_and_go and t % 2 else None
        ticket = index.search(TASK.queries[row], k=3, allowed=allowed)
        masks.append([one in index.ids and (allowed is None or one in allowed) for one in TASK.ids])
        tools = [TASK.ids.index(one) for one in ticket.ids]
        if chooses:
            good = [place for place, tool in enumerate(tools) if right(row)[tool]]
            place = good[0] if good else 0
            index.feedback(ticket, worked=bool(good), item=ticket.ids[place])
        else:
            index.feedback(ticket, worked=rng.random() < worked_with(row, tools[0]))
    index.close()
    return np.array(masks)


def valued(log, policy=POLICY, **more):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* effective rounds of .* are too few")
        return jr.off_policy(log, policy, **more)


@pytest.mark.parametrize(
    ("come_and_go", "logs"),
    slowly([(True, 4), (True, 200), (False, 50)], {(True, 200), (False, 50)}),
)
def test_the_truth_is_in_the_interval_of_the_log_of_a_live_index(tmp_path, logs, come_and_go):
    rng, inside, off = np.random.default_rng(0), 0, []
    for n in range(logs):
        path = tmp_path / f"{n}.jsonl"
        masks = live(path, rng, 150, come_and_go=come_and_go)
        log = load_log(path, TASK)
        if come_and_go:
            np.testing.assert_array_equal(log.sets[log.shown_from], masks)
        found = valued(log)
        truth = value(softmax_of, masks)
        inside += found["IPS"].low <= truth <= found["IPS"].high
        off.append([found[name].estimate - truth for name in ("IPS", "DR")])
        assert found["IPS"].high - found["IPS"].low < 0.9
    assert inside >= 0.95 * logs - 1
    error = np.std(off, axis=0, ddof=1) / logs**0.5
    assert (abs(np.mean(off, axis=0)) < 4 * error).all()


@pytest.mark.parametrize("logs", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_an_agent_that_chooses_among_k_is_valued_by_whole_lists(tmp_path, logs):
    """The truth is how often the right tool is on the policy's list, by enumeration."""
    theta, off = np.roll(TASK.theta, 1, axis=0), []  # a policy that is often wrong
    policy = jr.Snapshot(POLICY, START(theta))
    scores = np.float64(TASK.queries) @ np.float64(theta).T
    p = np.exp(scores / 0.2)
    p /= p.sum(axis=1, keepdims=True)
    listed = on_lists(p, scores, np.full(len(TASK), 3))
    truth = np.mean([listed[row][right(row)].sum() for row in range(len(TASK))])
    first = np.mean([p[row][right(row)].sum() for row in range(len(TASK))])
    rng = np.random.default_rng(1)
    for n in range(logs):
        live(tmp_path / f"{n}.jsonl", rng, 150, chooses=True)
        found = valued(load_log(tmp_path / f"{n}.jsonl", TASK), policy)
        off.append(found["IPS"].estimate - truth)
    error = np.std(off, ddof=1) / logs**0.5
    assert abs(np.mean(off)) < 4 * error
    assert 0.15 < truth < 0.95
    assert truth - first > 0.15


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_probabilities_on_lists_are_those_of_the_enumeration(k):
    rng = np.random.default_rng(k)
    p, scores = rng.dirichlet(np.ones(6), size=5), rng.normal(size=(5, 6))
    expected = np.zeros((5, 6))
    for row, chosen in itertools.product(range(5), range(6)):
        rest = [tool for tool in np.argsort(-scores[row]) if tool != chosen][: k - 1]
        expected[row, [chosen, *rest]] += p[row, chosen]
    np.testing.assert_allclose(on_lists(p, scores, np.full(5, k)), expected, atol=1e-12)


def test_the_log_of_an_index_has_the_probabilities_of_its_lists(tmp_path):
    learner = jr.with_exploration(jr.orag(tau=0.2, eta=0.0), 0.3)
    index = jr.Index(learner, TASK, log=tmp_path / "log.jsonl")
    for row in range(20):
        index.feedback(index.search(TASK.queries[row], k=3), worked=True, item=None)
    log = load_log(tmp_path / "log.jsonl", TASK)
    of_query, queries = jax.vmap(learner.probabilities, (None, 0)), TASK.queries[:20]
    p = np.asarray(jax.jit(of_query)(index.state, queries))
    scores = np.asarray(jax.jit(learner.scores)(index.state, queries))
    listed = on_lists(np.float64(p), scores, np.full(20, 3))
    np.testing.assert_allclose(log.listed, np.take_along_axis(listed, log.slate, 1), rtol=1e-5)
    weight, bare = list_weights(log, np.float64(p), scores)
    np.testing.assert_allclose(weight, 1, rtol=1e-5)
    assert not bare.any()
    cut = without_rest(log)
    assert cut.slate.shape == (20, 1)
    np.testing.assert_allclose(importance_weights(cut, np.float64(p))[0], 1, rtol=1e-5)


def test_a_log_without_exploration_says_what_to_change(tmp_path):
    for k, chooses in ((3, True), (3, False)):
        index = jr.Index(jr.greedy(tau=0.1), TASK, log=tmp_path / f"{chooses}.jsonl")
        for row in range(20):
            ticket = index.search(TASK.queries[row], k=k)
            index.feedback(ticket, worked=True, item=ticket.ids[chooses])
        log = load_log(tmp_path / f"{chooses}.jsonl", TASK)
        with pytest.raises(
            ValueError, match=r"no support .* jr.Index\(jr.with_exploration\(learner"
        ):
            jr.off_policy(log, POLICY)


def test_the_learner_of_a_log_with_changes_is_worked_out_again(tmp_path):
    """Its probabilities in each round, over the tools that could be shown, and its last state."""
    rng = np.random.default_rng(0)
    masks = live(tmp_path / "log.jsonl", rng, 60, come_and_go=True)
    log = without_rest(load_log(tmp_path / "log.jsonl", TASK))
    found = with_probabilities(log, SERVING)
    np.testing.assert_allclose(found.by_position, log.by_position, rtol=1e-4)
    assert (found.probabilities[~masks] == 0).all()
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, rtol=1e-5)
    assert valued(log, logging=SERVING)["DR"].interval == "anytime"
    learnt = warm_start(log, SERVING).state
    assert int(learnt.t) == 60
    aim = target(log, jr.Snapshot(POLICY, START(np.pad(TASK.theta, ((0, 3), (0, 0))))))
    p = aim.probabilities(slice(0, 60))
    assert p.shape == (60, 9)  # with spare rows, which are never shown
    assert (p[:, :6][~masks] == 0).all()
    assert (p[:, 6:] == 0).all()


def test_tools_that_were_added_follow_the_catalogue(tmp_path):
    index = jr.Index(SERVING, TASK, log=tmp_path / "log.jsonl")
    index.search(TASK.queries[0], k=6)
    index.add(["new"], TASK.queries[:1])
    index.search(TASK.queries[0], k=7)
    index.redescribe(["new", "tool_1"], TASK.queries[1:3])
    index.remove(["tool_0"])
    index.search(TASK.queries[0], k=6)
    log = load_log(tmp_path / "log.jsonl", TASK)
    np.testing.assert_array_equal(log.theta[[6, 1]], TASK.queries[1:3])
    np.testing.assert_array_equal(log.theta[2:6], TASK.theta[2:])
    shown = np.ones((3, 7), bool)
    shown[0, 6] = shown[2, 0] = False
    np.testing.assert_array_equal(log.sets[log.shown_from], shown)
    np.testing.assert_array_equal(log.available, shown[0])
    later = load_log(tmp_path / "log.jsonl", index.names)  # the catalogue of the end
    np.testing.assert_array_equal(later.sets[later.shown_from], shown)
    assert later.theta is None
    index.close()
    with pytest.raises(ValueError, match="the catalogue has no tool 'tool_5'"):
        load_log(tmp_path / "log.jsonl", TASK.ids[:5])


def test_a_tool_below_several_drawn_ones_has_no_weight(tmp_path):
    index = jr.Index(jr.orag(tau=0.2, k=2), TASK, log=tmp_path / "log.jsonl")
    for n in range(4):
        ticket = index.search(TASK.queries[n], k=4)
        index.feedback(ticket, worked=True, item=ticket.ids[1])
    log = load_log(tmp_path / "log.jsonl", TASK)
    assert without_rest(log).slate.shape == (4, 2)
    lower = log._replace(item=log.slate[:, 3])
    with pytest.raises(ValueError, match="round 0 used a tool below the 2 that were drawn"):
        jr.off_policy(lower, POLICY)
