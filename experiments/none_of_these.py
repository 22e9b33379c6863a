"""Which score says best that the first tool is wrong, or that no tool is right?

    uv run python -m experiments.none_of_these                                        # DeskBank
    uv run python -m experiments.none_of_these dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool
    uv run python -m experiments.none_of_these dataset=etom dataset.path=FOLDER

For each seed a random fifth of the tools is removed, so that no tool is right for the queries whose
right tools are all gone, and `jr.mixture` learns from each query once. Every score of a query is
taken before the bit of that query, and belongs to the tool that it ranks first:

    vectors, hybrid / largest, margin, softmax      static retrieval by vectors, and with words
    mixture / before, after, online                 its confidence before any bit, in its state
                                                    after `known` rounds, and while it learns on
    shown / vectors, hybrid, softmax                static scores of the tool that the mixture shows

Measured on the rounds after `known` (``late``), and on the last third of the stream (``end``):

    SCORE/PART/area        area under the ROC curve: is the first tool right?
    SCORE/PART/exists      area: is any tool right?
    SCORE/PART/risk, at50, at80    area under the risk-coverage curve, and risk at both coverages
    SCORE/PART/decile0 .. 9        predicted minus observed share, for probabilities
    SCORE/PART/gain, exists_gain   areas minus those of the best static score, which is chosen by
                                   the mean of these very areas
    selective/..           risk above a confidence of `at_least`, its coverage and its upper bound
    recipe/..              the threshold of `jr.threshold` on the first half of the late rounds, for
                           a risk of at most `limit`, and its risk and coverage on the second half;
                           1, where nothing is shown, if that half supports none

The figures show risk over coverage, and observed over predicted shares. 2 quiet cores: a minute for
DeskBank, two for UltraTool.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.evaluation.statistics import area_under_roc
from jaxret.learners.learner import prior_for, query_for
from jaxret.offline import threshold as thresholds
from jaxret.offline.threshold import Threshold
from jaxret.runtime.validate import require
from jaxret.task import Task

CHUNK = 512  # rounds of one compiled program, for both parts of a stream
KINDS = ("largest", "margin", "softmax")
STATIC = tuple(f"{by}/{kind}" for by in ("vectors", "hybrid") for kind in KINDS)
MIXTURE = ("mixture/before", "mixture/after", "mixture/online")
SHOWN = ("shown/vectors", "shown/hybrid", "shown/softmax")
PROBABILITIES = ("vectors/softmax", "hybrid/softmax", *MIXTURE)
PARTS = ("late", "end")
COLUMNS = tuple(
    f"{part}/{key}" for part in PARTS for key in ("area", "gain", "exists", "exists_gain")
)
GRID = np.arange(1, 101) / 100  # coverages of the figure


class Scored(NamedTuple):
    """Answers of one seed in the order of its stream."""

    score: Float[np.ndarray, " T"]
    right: Bool[np.ndarray, " T"]  # whether the first tool by this score is right


@experiment("none_of_these")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Score the answers of every seed; compare the scores; draw two of them."""
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    steps = {f"seed {seed}": partial(of_seed, cfg, task, seed) for seed in seeds}
    found = [one for _, one in run.results(steps, "seed")]
    results = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    for part in PARTS:
        for area, gain in (("area", "gain"), ("exists", "exists_gain")):
            best = max(STATIC, key=lambda one: results[f"{one}/{part}/{area}"].mean())
            for one in MIXTURE:
                results[f"{one}/{part}/{gain}"] = (
                    results[f"{one}/{part}/{area}"] - results[f"{best}/{part}/{area}"]
                )
    run.save_figure(risk_figure(results), "risk")
    run.save_figure(calibration_figure(results), "calibration")
    return {name: values for name, values in results.items() if "curve" not in name}


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range."""
    require("share", cfg.share, "in (0, 1)", lambda x: 0 < x < 1)
    require("known", cfg.known, ">= 1", lambda x: x >= 1)
    require("lexical", cfg.lexical, "in [0, 1)", lambda x: 0 <= x < 1)
    require("tau", cfg.tau, "> 0", lambda x: x > 0)
    for name in ("at_least", "limit", "alpha"):
        require(name, cfg[name], "in (0, 1)", lambda x: 0 < x < 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the areas, then risk and calibration, then the thresholds."""
    share = results["removed/queries"]["mean"]
    title = f"{cfg.dataset.name}: areas under the ROC curve ({share:.3f} without a right tool)"
    results_table(results, [*STATIC, *MIXTURE, *SHOWN], COLUMNS, title)
    columns = ("late/risk", "late/at50", "late/at80", "end/risk", "end/at50", "end/at80")
    results_table(results, [*STATIC, *MIXTURE], columns, "risk over coverage")
    for part in PARTS:
        for one in PROBABILITIES:
            deviation, error, decile = worst_decile(results, f"{one}/{part}")
            print(f"{one}/{part}: largest deviation {deviation:+.3f} ± {error:.3f}, part {decile}")
    results_table(results, ["selective", "recipe"], ("risk", "coverage", "bound", "at_least"), "")


