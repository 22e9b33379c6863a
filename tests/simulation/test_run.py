"""The results of a run: accuracy with its error, curves, states, plots and tables."""

import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import jaxret as jr
from jaxret.simulation import run as runs


@pytest.fixture(scope="module")
def run(task):
    return jr.simulate(jr.orag(tau=0.1, eta=0.02), task, exposures=2, seeds=(4, 9))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_accuracy_is_the_share_of_rounds_that_went_well(run, task):
    right = task.labels[run.order][..., 0] == run.trace.item
    each = right.mean(axis=1)
    np.testing.assert_allclose(run.accuracy.values, each)
    assert run.accuracy.error == pytest.approx(abs(each[0] - each[1]) / 2)


def test_a_question_is_complete_when_all_its_hops_succeed(run):
    """Two seeds and two exposures of two questions with two hops each."""
    task = SimpleNamespace(groups=[0, 0, 1, 1])
    order = np.array([[0, 1, 2, 3, 2, 3, 0, 1], [2, 3, 0, 1, 0, 1, 2, 3]])
    success = np.array([[1, 1, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 1, 1]])
    hops = replace(run, task=task, order=order, trace=run.trace._replace(success=success))
    assert hops.complete(2).values.tolist() == [0.75, 0.25]
    assert hops.complete().values.tolist() == [0.5, 0.0]  # both exposures of a question
    with pytest.raises(ValueError, match="a divisor of the 8 rounds, got 3"):
        hops.complete(3)


def test_a_run_prints_learner_rounds_form_and_accuracy(run):
    words = f"orag on small: 120 rounds x 2 seeds (blocked, {run.seconds:.1f} s), accuracy "
    assert repr(run) == words + str(run.accuracy)
    first = jax.tree.map(lambda x: x[:1], run.trace)
    alone = replace(run, seeds=(4,), order=run.order[:1], trace=first)
    assert "120 rounds x 1 seed (blocked" in repr(alone)
    assert repr(alone).endswith(f"accuracy {alone.accuracy.mean:.3f} ± —")


def test_curves_and_states_are_of_every_seed(run):
    assert list(run.curves) == ["success", "reward", "loss", "p_success"]
    assert {curve.shape for curve in run.curves.values()} == {(2, 120)}
    np.testing.assert_array_equal(run.curves["success"], run.trace.success)
    np.testing.assert_array_equal(run.state(9).theta, run.states.theta[1])
    assert int(run.state(4).t) == 120
    for use in (run.state, partial(run.save, "nowhere")):
        with pytest.raises(ValueError, match=r"seed must be one of \[4, 9\], got 1"):
            use(seed=1)


def test_a_plot_has_a_line_of_running_means_and_a_band(run):
    figure = run.plot(window=10)
    (ax,) = figure.axes
    (line,) = ax.get_lines()
    x, y = line.get_xdata(), line.get_ydata()
    np.testing.assert_array_equal(x, np.arange(10, 121))  # begins with the first whole window
    assert y[-1] == pytest.approx(run.trace.success[:, -10:].mean())
    assert y[0] == pytest.approx(run.trace.success[:, :10].mean())
    (longer,) = run.plot(window=1000).axes[0].get_lines()
    assert longer.get_ydata() == pytest.approx(run.trace.success.mean())
    assert len(ax.collections) == 1  # the band
    assert "orag" in [text.get_text() for text in ax.texts]
    assert ax.get_ylabel() == "success, mean of 10 rounds"
    assert run.plot("loss").axes[0].get_ylabel() == "loss, mean of 6 rounds"
    with pytest.raises(ValueError, match="curve must be one of success, reward, loss, p_success"):
        run.plot("regret")


def test_a_notebook_shows_a_figure_once(run, monkeypatch):
    assert run.plot().number in plt.get_fignums()
    plt.close("all")
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "module://matplotlib_inline.backend")
    run.plot()
    assert not plt.get_fignums()  # an open figure would appear again after the cell


def test_runs_share_a_plot(run, task):
    frozen = jr.simulate(jr.frozen(), task)
    (ax,) = runs.plot([run, frozen], window=5).axes
    assert [line.get_label() for line in ax.get_lines()] == ["orag", "frozen"]
    assert len(ax.collections) == 1  # one seed has no band
    with pytest.raises(ValueError, match="one run or more"):
        runs.plot([])


def test_a_frame_has_a_row_for_each_round(run):
    frame = run.frame()
    assert len(frame) == 240
    assert list(frame.columns[:4]) == ["learner", "seed", "round", "query"]
    line = frame[(frame.seed == 9) & (frame["round"] == 17)].iloc[0]
    assert line["item"] == run.trace.item[1, 17]
    assert line["query"] == run.order[1, 17]
    accuracy = frame.groupby("seed").success.mean()
    np.testing.assert_allclose(accuracy, run.accuracy.values)


def test_without_pandas_the_command_is_given(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="a frame needs pandas: pip install pandas"):
        run.frame()
