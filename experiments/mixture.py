"""What does a mixture of experts come to believe, what is it held to, and what does it cost?

    uv run python -m experiments.mixture                                              # DeskBank
    uv run python -m experiments.mixture dataset=ultratool dataset.path=FILE document=orag_ultratool

How well it does beside other rules is asked by `experiments.orag`; here it is looked into:

    mixture/accuracy       online; and /loss, the sum of -ln P(y | q, a) over the stream
    EXPERT/alone           online accuracy of an expert on a path of its own
    EXPERT/loss            its loss on the tools and bits of the mixture; /weight, at the end
    bound/..               `jr.bounds`, and paths of experts with 1, 2, .. switches
    cost/..                microseconds a round: the mixture, and all of its experts, each alone

``weights.png`` shows the weights round by round, those of experts of one form together. Times are
medians over ``repeats`` runs in turn, of one seed, all compiled.

2 cores: DeskBank some 2 minutes.
"""

import time
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner, Mixing
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.simulation import streams
from jaxret.simulation.engine import Simulation
from jaxret.task import Task
from jaxret.theory import mixture as theory

COLUMNS = ("alone", "loss", "weight")


@experiment("mixture")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Streams to the mixture and to its experts, plays it once more, and draws its weights."""
    task, learner = load_task(cfg), jr.mixture()
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    mixed = jr.simulate(learner, task, exposures=cfg.exposures, seeds=seeds)
    assert learner.mixing is not None
    histories = [theory.replayed(mixed, seed) for seed in seeds]
    statements = jr.bounds(mixed)
    for statement in statements:
        print(statement)
    results = {
        "mixture/accuracy": mixed.accuracy.values,
        "mixture/loss": np.array([history.mixed.sum() for history in histories]),
        "bound/log_loss": np.array([statements[0].value]),
        "bound/sure_errors": np.array([statements[1].value]),
        "sure_errors": statements[1].estimate.values,
    }
    for k in range(1, 1 + cfg.switches):
        least = [theory.against_switches(one, learner.mixing, k) for one in histories]
        results[f"bound/switches/{k}"] = np.array(least)
    experts = experts_of(learner, task)
    for g, (name, expert) in enumerate(bar := Progress(experts.items(), unit="expert")):
        bar.set_postfix_str(name)
        alone = jr.simulate(expert, task, exposures=cfg.exposures, seeds=seeds)
        results |= {
            f"{name}/alone": alone.accuracy.values,
            f"{name}/loss": np.array([history.losses[:, g].sum() for history in histories]),
            f"{name}/weight": np.exp(np.asarray(mixed.states.extra.log_weights, np.float64))[:, g],
        }
    figure(run, learner.mixing, np.stack([history.weights for history in histories]))
    return results | cost(task, learner, experts, cfg.repeats)


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses numbers that cannot be."""
    for name in ("exposures", "seeds", "repeats"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("switches", cfg.switches, ">= 0", lambda x: x >= 0)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints a line an expert, then the rest."""
    experts = [name.removesuffix("/alone") for name in results if name.endswith("/alone")]
    results_table(results, experts, COLUMNS, f"{cfg.dataset.name}, experts of the mixture")
    for name, value in results.items():
        if name.partition("/")[0] in ("mixture", "bound", "cost", "sure_errors"):
            print(f"{name:<24} {value['mean']:.4g}")


def experts_of(learner: Learner, task: Task) -> dict[str, Learner]:
    """The experts by name, as learners of their own."""
    state = learner.init(jnp.asarray(task.theta))
    assert learner.mixing is not None
    pairs = enumerate(learner.mixing.experts)
    return {name: learner.mixing.expert(state, g)[0] for g, name in pairs}


def cost(
    task: Task, learner: Learner, experts: Mapping[str, Learner], repeats: int
) -> dict[str, np.ndarray]:
    """Microseconds a round of the mixture, of `greedy`, and of all experts one after the other."""
    learners = {"mixture": learner, "greedy": jr.greedy(), **experts}
    forms = {
        name: Simulation(lambda one=one: one, task, seeds=[0]) for name, one in learners.items()
    }
    order, nothing = streams.exposures(len(task), 1, 0)[None], np.zeros((1, 0))
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(1 + repeats):  # the first compiles
        for name, form in forms.items():
            begin = time.perf_counter()
            form.run(nothing, order)
            times[name].append(time.perf_counter() - begin)
    each = {name: 1e6 * np.median(seconds[1:]) / len(task) for name, seconds in times.items()}
    whole = sum(each[name] for name in experts)
    return {
        "cost/mixture": np.array([each["mixture"]]),
        "cost/greedy": np.array([each["greedy"]]),
        "cost/experts": np.array([whole]),
        "cost/ratio": np.array([each["mixture"] / whole]),
    }


def figure(run: RunDirectory, mixing: Mixing, weights: Float[np.ndarray, "S T G"]) -> None:
    """The weights over rounds; experts of one form are one curve."""
    forms = [name.partition("(")[0] for name in mixing.experts]
    drawn, ax = plots.new_figure("round", "weight in the mixture")
    for form in dict.fromkeys(forms):
        mine = weights[:, :, np.array(forms) == form].sum(axis=2)
        plots.curve_with_band(ax, np.arange(mine.shape[1]), mine, form)
    ax.set_ylim(-0.02, 1.02)
    plots.label_curves(ax)
    run.save_figure(drawn, "weights")


if __name__ == "__main__":
    main.cli()
