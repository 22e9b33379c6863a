"""Which bound is tightest, which is vacuous, and from which T on?   (ORAG Section 5)

    uv run python -m experiments.bounds                                               # DeskBank
    uv run python -m experiments.bounds dataset=ultratool dataset.path=FILE document=orag_ultratool

Every statement of `jr.bounds` on runs of growing length, for a few tools and for all of them:

    CATALOGUE/LEARNER: STATEMENT/T=..    bound     its value
                                         measured  the bounded quantity of each seed
                                         trivial   the trivial bound
                                         holds     1: no assumption failed
    CATALOGUE/Banditron ahead/T=..       its bound over T for streams too long to run

The trivial bounds: regret is at most the run's own loss (a comparator's is not negative), wrong
tools are at most T, and a mixture that always predicts 1/2 loses T ln 2. A statement is vacuous
where its value is not below the trivial bound. With few tools, regret is against the best rows in
the ball (for Banditron, whose rows are free, the proximal rows); with all tools, against rows that
L-BFGS found near the start, projected to the ball where the learner's rows are in it.

``few.png`` and ``all.png``: bound over measured against T. 2 cores: some 10 minutes.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.regret import first_tools, single_label
from jaxret.evaluation import plots
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rule_of
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.theory import comparators, mistakes, square_loss
from jaxret.theory.theorems import Statement

FREE = jr.projections.none()
INSIDE = ("orag, sphere", "query map")  # learners also compared with the best rows in the ball
DRAWN = {  # curves of the figures, with their labels
    "orag, ball: Corollary 5.2": "Corollary 5.2",
    "orag, ball: Theorem 5.1": "Theorem 5.1",
    "orag, ball: Theorem 5.1, projection counted": "5.1, projection counted",
    "orag, sphere: Theorem 5.1, projection counted": "the same on the sphere",
    "orag, ball: duality, whole ball": "duality, whole ball",
    "orag, sphere: duality": "duality, sphere",
    "query map: duality": "duality, query map",
    "noise, orag: Theorem B.2": "Theorem B.2",
    "noise, debiased: debiased": "debiased",
    "Banditron: Banditron": "Banditron",
    "Gaptron: Gaptron": "Gaptron",
    "SquareCB: SquareCB, from its regression": "SquareCB",
    "mixture: mixture against its best expert": "mixture",
}


@experiment("bounds")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate every learner at every horizon, and evaluate each statement."""
    task, seeds = single_label(task_of(cfg)), range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {}
    for name, world in cfg.catalogues.items():
        some = task if world.tools is None else first_tools(task, world.tools)
        for rounds in (bar := Progress(world.horizons, desc=name, unit="horizon")):
            part, exposures = cut(some, rounds, cfg.seed)
            length, best = len(part) * exposures, None
            for label, learner in learners(world, length, len(part.ids), cfg.noise_rate).items():
                if cfg.only is not None and label not in cfg.only:
                    continue
                bar.set_postfix_str(f"T={length}, {label}")
                noisy = jr.label_noise(cfg.noise_rate) if label.startswith("noise") else None
                found = jr.simulate(
                    learner, part, exposures=exposures, seeds=seeds, environment=noisy
                )
                against = near(found) if world.tools is None else None
                if label in INSIDE and best is not None:
                    against = best
                statements = jr.bounds(found, against)
                if label == "orag, ball" and world.tools is not None:
                    best = np.asarray(jr.regret(found).comparator.theta)
                for statement in statements:
                    place = f"{name}/{label}: {statement.name}/T={length}"
                    results |= {f"{place}/{k}": x for k, x in numbers(statement, found).items()}
                if square_loss.is_squarecb(learner):
                    p = min(one.p for one in square_loss.deciles(found))
                    place = f"{name}/{label}: probabilities as predicted/T={length}"
                    results[f"{place}/p"] = np.array([p])
        results |= ahead(some, world, name, cfg.repeats)
        figure(run, results, name)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range."""
    require("noise_rate", cfg.noise_rate, "in (0, 0.5)", lambda x: 0 < x < 0.5)
    for world in cfg.catalogues.values():
        require("tools", world.tools, ">= 2, or null for all", lambda x: x is None or x >= 2)
        require("horizons", world.horizons, "each >= 2", lambda x: all(t >= 2 for t in x))


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a table per catalogue, statements in the order in which they were computed."""
    for name in cfg.catalogues:
        rows = [key.rsplit("/", 1)[0] for key in results if key.startswith(f"{name}/")]
        columns = ("bound", "measured", "trivial", "holds", "p")
        results_table(results, list(dict.fromkeys(rows)), columns, f"{cfg.dataset.name}, {name}")