def worst_decile(results: Found, name: str) -> tuple[float, float, int]:
    """Return the largest mean deviation of a decile, its standard error, and the decile from 1."""
    of_all = [results[f"{name}/decile{i}"] for i in range(10)]
    worst = int(np.argmax([abs(one["mean"]) for one in of_all]))
    error = jr.Estimate.of(np.asarray(of_all[worst]["values"])).error
    return of_all[worst]["mean"], error, worst + 1


def thinned(task: Task, share: float, seed: int) -> Task:
    """Remove a random share of the tools; queries keep the right tools that are left, if any."""
    tools = len(task.ids)
    keep = np.sort(np.random.default_rng(seed).permutation(tools)[round(share * tools) :])
    positions = np.full(tools + 1, -1)  # the last entry is for padding
    positions[keep] = np.arange(len(keep))
    assert task.documents is not None
    return jr.Task.from_arrays(
        task.theta[keep],
        task.queries,
        positions[task.labels],
        ids=[task.ids[row] for row in keep],
        groups=task.groups,
        texts=task.texts,
        documents=[task.documents[row] for row in keep],
        none_right=True,
        name=task.name,
    )


def of_seed(cfg: DictConfig, whole: Task, seed: int) -> dict[str, np.ndarray]:
    """Score and measure the answers of one seed."""
    task = thinned(whole, cfg.share, seed)
    [order] = jr.stream_orders(task, 1, [seed])
    require(
        "known", cfg.known, f"below {len(order) // 2}, half the stream", (len(order) // 2).__gt__
    )
    scored = scores_of(cfg, task, order, seed)
    answerable = task.answerable[order]
    starts = {"late": cfg.known, "end": 2 * len(order) // 3}
    found: dict[str, Any] = {"removed/queries": 1 - task.answerable.mean()}
    for name, one in scored.items():
        for part, start in starts.items():
            late = Scored(*(x[start:] for x in one))
            measures = measured(late, answerable[start:], calibrated=name in PROBABILITIES)
            found |= {f"{name}/{part}/{key}": x for key, x in measures.items()}
    online = Scored(*(x[cfg.known :] for x in scored["mixture/online"]))
    found |= selected(cfg, online)
    return {key: np.asarray(x, np.float64)[None] for key, x in found.items()}


def scores_of(
    cfg: DictConfig, task: Task, order: Int[np.ndarray, " T"], seed: int
) -> dict[str, Scored]:
    """Compute every score of every query before its bit, in the order of the stream."""
    labels = task.labels[order]

    def scored(score, items):
        right = (labels == items[:, None]) & (items[:, None] >= 0)
        return Scored(np.asarray(score, np.float64), right.any(axis=1))

    vectors = (task.queries @ task.theta.T)[order]
    words = (1 - cfg.lexical) * vectors + cfg.lexical * task.prior_scores()[order]
    early, late = played(task, order, seed, cfg.known)
    shown = np.concatenate([one.trace.item[0] for one in (early, late)])
    online = np.concatenate([one.trace.confidence[0] for one in (early, late)])
    rows, found = np.arange(len(order)), {}
    for by, z in {"vectors": vectors, "hybrid": words}.items():
        second, first = np.partition(z, -2, axis=1)[:, -2:].T
        p = np.exp((z - first[:, None]) / cfg.tau)
        p /= p.sum(axis=1, keepdims=True)
        largest = z.argmax(axis=1)
        found[f"{by}/largest"] = scored(first, largest)
        found[f"{by}/margin"] = scored(first - second, largest)
        found[f"{by}/softmax"] = scored(p.max(axis=1), largest)
        found[f"shown/{by}"] = scored(z[rows, shown], shown)
    found["shown/softmax"] = scored(p[rows, shown], shown)  # of vectors and words
    learner = early.learner
    states = {"before": learner.init(jnp.asarray(task.theta)), "after": early.state(seed)}
    learner_queries = query_for(learner, jnp.asarray(task.queries), prior_for(learner, task))
    for name, state in states.items():
        sure, items = jax.device_get(_confidences(state, learner_queries, learner))
        found[f"mixture/{name}"] = scored(sure[order], items[order])
    return found | {"mixture/online": scored(online, shown)}


def played(
    task: Task, order: Int[np.ndarray, " T"], seed: int, known: int
) -> tuple[jr.Run, jr.Run]:
    """Simulate the mixture on the first `known` rounds, and on the others from its state."""
    settings: dict[str, Any] = {"seeds": [seed], "chunk": CHUNK}
    early = jr.simulate(jr.mixture(), task, order=order[:known], **settings)
    return early, jr.simulate(jr.mixture(), task, order=order[known:], after=early, **settings)


@partial(jax.jit, static_argnames="learner")
def _confidences(state, queries, learner):
    """Return the confidence of the first tool of each query, and the tool."""

    def one(query):
        item = learner.logits(state, query).argmax()
        return jr.confidence(learner, state, query)[item], item

    return jax.lax.map(one, queries)


def measured(
    answers: Scored, answerable: Bool[np.ndarray, " n"], *, calibrated: bool
) -> dict[str, float | np.ndarray]:
    """Measure one score on some rounds."""
    curve = risk_coverage(*answers)
    n = len(curve)
    found: dict[str, Any] = {
        "area": area_under_roc(*answers),
        "exists": area_under_roc(answers.score, answerable),
        "accuracy": answers.right.mean(),
        "risk": curve.mean(),
        "at50": curve[round(0.5 * n) - 1],
        "at80": curve[round(0.8 * n) - 1],
        "curve_risk": curve[np.maximum((GRID * n).round().astype(int), 1) - 1],
    }
    if calibrated:
        predicted, happened = by_decile(*answers)
        found |= {f"decile{i}": x for i, x in enumerate(predicted - happened)}
        found |= {"curve_predicted": predicted, "curve_happened": happened}
    return found


def risk_coverage(
    scores: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Compute the share of wrong answers among the surest 1, 2, .., n.

    Answers of equal scores count with the mean of their group, as if drawn in a random order. The
    mean of the curve is the area under it (El-Yaniv and Wiener 2010).
    """
    _, group = np.unique(-scores, return_inverse=True)
    sizes = np.bincount(group)
    wrong = np.repeat(np.bincount(group, ~right) / sizes, sizes)  # surest first
    return np.cumsum(wrong) / np.arange(1, len(scores) + 1)


def by_decile(
    p: Float[np.ndarray, " n"], right: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " 10"], Float[np.ndarray, " 10"]]:
    """Compute predicted and observed shares of right answers, in ten equal parts by prediction."""
    parts = np.array_split(np.argsort(p, kind="stable"), 10)
    return np.array([p[x].mean() for x in parts]), np.array([right[x].mean() for x in parts])


def selected(cfg: DictConfig, online: Scored) -> dict[str, float]:
    """Bound the risk above a fixed confidence; choose a threshold on half of the rounds."""
    p, y = online.score, online.right.astype(float)
    [fixed] = thresholds.measured(p, y, alpha=cfg.alpha, candidates=[cfg.at_least])
    half = len(p) // 2
    try:
        chosen = thresholds.choose(p[:half], y[:half], risk=cfg.limit, alpha=cfg.alpha)
    except ValueError:  # the log supports none: nothing is shown
        chosen = Threshold(at_least=1.0, risk=0.0, bound=1.0, coverage=0.0, rounds=0)
    [later] = thresholds.measured(p[half:], y[half:], candidates=[chosen.at_least])
    found = {f"selective/{key}": getattr(fixed, key) for key in ("risk", "coverage", "bound")}
    return found | {
        "recipe/at_least": chosen.at_least,
        "recipe/bound": chosen.bound,
        "recipe/risk": later.risk,  # 0 where nothing is shown
        "recipe/coverage": later.coverage,
    }


def risk_figure(results: Results) -> Any:
    """Draw risk over coverage, on the rounds after `known`."""
    drawn, ax = plots.new_figure("share of the queries that are answered", "share of wrong tools")
    for one in ("vectors/largest", "hybrid/softmax", "mixture/before", "mixture/online"):
        plots.curve_with_band(ax, GRID, results[f"{one}/late/curve_risk"], one)
    ax.legend()
    return drawn


def calibration_figure(results: Results) -> Any:
    """Draw observed over predicted shares of right tools, on the rounds after `known`."""
    drawn, ax = plots.new_figure("predicted share of right tools", "observed share")
    ax.plot([0, 1], [0, 1], color=plots.GREY, linewidth=1)
    for one in ("hybrid/softmax", "mixture/before", "mixture/online"):
        x, y = (results[f"{one}/late/curve_{name}"] for name in ("predicted", "happened"))
        errors = [jr.Estimate.of(values).error for values in y.T]
        ax.errorbar(x.mean(axis=0), y.mean(axis=0), errors, marker="o", label=one)
    ax.legend()
    return drawn


if __name__ == "__main__":
    main.cli()
