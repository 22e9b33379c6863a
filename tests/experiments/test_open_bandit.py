"""The Open Bandit Dataset, on files written by hand and, where available, on the real logs."""

import numpy as np
import pytest

from experiments.off_policy import open_bandit
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, refused

HEAD = ",timestamp,item_id,position,click,propensity_score,user_feature_0"
P = {"random": np.full(3, 1 / 3), "bts": np.array([0.7, 0.2, 0.1])}
RATES = np.array([0.2, 0.1, 0.4])  # click rate per item; half of it at the second position


def write(folder, policy, campaign, rounds=4_000):
    rng = np.random.default_rng([len(policy), len(campaign)])
    item, place = rng.choice(3, p=P[policy], size=rounds), rng.integers(1, 3, rounds)
    click = rng.random(rounds) < RATES[item] / place
    lines = [
        f"{t},2019-11-24,{item[t]},{place[t]},{click[t]:d},{P[policy][item[t]]},x"
        for t in range(rounds)
    ]
    (folder / f"{policy}_{campaign}.csv").write_text("\n".join([HEAD, *lines]) + "\n")
    return item, place - 1, click


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bandit")
    for policy in P:
        for campaign in ("men", "women"):
            write(folder, policy, campaign)
    return folder


def test_a_log_is_read_as_it_was_written(folder, tmp_path):
    item, place, click = write(tmp_path, "bts", "men", rounds=300)
    found = open_bandit.load(tmp_path, "bts", "men")
    np.testing.assert_array_equal(found.log.item, item)
    np.testing.assert_array_equal(found.log.slate[:, 0], item)
    np.testing.assert_array_equal(found.place, place)
    np.testing.assert_array_equal(found.log.reward, click)
    np.testing.assert_allclose(found.log.by_position[:, 0], P["bts"][item])
    assert found.log.probabilities is None
    by_hand = [[(item[place == p] == i).mean() for i in range(3)] for p in range(2)]
    np.testing.assert_allclose(found.frequencies, by_hand)
    even = open_bandit.load(folder, "random", "men").log.probabilities
    assert even is not None
    assert even.shape == (4_000, 3)
    np.testing.assert_allclose(even, 1 / 3)


def test_files_that_are_no_open_bandit_log_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="a log of the Open Bandit Dataset"):
        open_bandit.load(tmp_path, "random", "men")
    for text, message in (
        ("item_id,position\n1,1\n", r"lacks the columns \['click', 'propensity_score'\]"),
        (f"{HEAD}\n", "has no impressions"),
        (f"{HEAD}\n0,t,0,1,0,0.9,x\n1,t,1,1,0,0.1,x\n", "is not uniform over its 2 items"),
    ):
        (tmp_path / "random_men.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            open_bandit.load(tmp_path, "random", "men")


def test_each_log_gives_the_true_value_of_the_others_policy(folder):
    """Estimates lie within four standard errors of the truth; IPS is recomputed by hand."""
    both = {name: open_bandit.load(folder, name, "men") for name in P}
    for name, other in (("random", "bts"), ("bts", "random")):
        mine, aim = both[name], both[other]
        found = open_bandit.compared(mine, aim, 0.05)
        value = (P[other] * RATES).sum() * 0.75  # half of the rounds at each position
        assert found["truth"] == pytest.approx(value, abs=4 * found["truth_error"])
        probabilities = aim.frequencies[mine.place, mine.log.item]
        terms = probabilities / P[name][mine.log.item] * mine.log.reward
        assert found["IPS/estimate"] == pytest.approx(terms.mean())
        assert found["IPS/error"] == pytest.approx(terms.std(ddof=1) / np.sqrt(4_000))
        for estimator in open_bandit.ESTIMATORS:
            assert found[f"{estimator}/error"] < 0.1 * value
            assert abs(found[f"{estimator}/sigma"]) < 4, estimator
        assert ("DR/low" in found) == (name == "random")
        assert "DRos/low" not in found
        assert "clipped IPS/high" not in found


def configure(directory, path, *more):
    given = [f"dataset.path={path}", f"directory={directory}", "tracking=files"]
    return config_of("off_policy_open_bandit", *given, *more)


def test_the_command_saves_its_results(folder, tmp_path):
    open_bandit.main(configure(tmp_path, folder))
    rows = (tmp_path / "open_bandit.md").read_text().splitlines()
    assert len(rows) == 2 + 2 * 2 * len(open_bandit.ESTIMATORS)
    found = read_results(tmp_path)
    said = f"{1e3 * found['women/bts/IPS/estimate']['mean']:.2f}"
    assert any(row.startswith("| women | bts |") and f"| IPS | {said} ± " in row for row in rows)


def test_the_real_logs_are_those_that_are_described(shared_data):
    folder = shared_data / "raw" / "open-bandit"
    for campaign, items, clicks in (("men", 34, (46, 69)), ("women", 46, (46, 46))):
        for policy, total in zip(("random", "bts"), clicks, strict=True):
            found = open_bandit.load(folder, policy, campaign)
            assert (found.log.rounds, found.items) == (10_000, items)
            assert found.log.reward.sum() == total
            assert found.frequencies.shape == (3, items)


def test_wrong_settings_are_refused_before_any_work(folder, tmp_path):
    for override, message in {
        "dataset.path=null": "dataset.path must be the folder of the logs",
        "campaigns=[all]": "campaigns must be men or women, got all",
        "alpha=0.0": r"alpha must be in \(0, 1\), got 0.0",
    }.items():
        refused(open_bandit.main, configure(tmp_path / "run", folder, override), message)
