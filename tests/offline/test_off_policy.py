"""Off-policy evaluation from a log to values: estimates, intervals and refusals."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.logs import take
from jaxret.offline.off_policy import FEW, groups_of_rows
from tests.offline.conftest import logged, make_log, slates_of_two
from tests.problems import make_task

TASK = make_task(queries=100)
SERVED = jr.with_exploration(jr.frozen(), 0.5)
TRUTH = (TASK.labels[:, 0] == (TASK.queries @ TASK.theta.T).argmax(axis=1)).mean()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Simulate 2,000 rounds of static retrieval with exploration, so values are closed sums."""
    return logged(SERVED, TASK, tmp_path_factory.mktemp("logs"), exposures=20)


def test_static_retrieval_is_known_from_the_log_of_what_explores(log):
    found = jr.off_policy(log, jr.frozen(), logging=SERVED)
    assert (found.name, found.rounds) == ("frozen", 2_000)
    assert found.logged == pytest.approx(log.reward.mean())
    assert found.logged < TRUTH - 0.1
    for name in ("IPS", "SNIPS", "DR", "Switch-DR", "DRos"):
        assert found[name].estimate == pytest.approx(TRUTH, abs=0.04), name
    for name in ("IPS", "DR"):
        value = found[name]
        assert value.interval == "anytime"
        assert value.low < TRUTH < value.high < value.low + 0.25
        assert (value.low, value.high) == (value.sequence.low[-1], value.sequence.high[-1])
        assert len(value.sequence.times) > 50
    for name in ("SNIPS", "Switch-DR"):
        assert found[name].interval == "bootstrap"
        assert found[name].low < TRUTH < found[name].high < found[name].low + 0.1
        assert found[name].sequence is None
    clipped = found["clipped IPS"]
    assert clipped.interval == "lower bound"
    assert TRUTH - 0.15 < clipped.low < TRUTH
    assert np.isnan(clipped.high)
    chance = 0.5 + 0.5 / 12  # of the best tool; a weight is 0 or 1 / chance
    assert found.effective == pytest.approx(2_000 * chance, rel=1e-5)
    assert found.mean_weight == pytest.approx((log.by_position > 0.5).mean() / chance, rel=1e-5)
    assert not found.few


def test_estimates_that_need_all_probabilities_are_left_out_without_them(log):
    known = jr.off_policy(log, jr.frozen(), logging=SERVED, groups=4)
    found = jr.off_policy(log, jr.frozen())
    assert {*known.values} - {*found.values} == {"MIPS, 4 groups"}
    assert (found["DR"].interval, known["DR"].interval) == ("none", "anytime")
    assert np.isnan([found["DR"].low, found["DR"].high]).all()
    for name, value in found.values.items():
        assert value.estimate == pytest.approx(known[name].estimate, abs=1e-5)
        assert value.interval in ("none", known[name].interval)
    assert known["DRos"].interval == known["MIPS, 4 groups"].interval == "none"


def test_mips_goes_from_the_log_to_ips(log):
    policy = jr.orag(tau=0.2)
    of_log = jr.off_policy(log, policy, logging=SERVED, groups=1)
    assert of_log["MIPS, 1 groups"].estimate == pytest.approx(log.reward.mean(), rel=1e-5)
    alone = jr.off_policy(log, policy, logging=SERVED, groups=np.arange(12))
    assert alone["MIPS, 12 groups"].estimate == pytest.approx(alone["IPS"].estimate, rel=1e-5)


def test_mips_groups_tools_by_the_rows_of_the_policy_and_not_by_the_documents(log):
    learner, rng = jr.orag(tau=0.2), np.random.default_rng(1)
    rows = TASK.theta[[0, 5, 9]][np.arange(12) % 3] + 0.01 * rng.normal(size=(12, 8))
    moved = jr.Snapshot(learner, learner.init(rows.astype(np.float32)))
    found = jr.off_policy(log, moved, logging=SERVED, groups=3)["MIPS, 3 groups"].estimate

    def by(groups):
        known = jr.off_policy(log, moved, logging=SERVED, groups=groups)
        return known["MIPS, 3 groups"].estimate

    assert found == pytest.approx(by(np.arange(12) % 3), rel=1e-6)
    assert abs(found - by(groups_of_rows(TASK.theta, 3))) > 0.01


