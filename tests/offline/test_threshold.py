"""Thresholds from logs whose risk is known."""

import numpy as np
import pytest

import jaxret as jr
from jaxret.logs import Log
from jaxret.offline.intervals import lower_bounds
from jaxret.offline.threshold import CANDIDATES, choose, measured


def drawn(rng, rounds=1500):
    """Draw confidences and bits whose success probability is the confidence squared."""
    p = rng.random(rounds)
    return p, (rng.random(rounds) < p**2).astype(float)


def risk_of(threshold):
    """Return E[1 - p^2 | p >= threshold] for p uniform on [0, 1]."""
    return 1 - (1 - threshold**3) / 3 / (1 - threshold)


def log_of(p, y, **fields):
    n = len(p)
    items = np.zeros(n, int)
    log = Log(
        query=np.zeros((n, 2), np.float32),
        slate=np.stack([items, items + 1], axis=1),
        by_position=np.ones((n, 2)),
        item=items,
        propensity=np.ones(n),
        reward=y,
        version=items,
        round=np.arange(n),
        confidence=p,
    )
    return log._replace(**fields)


def test_the_threshold_is_the_smallest_whose_bound_is_within_the_limit():
    p, y = drawn(np.random.default_rng(0))
    found = jr.threshold(log_of(p, y), risk=0.4)
    level = 0.05 / len(CANDIDATES)
    bounds = {}
    for one in CANDIDATES:
        own = y[p >= one]
        bounds[one] = 1 - lower_bounds(own, np.array([len(own)]), alpha=level)[0]
    assert found.at_least == min(one for one, bound in bounds.items() if bound <= 0.4)
    assert found.bound == pytest.approx(bounds[found.at_least])
    own = p >= found.at_least
    assert found.risk == pytest.approx(1 - y[own].mean())
    assert found.coverage == pytest.approx(own.mean())
    assert found.rounds == own.sum()
    assert repr(found).startswith(f"{found.at_least:g}: risk 0.")


def test_the_true_risk_is_within_the_limit_as_often_as_stated():
    """At most a fifth of the choices may have a larger risk; 0.6 has 0.347, just too large."""
    rng, chosen = np.random.default_rng(1), []
    for _ in range(100):
        try:
            chosen.append(choose(*drawn(rng, 600), risk=0.34, alpha=0.2).at_least)
        except ValueError:
            chosen.append(1.0)
    wrong = np.mean([one < 1 and risk_of(one) > 0.34 for one in chosen])
    assert wrong <= 0.2
    assert np.mean([one < 1 for one in chosen]) > 0.7  # and it does choose
    tightest = min(one for one in CANDIDATES if risk_of(one) <= 0.34)
    assert min(chosen) <= tightest + 0.1


def test_all_bounds_hold_at_every_time_at_once():
    """The learner improves in the log, and its end is chosen to make the bounds look worst."""
    rng, failures = np.random.default_rng(2), 0
    for _ in range(50):
        n = 400
        p = rng.random(n)
        success = np.clip(p * np.linspace(0.5, 1.0, n), 0, 1)
        y = (rng.random(n) < success).astype(float)
        failed = False
        for one in (0.0, 0.5):
            own = p >= one
            times = np.arange(2, own.sum() + 1)
            low = lower_bounds(y[own], times, alpha=0.1 / 2)
            truth = np.cumsum(success[own])[1:] / times
            failed |= bool((low > truth).any())
            [at_end] = measured(p, y, alpha=0.1 / 2, candidates=[one])
            assert at_end.bound == pytest.approx(1 - low[-1])
        failures += failed
    assert failures <= 5


def test_rounds_of_other_tools_and_without_answers_do_not_count():
    p, y = drawn(np.random.default_rng(3), 3000)
    other, missing = np.arange(3000) % 3 == 1, np.arange(3000) % 3 == 2
    log = log_of(
        p,
        np.where(missing, np.nan, np.where(other, 0.0, y)),
        item=other.astype(int),
    )
    with pytest.warns(UserWarning, match="1000 of 3000 rounds were not answered"):
        found = jr.threshold(log, risk=0.45)
    kept = ~other & ~missing
    assert found == choose(p[kept], y[kept], risk=0.45)


def test_an_index_writes_the_log_that_a_threshold_needs(task, tmp_path):
    learner = jr.mixture([jr.grid(jr.frozen, tau=[0.1, 0.3])])
    index = jr.Index(learner, task, log=tmp_path / "log.jsonl")
    for n in range(40):
        ticket = index.search(task.queries[n])
        index.feedback(ticket, worked=ticket.confidence > 0.2)
    log = jr.load_log(tmp_path / "log.jsonl", task)
    assert log.confidence is not None
    assert log.confidence.shape == (40,)
    assert log.confidence[-1] == pytest.approx(ticket.confidence)
    found = jr.threshold(log, risk=0.9, candidates=[0.2])
    assert found.risk == pytest.approx(0.0)
    assert found.rounds == (log.confidence >= 0.2).sum()


def test_what_a_log_cannot_say_is_refused():
    p, y = drawn(np.random.default_rng(4), 50)
    for call, message in {
        lambda: jr.threshold(log_of(p, y, confidence=None), risk=0.2): "no confidences: write it",
        lambda: jr.threshold(log_of(p, y), risk=0.0): r"risk must be in \(0, 1\), got 0.0",
        lambda: jr.threshold(log_of(p, y), risk=0.2, alpha=1): r"alpha must be in \(0, 1\), got 1",
        lambda: jr.threshold(log_of(p, y), risk=0.2, candidates=[]): "candidates must be one or",
        lambda: jr.threshold(log_of(p, y), risk=0.01): (
            "no threshold of 10 has a risk of at most 0.01 with confidence 0.95; the best is 0"
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
