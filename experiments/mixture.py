"""Weights, bounds and cost of a mixture of experts

    uv run python -m experiments.mixture                                              # DeskBank
    uv run python -m experiments.mixture dataset=ultratool dataset.path=FILE document=orag_ultratool

`experiments.orag` compares a mixture with other learners; this experiment analyses it:

    mixture/accuracy       online; and /loss, the sum of -ln P(y | q, a) over the stream
    EXPERT/alone           online accuracy of an expert on a stream of its own
    EXPERT/loss            its loss on the tools and rewards of the mixture; /weight, at the end
    bound/..               `jr.bounds`, and paths of experts with 1, 2, .. switches
    cost/..                microseconds per round: the mixture, and all of its experts, each alone

``weights.png`` shows the weights round by round, those of experts of one kind together. Times are
medians over ``repeats`` runs in turn, of one seed, without compilation.

2 cores: DeskBank some 2 minutes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.learners.mixture import Blend, blend_of
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.theory import mixture as theory

COLUMNS = ("alone", "loss", "weight")


@experiment("mixture")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate the mixture and each of its experts, replay the mixture, and draw its weights."""
    task, learner, seeds = task_of(cfg), jr.mixture(), range(cfg.seed, cfg.seed + cfg.seeds)
    blend = blend_of(learner)
    assert blend is not None
    mixed = jr.simulate(learner, task, exposures=cfg.exposures, seeds=seeds)
    histories = [theory.history(mixed, seed) for seed in seeds]
    log_loss, sure_errors = jr.bounds(mixed)
    print(log_loss, sure_errors, sep="\n")
    results = {
        "mixture/accuracy": mixed.accuracy.values,
        **losses(histories, blend.experts),
        "bound/log_loss": np.array([log_loss.value]),
        "bound/sure_errors": np.array([sure_errors.value]),
        "sure_errors": sure_errors.estimate.values,
    }
    for k in range(1, 1 + cfg.switches):
        least = [theory.against_switches(one, blend, k) for one in histories]
        results[f"bound/switches/{k}"] = np.array(least)
    experts = experts_of(blend)
    weights = np.exp(np.asarray(mixed.states.extra.log_weights, np.float64))
    for g, (name, expert) in enumerate(bar := Progress(experts.items(), unit="expert")):
        bar.set_postfix_str(name)
        alone = jr.simulate(expert, task, exposures=cfg.exposures, seeds=seeds)
        results |= {f"{name}/alone": alone.accuracy.values, f"{name}/weight": weights[:, g]}
    figure(run, blend, np.stack([history.weights for history in histories]))
    return results | cost(task, learner, experts, cfg.repeats)


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range."""
    require("switches", cfg.switches, ">= 0", lambda x: x >= 0)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per expert, then the other results."""
    experts = [name.removesuffix("/alone") for name in results if name.endswith("/alone")]
    results_table(results, experts, COLUMNS, f"{cfg.dataset.name}, experts of the mixture")
    for name, value in results.items():
        if name.partition("/")[0] in ("mixture", "bound", "cost", "sure_errors"):
            print(f"{name:<24} {value['mean']:.4g}")


def losses(histories: Sequence[theory.History], experts: Sequence[str]) -> dict[str, np.ndarray]:
    """Sum the log losses of the mixture and of each expert over the rounds, for each seed."""
    found = {"mixture/loss": np.array([history.mixed.sum() for history in histories])}
    for g, name in enumerate(experts):
        found[f"{name}/loss"] = np.array([history.losses[:, g].sum() for history in histories])
    return found


def experts_of(blend: Blend) -> dict[str, jr.Learner]:
    """Return the experts of a mixture by name, as learners."""
    each = (kind.learner(g) for kind in blend.kinds for g in range(len(kind.settings)))
    return dict(zip(blend.experts, each, strict=True))


def cost(
    task: Task, mixture: jr.Learner, experts: Mapping[str, jr.Learner], repeats: int
) -> dict[str, np.ndarray]:
    """Time a round of the mixture, of `jr.greedy`, and of all experts one after the other."""
    learners = {"mixture": mixture, "greedy": jr.greedy(), **experts}
    times: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(1 + repeats):  # the first run compiles
        for name, learner in learners.items():
            seconds = jr.simulate(learner, task).seconds
            times[name].append(1e6 * seconds / len(task))
    each = {name: np.median(values[1:]) for name, values in times.items()}
    whole = sum(each[name] for name in experts)
    return {
        "cost/mixture": np.array([each["mixture"]]),
        "cost/greedy": np.array([each["greedy"]]),
        "cost/experts": np.array([whole]),
        "cost/ratio": np.array([each["mixture"] / whole]),
    }


def figure(run: RunDirectory, blend: Blend, weights: Float[np.ndarray, "S T G"]) -> None:
    """Draw the weights over rounds; experts of one kind are one curve."""
    kinds = np.array([name.partition("(")[0] for name in blend.experts])
    drawn, ax = plots.new_figure("round", "weight in the mixture")
    for kind in dict.fromkeys(kinds.tolist()):
        mine = weights[:, :, kinds == kind].sum(axis=2)
        plots.curve_with_band(ax, np.arange(mine.shape[1]), mine, kind)
    ax.set_ylim(-0.02, 1.02)
    plots.label_curves(ax)
    run.save_figure(drawn, "weights")


if __name__ == "__main__":
    main.cli()