def test_the_policy_that_served_has_the_value_that_it_had(log):
    found = jr.off_policy(log, SERVED, logging=SERVED)
    mean = log.reward.mean()
    for name in ("IPS", "SNIPS", "clipped IPS"):
        assert found[name].estimate == pytest.approx(mean, rel=1e-5)
    value = 0.5 * TRUTH + 0.5 / 12  # closer to the model than to the mean of these rounds
    assert found["DR"].estimate == pytest.approx(value, abs=0.01)
    assert found.mean_weight == pytest.approx(1, rel=1e-6)
    assert found.effective == pytest.approx(2_000, rel=1e-6)


def test_a_policy_can_be_given_as_probabilities(log):
    best = np.eye(12)[(log.query @ TASK.theta.T).argmax(axis=1)]
    found, learner = jr.off_policy(log, best), jr.off_policy(log, jr.frozen())
    assert found["IPS"].estimate == pytest.approx(learner["IPS"].estimate, rel=1e-6)
    assert found["SNIPS"].low == pytest.approx(learner["SNIPS"].low, rel=1e-6)
    assert "DR" in found.values  # its model reads only the tools
    grouped = jr.off_policy(log, best, logging=SERVED, groups=np.arange(12) % 3)
    assert "MIPS, 3 groups" in grouped.values
    assert not any("MIPS" in name for name in jr.off_policy(log, best, logging=SERVED).values)


def test_a_log_without_support_is_refused_with_what_to_do():
    best = (TASK.queries @ TASK.theta.T).argmax(axis=1)
    log = make_log(best, best == TASK.labels[:, 0], np.ones(100), query=TASK.queries)
    log = log._replace(theta=TASK.theta)
    sentence = (
        r"no support for the policy: in \d+ of 100 rounds it shows for certain what the policy "
        r"might not, so let what serves explore, as jr.with_exploration\(learner, epsilon=0.05\)"
    )
    for policy in (jr.orag(tau=0.2), jr.with_exploration(jr.frozen(), 0.1)):
        with pytest.raises(ValueError, match=sentence):
            jr.off_policy(log, policy)
    with pytest.raises(ValueError, match=sentence):  # and no warning of a division by 0
        jr.off_policy(log, jr.orag(tau=0.2), logging=jr.frozen())
    with pytest.warns(UserWarning, match="too few"):
        assert jr.off_policy(log, jr.frozen())["IPS"].estimate == pytest.approx(TRUTH)


def test_unanswered_rounds_are_left_out_with_a_warning(log):
    silent = np.arange(2_000) % 4 == 0
    some = log._replace(reward=np.where(silent, np.nan, log.reward))
    probabilities = np.eye(12)[(log.query @ TASK.theta.T).argmax(axis=1)]
    for policy in (jr.frozen(), probabilities):
        with pytest.warns(UserWarning, match="500 of 2000 rounds were not answered"):
            found = jr.off_policy(some, policy, logging=SERVED)
        assert found.rounds == 1_500
        weight = (probabilities[np.arange(2_000), log.item] / log.by_position[:, 0])[~silent]
        by_hand = (weight * log.reward[~silent]).mean()
        assert found["IPS"].estimate == pytest.approx(by_hand, rel=1e-4)
    with pytest.raises(ValueError, match=r"rounds that were answered must be >= 2, got 1"):
        jr.off_policy(some._replace(reward=np.r_[1, np.full(1_999, np.nan)]), jr.frozen())


def test_too_few_effective_rounds_give_a_warning(log):
    """Cover heavy weights that occur, and heavy weights that happen not to occur in the log."""
    away = jr.Snapshot(jr.frozen(), jr.frozen().init(-TASK.theta))
    with pytest.warns(UserWarning, match=r"frozen: \d+ effective rounds of 2,000 are too few"):
        found = jr.off_policy(log, away)
    assert found.few
    assert found.effective < FEW
    assert "effective (too few for a bootstrap)" in repr(found)
    n = 1_000
    unlucky = make_log(np.zeros(n, int), np.ones(n), np.full(n, 0.99))
    probabilities = np.tile([0.5, 0.5], (n, 1))  # a weight of 50 in one of 100 rounds
    with pytest.warns(UserWarning, match="too few"):
        found = jr.off_policy(unlucky, probabilities)
    assert found.effective == pytest.approx(n)
    assert found["SNIPS"].high == found["SNIPS"].low == 1  # the bootstrap's interval
    assert found["IPS"].low < 0.5
    assert found["IPS"].high == 1
    jr.off_policy(log, jr.frozen())  # no warning


