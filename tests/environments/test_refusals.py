"""Settings outside their range, and effects that do not fit a task."""

import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import availability, drift, feedback, interventions
from jaxret.environments.environment import judged, judging_reranker, simulated_reranker
from jaxret.types import Slate
from tests.problems import fixed_delay

ROWS = np.ones((8, 6))


def poisoned(**settings):
    return feedback.poisoned(items=5, queries=7, **settings)


def censored(**settings):
    return feedback.censored_by_success(**{"after_success": 0.2, "after_failure": 0.7} | settings)


def rewritten(after=ROWS, **settings):
    return interventions.rewritten_documents(ROWS, after, **{"at": 5} | settings)


REFUSED = [
    (lambda: availability.later(9, 1.0, at=1), r"share must be in \[0, 1\), got 1.0"),
    (lambda: availability.leaving(9, 0.5, at=-1), "at must be >= 0, got -1"),
    (lambda: availability.away(9, 0.5, leaves=3, back=3), r"leaves must be in 0 .. back - 1 = 2"),
    (lambda: availability.one_by_one(9, 0.5, first=3, last=2), "first must be in 0 .. last=2, got"),
    (lambda: drift.swapped([[0], [0]], at=1), "tools that are a label must be two or more"),
    (lambda: drift.swapped([[0], [1]], at=-1), "at must be >= 0, got -1"),
    (lambda: drift.swapped([[0], [1]], share=0.0, at=1), r"share must be in \(0, 1\], got 0"),
    (lambda: drift.turning(np.ones((3, 5)), angle=1.0, rounds=9), "must be even, .* got 5"),
    (lambda: drift.turning(np.ones((3, 4)), angle=1.0, rounds=0), "rounds must be >= 1, got 0"),
    (lambda: jr.label_noise(0.7), r"noise_rate must be in \[0, 0.5\], got 0.7"),
    (lambda: jr.label_noise([0.1, 0.6]), r"noise_rate must be in \[0, 0.5\], got \[0.1, 0.6\]"),
    (lambda: simulated_reranker(accuracy=-0.1), r"accuracy must be in \[0, 1\], got -0.1"),
    (lambda: judged(np.zeros(4)), r"table \[N, I\], got shape \(4,\)"),
    (lambda: judged([[0.0, 1.0], [0.5, 1.5]]), r"got 1.5 for query 1 and item 1 \(1 such\)"),
    (lambda: judged([[np.nan, -1.0]]), r"got nan for query 0 and item 0 \(2 such\)"),
    (lambda: judging_reranker(np.full((2, 9), 2.0)), r"verdicts must be in \[0, 1\], got 2"),
    (lambda: poisoned(tool=5), "tool must be None or in 0 .. 4, got 5"),
    (lambda: poisoned(share=1.1), r"share must be in \[0, 1\], got 1.1"),
    (lambda: poisoned(false_reward=2.0), r"false_reward must be None or in \[0, 1\], got 2.0"),
    (lambda: censored(after_success=1.5), r"after_success must be in \[0, 1\], got 1.5"),
    (lambda: censored(after_failure=1.5), r"after_failure must be in \[0, 1\], got 1.5"),
    (lambda: feedback.position_biased_clicks(bias=-1.0), "bias must be >= 0, got -1"),
    (lambda: feedback.position_biased_clicks(lure=0.0), r"lure must be in \(0, 1\]"),
    (lambda: interventions.geometric_delay(mean=-1.0), "mean must be >= 0, got -1"),
    (lambda: rewritten(at=0), "at must be >= 1, got 0"),
    (lambda: rewritten(how="mend"), "how must be keep, reset or carry, got mend"),
    (lambda: rewritten(np.ones((3, 6))), r"shape of after must be \(8, 6\), .* got \(3, 6\)"),
    (lambda: interventions.restart_from_snapshot(saved=-1, at=4), "saved must be >= 0, got -1"),
    (lambda: interventions.restart_from_snapshot(saved=4, at=4), "at must be > saved=4, got 4"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_settings_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


LATE = fixed_delay(1)
DO_NOT_FIT = [
    (
        {"noise_rate": np.zeros(3)},
        r"shape of noise_rate must be \(\) or \(16,\) \[I items\], got \(3,\)",
    ),
    ({"noise_rate": np.full(16, 0.7)}, r"noise_rate must be None or in \[0, 0.5\]"),
    (
        {"drift": drift.swapped([[0], [1]], at=1)},
        r"shape of drift.labels must be \(20, 2\) \[N queries, L labels\], got \(2, 1\)",
    ),
    (
        {"rotation": drift.turning(np.ones((3, 4)), angle=1.0, rounds=9)},
        r"rotation.turned must be \(20, 8\)",
    ),
    ({"poison": feedback.poisoned(items=3, queries=20)}, r"poison.tools must be \(16,\)"),
    ({"poison": feedback.poisoned(items=16, queries=3)}, r"poison.queries must be \(20,\)"),
    (
        {"rewriting": interventions.rewritten_documents(*np.ones((2, 2, 8)), at=1)},
        r"rewriting.before must be \(16, 8\) \[I items, width d\], got \(2, 8\)",
    ),
    (
        {"effects": (feedback.poisoned(items=3, queries=20),)},
        r"shape of effects\[0\].tools must be \(16,\) \[I items\], got \(3,\)",
    ),
    (
        {"effects": (LATE, Slate(items=1, propensity=1))},
        r"effects\[1\] must be a NamedTuple with one of the methods avail.*got a Slate",
    ),
    ({"delay": LATE, "effects": (LATE,)}, r"only one effect can deliver .* got Delay, Delay"),
]


@pytest.mark.parametrize(("effects", "message"), DO_NOT_FIT)
def test_effects_that_do_not_fit_a_task_are_refused(sixteen, effects, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(jr.greedy(), sixteen, environment=jr.Environment(**effects))