def learners(world: DictConfig, rounds: int, items: int, noise_rate: float) -> dict[str, Learner]:
    """Return the learners that the statements are about, with the steps of their theory."""
    tau, eta = world.tau, world.c / np.sqrt(rounds)
    own = 0.1**2 * world.gamma / (2 * items**2)
    balanced = rounds**0.25 / items**0.75  # gamma / K of SquareCB with a regression of sqrt(K T)
    return {
        "orag, ball": jr.orag(tau=tau, eta=eta, projection=jr.ball()),
        "orag, sphere": jr.orag(tau=tau, eta=eta),
        "query map": jr.mapped(tau=tau, eta=eta),
        "noise, orag": jr.orag(tau=tau, eta=eta, projection=jr.ball()),
        "noise, debiased": jr.debiased(
            noise_rate=noise_rate, tau=tau, eta=eta, projection=jr.ball()
        ),
        "Banditron": jr.banditron(tau=1.0, eta=0.05, epsilon=world.epsilon, projection=FREE),
        "Gaptron": jr.gaptron(gamma=world.gamma, tau=0.1, eta=own),
        "SquareCB": jr.squarecb(gamma=float(balanced)),
        "mixture": jr.mixture(),
    }


def numbers(statement: Statement, run: jr.Run) -> dict[str, np.ndarray]:
    """Return the numbers of a statement; print its assumptions where it does not hold."""
    if not statement.holds:
        print(run.name, statement, sep="\n")
    rounds, loss = run.order.shape[1], np.asarray(run.trace.loss, np.float64).sum(axis=1)
    trivial = {"regret": loss, "wrong tools": rounds, "rounds": rounds}
    trivial["log loss"] = rounds * np.log(2)
    found = {
        "bound": np.array([statement.value]),
        "measured": statement.estimate.values,
        "holds": np.array([float(statement.holds)]),
    }
    if statement.quantity in trivial:
        found["trivial"] = np.atleast_1d(np.asarray(trivial[statement.quantity], np.float64))
    for term, value in statement.bound.terms.items():
        found[f"term: {term}"] = np.array([value])
    return {name: values for name, values in found.items() if np.isfinite(values).all()}


def near(run: jr.Run) -> np.ndarray | None:
    """Find rows near the start that fit the stream, in the ball where the learner's rows are."""
    rule, task = rule_of(run.learner), run.task
    if rule is None:
        return None
    counts = np.bincount(run.order[0], minlength=len(task)).astype(np.float32)
    find = jax.jit(comparators.proximal, static_argnames=("max_iterations",))
    theta = jnp.asarray(run.learner.init(jnp.asarray(task.theta)).theta)
    tau, eta = float(rule.tau), float(rule.eta)
    found = find(
        task.queries, task.labels, theta, tau=tau, eta=eta, counts=counts, max_iterations=100
    )
    inside = rule.projection if rule.projection.convex else FREE
    return np.asarray(jr.projections.project(inside, found.theta))


def ahead(task: Task, world: DictConfig, name: str, repeats: list[int]) -> dict[str, np.ndarray]:
    """Compute Banditron's bound over T for a stream that is repeated."""
    found, arrays = {}, [jnp.asarray(x) for x in (task.theta, task.queries, task.labels[:, 0])]
    for times in repeats:
        counts = jnp.full(len(task), float(times))
        solved = mistakes.solve_banditron(
            *arrays, counts, step=0.05, epsilon=world.epsilon, radius=None
        )
        rounds = len(task) * times
        found[f"{name}/Banditron ahead/T={rounds}/bound"] = np.array([solved.value / rounds])
    return found


def cut(task: Task, rounds: int, seed: int) -> tuple[Task, int]:
    """Return the queries of a horizon, and how often each comes."""
    order = np.random.default_rng(seed).permutation(len(task))
    return task.select(np.sort(order[:rounds])), max(1, rounds // len(task))


def figure(run: RunDirectory, results: Mapping[str, np.ndarray], name: str) -> None:
    """Draw bound over measured against T, of statements that have a ratio at the largest T."""
    drawn, ax = plots.new_figure("rounds T", "bound / measured")
    drawn.set_size_inches(6.0, 4.8)
    lines: dict[str, list[tuple[int, float]]] = {}
    for key in (key for key in results if key.startswith(f"{name}/") and key.endswith("/bound")):
        place, at = key.removesuffix("/bound").split("/T=")
        measured = results.get(f"{place}/T={at}/measured")
        label = DRAWN.get(place.removeprefix(f"{name}/"))
        if label is None or measured is None or measured.mean() <= 0:
            continue
        lines.setdefault(label, []).append((int(at), float(results[key][0] / measured.mean())))
    last = max(at for points in lines.values() for at, _ in points)
    for label in DRAWN.values():
        points = sorted(lines.get(label, ()))
        if not points or points[-1][0] < last:  # its label would lie across the others
            continue
        at, ratios = zip(*points, strict=True)
        ax.plot(at, ratios, label=label, linewidth=1.6)
    ax.axhline(1.0, color=plots.GREY, linewidth=0.8)
    plots.log_axes(ax, sorted({at for points in lines.values() for at, _ in points}))
    plots.label_curves(ax)
    run.save_figure(drawn, name)


if __name__ == "__main__":
    main.cli()