def test_slates_are_weighted_by_position():
    """The truth is how often the right tool is drawn first or second, by enumeration."""
    log = slates_of_two(TASK, 0.4, rounds=8_000)
    p = np.exp(np.float64(TASK.queries) @ np.float64(TASK.theta).T / 0.25)
    p /= p.sum(axis=1, keepdims=True)
    right = np.arange(12) == TASK.labels[:, :1]
    truth = (p[right] * (1 + np.where(right, 0, p / (1 - p)).sum(axis=1))).mean()
    for policy in (jr.orag(tau=0.25, k=2), jr.orag(tau=0.25)):
        found = jr.off_policy(log, policy)
        assert [*found.values] == ["IPS", "SNIPS", "clipped IPS"]
        assert abs(truth - found.logged) > 0.05
        for name in ("IPS", "SNIPS"):
            assert found[name].estimate == pytest.approx(truth, abs=0.03)
            assert found[name].low < truth < found[name].high


def test_estimates_print_as_a_table(log):
    lines = repr(jr.off_policy(log, jr.frozen(), logging=SERVED, groups=3)).splitlines()
    assert lines[0].startswith("frozen on 2,000 rounds, which earned 0.")
    names = ["IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR", "DRos", "MIPS, 3 groups"]
    assert [line.split("  ")[0] for line in lines[1:]] == names
    assert lines[1].endswith(", anytime")
    assert " to " in lines[1]
    assert "at least 0." in lines[3]
    assert lines[6].split()[-1] == lines[6].split()[1]  # no interval


def test_a_smaller_alpha_widens_the_interval(log):
    wide = jr.off_policy(log, jr.frozen(), alpha=0.001)["IPS"]
    narrow = jr.off_policy(log, jr.frozen(), alpha=0.2)["IPS"]
    assert wide.low < narrow.low < narrow.high < wide.high
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\), got 0"):
        jr.off_policy(log, jr.frozen(), alpha=0)


def test_well_separated_clusters_are_found():
    rng = np.random.default_rng(0)
    centres, mine = 10 * np.eye(4), rng.integers(4, size=60)
    groups = groups_of_rows(centres[mine] + rng.normal(size=(60, 4)), 4)
    assert sorted(np.unique(groups)) == [0, 1, 2, 3]
    for centre in range(4):
        assert len(np.unique(groups[mine == centre])) == 1


def test_the_number_of_groups_is_at_most_that_of_distinct_rows():
    rows = np.random.default_rng(0).normal(size=(49, 3))
    assert groups_of_rows(rows).max() + 1 == 7
    assert sorted(groups_of_rows(rows, 49)) == [*range(49)]
    np.testing.assert_array_equal(groups_of_rows(rows, 1), 0)
    alike = groups_of_rows(np.repeat(rows[:2], 20, axis=0), 5)  # more groups than distinct rows
    np.testing.assert_array_equal(alike == alike[0], np.arange(40) < 20)
    assert sorted(np.unique(alike)) == [0, 1]
    for wrong in (0, 50):
        with pytest.raises(ValueError, match=rf"groups must be in 1 .. 49, got {wrong}"):
            groups_of_rows(rows, wrong)


ITEMS, BITS = np.array([0, 1, 2, 3] * 120), np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0] * 80)
UNIFORM = np.full((480, 4), 0.25)
SKEWED = np.tile([0.1, 0.2, 0.3, 0.4], (480, 1))
BY_HAND = make_log(ITEMS, BITS, np.full(480, 0.25), probabilities=UNIFORM)


def same(one, other):
    assert [*one.values] == [*other.values]
    for name, value in one.values.items():
        np.testing.assert_allclose(value[:3], other[name][:3], rtol=1e-5)


@pytest.mark.parametrize("convert", [np.ndarray.tolist, jnp.asarray], ids=["lists", "JAX arrays"])
def test_fields_policies_and_groups_may_be_lists_and_jax_arrays(convert):
    log = jax.tree.map(convert, BY_HAND)
    groups = np.array([0, 0, 1, 1])
    want = jr.off_policy(BY_HAND, SKEWED, groups=groups)
    assert "MIPS, 2 groups" in want.values
    same(jr.off_policy(log, convert(SKEWED), groups=convert(groups)), want)
    same(jr.off_policy(BY_HAND._replace(item=1.0 * ITEMS, reward=BITS > 0), SKEWED), _without(want))
    silent = [None if t % 5 == 0 else bit for t, bit in enumerate(BITS.tolist())]
    with pytest.warns(UserWarning, match="96 of 480 rounds were not answered"):
        assert jr.off_policy(log._replace(reward=silent), convert(SKEWED)).rounds == 384


def _without(found):
    values = {name: value for name, value in found.values.items() if "MIPS" not in name}
    return replace(found, values=values)


def test_other_ranges_of_rewards_are_mapped_and_values_are_mapped_back():
    want = jr.off_policy(BY_HAND, SKEWED, groups=[0, 0, 1, 1])
    for low, high in ((1, 5), (-1, 0), (0.0, 100.0)):
        mapped = BY_HAND._replace(reward=low + (high - low) * BITS)
        found = jr.off_policy(mapped, SKEWED, groups=[0, 0, 1, 1], scale=(low, high))
        assert found.logged == pytest.approx(mapped.reward.mean())
        assert (found.rounds, found.mean_weight) == (want.rounds, want.mean_weight)
        for name, value in want.values.items():
            got = found[name]
            expected = low + (high - low) * np.array(value[:3])
            np.testing.assert_allclose(got[:3], expected, rtol=1e-9, atol=1e-9)
            assert got.interval == value.interval
            if value.sequence is not None:
                assert got.sequence.low[-1] == got.low
                expected = low + (high - low) * value.sequence.high
                np.testing.assert_allclose(got.sequence.high, expected, rtol=1e-9, atol=1e-9)


def test_stars_are_valued_within_their_interval():
    """Take the rewards and the truth of a log of 2,000 uniform rounds: 4.5 stars of 5."""
    rng = np.random.default_rng(0)
    item = rng.integers(5, size=2_000)
    reward = 5.0 * (rng.random(2_000) < np.linspace(0.1, 0.9, 5)[item])
    log = make_log(item, reward, np.full(2_000, 0.2))
    found = jr.off_policy(log, np.eye(5)[np.full(2_000, 4)], scale=(0, 5))["IPS"]
    assert found.low < 4.5 < found.high < found.low + 1
    assert found.estimate == pytest.approx(4.5, abs=0.3)


def changed(row, value, *, of=BITS):
    """Return a copy in which one round has another value."""
    found = np.array(of, np.result_type(of, type(value)))
    found[row] = value
    return found


TWO = {
    "slate": np.stack([ITEMS, (ITEMS + 1) % 4], axis=1),
    "by_position": np.full((480, 2), 0.25),
    "probabilities": None,
}
REFUSED = [
    (
        {"reward": 5 * BITS},
        r"reward of round 0 must be in \[0, 1\], got 5 \(240 such rounds\): give",
    ),
    ({"reward": -BITS}, r"reward of round 0 must be in \[0, 1\], got -1 .* scale=\(low, high\)"),
    ({"reward": changed(7, np.inf)}, r"reward of round 7 must be in \[0, 1\], got inf \(1 such"),
    ({"reward": ["yes"] * 480}, r"the log's reward \[T\] must be real numbers: got the dtype <U3"),
    (
        {"reward": BITS[:, None]},
        r"the log's reward \[T\] must have 1 axes, got the shape \[480, 1\]",
    ),
    ({"by_position": np.full((480, 1), 25.0)}, "by_position of round 0 must be .*percent"),
    ({"by_position": np.full((480, 1), -0.25)}, r"by_position of round 0 .* got -0.25 \(480"),
    ({"by_position": np.full((480, 1), np.nan)}, "the log lacks the probability of position 1"),
    ({"by_position": np.full(480, 0.25)}, r"by_position \[T, k\] must have 2 axes"),
    ({"by_position": np.full((480, 2), 0.25)}, r"must have the shape of its slate, \[480, 1\]"),
    ({"by_position": np.full((480, 1), 0.5)}, "0.5 in by_position and 0.25 in probabilities"),
    ({"propensity": np.full(480, 25.0)}, "propensity of round 0 .* give a fraction, not percent"),
    ({"item": (ITEMS + 1) % 4}, r"round 0 used item 1, which is not on its slate \[0\] \(480 such"),
    ({"item": ITEMS + 0.5}, r"item \[T\] must be whole numbers, got 0.5"),
    ({"item": ITEMS[:9]}, "item has 9 rounds and its reward 480: give each field one row per"),
    ({"item": ITEMS > 1}, "item .* must be whole numbers, got bits: give positions, not a mask"),
    ({"item": [[0], [1, 2]]}, r"item \[T\] must be whole numbers: "),
    ({"slate": ITEMS}, r"slate \[T, k\] must have 2 axes, got the shape \[480\]"),
    ({"slate": ITEMS[:, None] + 4, "item": ITEMS + 4}, r"slate of round 0 must be of tools 0 .. 3"),
    ({"slate": ITEMS[:, None] - 2}, "slate of round 0 must be of rows of the catalogue.* got -2"),
    (TWO | {"slate": np.tile(ITEMS[:, None], (1, 2))}, r"shows an item twice: \[0, 0\]"),
    (
        {"query": changed((3, 0), np.nan, of=BY_HAND.query)},
        "query of round 3 must be finite, got n",
    ),
    ({"query": ["a"] * 480}, r"query \[T, d\] must be real numbers"),
    ({"round": np.arange(480) / 7}, r"round \[T\] must be whole numbers, got 0.14"),
    ({"version": [None] * 480}, r"version \[T\] must be whole numbers, got nan"),
    ({"theta": np.ones((4, 3))}, "query has 1 numbers and its theta 3: encode both with one"),
    ({"theta": changed((2, 0), np.nan, of=np.ones((4, 1)))}, "row 2 of the log's theta is not fin"),
    ({"available": [0.5] * 4}, r"available must be a mask \[I\] of True and False"),
    ({"available": [True] * 3}, "slate of round 3 must be of tools 0 .. 2, -1 pads, got 3"),
    ({"probabilities": 100 * UNIFORM}, "probabilities of round 0 .* the sum 100 .* not percent"),
    ({"probabilities": UNIFORM[:9]}, r"probabilities must be \[480, 4\], one per round and tool"),
    (
        {"prior": jr.types.Prior(ITEMS, BITS)},
        r"prior must be \[480, K\], a row per round, got \[480",
    ),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_fields_of_a_log_that_would_give_a_wrong_value_are_refused(fields, message):
    with pytest.raises(ValueError, match=message) as refused:
        jr.off_policy(BY_HAND._replace(**fields), SKEWED)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log": "log.jsonl"}, r"log must be a Log, as load_log\(path, task\) returns, got str"),
        ({"policy": "greedy"}, r"policy must be a learner, Snapshot\(.* \[480, I\], got str"),
        ({"policy": SKEWED[0]}, r"must be a learner.*must have 2 axes, got the shape \[4\]"),
        ({"policy": SKEWED[:9]}, r"probabilities' shape must be \[480, I\], got \(9, 4\)"),
        ({"policy": 100 * SKEWED}, "of round 0 .* the sum 100 .480 such rounds.; give fractions"),
        ({"policy": UNIFORM[:, :3] * 4 / 3}, "the policy has 3 tools and the log 4: they must be"),
        (
            {"policy": UNIFORM[:, :3] * 4 / 3, "log": BY_HAND._replace(probabilities=None)},
            "the policy has 3 tools, and the log shows tool 3",
        ),
        (
            {"policy": jr.Snapshot(jr.frozen(), jr.frozen().init(np.ones((5, 1))))},
            "the snapshot of 'frozen' has 5 tools and the log 4",
        ),
        (
            {"logging": "greedy", "log": BY_HAND._replace(probabilities=None)},
            r"a learner or Snapshot\(run.learner, run.state\(0\)\) is needed, got str",
        ),
        ({"groups": [0, 1]}, "groups must be the group of each of 4 tools, from 0, got 2 groups"),
        ({"groups": [0, 1, -1, 0]}, "groups must be the group .* got 4 groups from -1"),
        ({"groups": ["a"] * 4}, r"groups \[I\] must be real numbers"),
        ({"groups": 3}, "groups=3 needs the rows of a learner: for probabilities give the group"),
        (
            {"scale": (1, 0)},
            r"scale must be \(low, high\), two numbers with low < high, got \(1, 0",
        ),
        ({"scale": 5}, r"scale must be \(low, high\)"),
        ({"scale": (0, np.inf)}, "scale must be two finite numbers"),
        ({"scale": (0.5, 2)}, r"reward of round 1 must be in \[0.5, 2\], got 0 \(240"),
        ({"log": take(BY_HAND, slice(0, 0)), "policy": SKEWED[:0]}, "answered must be >= 2, got 0"),
    ],
)
def test_arguments_of_off_policy_that_do_not_fit_are_refused(arguments, message):
    given = {"log": BY_HAND, "policy": SKEWED} | arguments
    with pytest.raises(ValueError, match=message) as refused:
        jr.off_policy(given.pop("log"), given.pop("policy"), **given)
    assert "\n" not in str(refused.value)
