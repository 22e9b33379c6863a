"""What do temperature and exploration cost, and what do they gain?        (ORAG Section 3, Eq. (3))

    uv run python -m experiments.exploration                                  # DeskBank, built in
    uv run python -m experiments.exploration dataset=ultratool dataset.path=FILE
    uv run python -m experiments.exploration exposures=5

The paper draws the tool from p = softmax(Theta q / tau) with tau = 1 and has no other exploration.
Here four learners run at every tau and every eta / tau, on the same streams:

    sampled              a tool drawn from p, importance weighting: the paper's
    sampled_likelihood   a tool drawn from p, the likelihood of the bit
    greedy               the best tool, the likelihood of the bit; tau only affects learning
    epsilon_greedy       the best tool, or a random one in a twentieth of the rounds; likelihood

Reported for every cell: success of the tool shown, before the round's update (online), ranking by
the last embeddings (final), and regret against one proximal comparator for all cells. Nothing is
tuned: all queries are streamed and all cells reported. ``chosen`` is the cell that a tenth of the
queries would have chosen (by the rule of `experiments.orag`), with its numbers on the other
queries; ``best`` is the cell with the most online success, known only in hindsight. ``frozen`` does
not learn: it shows the best tool, or (``drawn``) draws it from p at each tau.

2 cores: DeskBank 1 min. Expect there (each query once, 3 seeds), where the best tool of Theta_1 is
right in 0.214 of the rounds: at the best eta / tau, ``sampled`` 0.224 at tau = 0.005, 0.13 at 0.04
and 0.007 at 1; ``greedy`` 0.240 at 0.04, ``epsilon_greedy`` 0.225. The chosen cells end with
nDCG@10 0.411, 0.456 and 0.450 on their queries, static retrieval with 0.380 on all.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.comparator import comparator_losses
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import shared_grid
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import ranking_metrics
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid

NDCG = 2  # position of nDCG among `ranking_metrics`
COLUMNS = ("tau", "eta_over_tau", "online/accuracy", "final/recall@{k}", "final/ndcg@{k}")


class Grid(NamedTuple):
    """The results of one learner in each of G cells, on S seeds."""

    accuracy: Float[np.ndarray, "G S"]  # accuracy online
    final: Float[np.ndarray, "G S 4"]  # accuracy, recall, nDCG, completeness
    regret: Float[np.ndarray, "G S"]
    chosen: int  # index of the cell chosen on the validation part
    rest_accuracy: Float[np.ndarray, "G S"]  # the same without the validation part
    rest_final: Float[np.ndarray, "G S 4"]


@experiment("exploration")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every learner on the grid; write curves and figures."""
    task, metrics = task_of(cfg), ranking_metrics(cfg.k)
    # No queries are held out, but they are the same as with a held-out share.
    parts = task.parts(validation=cfg.validation, heldout=0.5, seeds=[cfg.seed])
    validation = parts.validation[0]
    seeds, arrays = range(cfg.seed, cfg.seed + cfg.seeds), (task.theta, task.queries, task.labels)
    least = comparator_losses(cfg, task).astype(np.float64).sum() * cfg.exposures
    static = jr.evaluate(task.theta, task, metrics)
    results = {"frozen/online/accuracy": static["accuracy"].values}
    results |= {f"frozen/final/{metric}": x.values for metric, x in static.items()}
    for tau in cfg.tau:
        results[f"frozen/drawn/tau={tau:g}"] = np.array([success_of_drawn(*arrays, tau)])

    def measure(way):
        settings: dict[str, Any] = {"exposures": cfg.exposures, "seeds": seeds, "chunk": cfg.chunk}
        swept = jr.sweep(way, task, resume=run.resume(way.name), **settings)
        best = swept.best(on=validation, metric=f"ndcg@{cfg.k}")
        cells = [cell_of(one, validation, metrics) for one in swept.runs]
        found = {key: np.stack([cell[key] for cell in cells]) for key in cells[0]}
        return found | {"best": swept.runs.index(best)}

    grids: dict[str, Grid] = {}
    pairs, rounds = list(product(cfg.tau, cfg.eta_over_tau)), cfg.exposures * len(task)
    steps = {way.name: partial(measure, way) for way in ways(cfg)}
    for name, found in run.results(steps, "way"):
        grids[name] = grid(found, validation, rounds, least)
        results |= measured(name, pairs, grids[name], metrics)
    cells = len(cfg.ways) * len(pairs)
    results |= {"cells": np.array([cells]), "rounds": np.array([cells * cfg.seeds * rounds])}
    run.save_curves({name: found._asdict() for name, found in grids.items()})
    figures(cfg, run, grids, results)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners."""
    ways(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the chosen and the best cell of each learner."""
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    rows = [f"{name}/{which}" for name in cfg.ways for which in ("chosen", "best")]
    title = f"{cfg.dataset.name}, exposures={cfg.exposures}"
    results_table(results, ["frozen", *rows], columns, title)
    cells, rounds = (int(results[name]["mean"]) for name in ("cells", "rounds"))
    print(f"{cells:,} cells, {rounds:,} rounds in all")


def ways(cfg: DictConfig) -> list[LearnerGrid]:
    """Return every learner, on the same grid."""
    shared = {key: plain(cfg)[key] for key in ("projection", "schedule", "tau", "eta_over_tau")}
    return shared_grid(plain(cfg.ways), shared)


def cell_of(
    run: jr.Run, validation: Bool[np.ndarray, " N"], metrics: Sequence[str]
) -> dict[str, np.ndarray]:
    """Measure one setting, on the validation queries and on the rest.

    Returns:
      ``success``, ``loss`` and ``online`` (success of validation queries) [S]; ``validation`` and
      ``rest`` [S, 4].
    """
    success = np.asarray(run.trace.success, np.float64)
    chosen = validation[run.order]
    ranked = {
        name: np.stack(
            [x.values for x in jr.evaluate(run, run.task, metrics, part=part).values()], axis=1
        )
        for name, part in (("validation", validation), ("rest", ~validation))
    }
    return {
        "success": success.mean(axis=1),
        "loss": np.asarray(run.trace.loss, np.float64).mean(axis=1),
        "online": (success * chosen).sum(axis=1) / chosen.sum(axis=1),
        **ranked,
    }


def grid(
    found: Mapping[str, np.ndarray], validation: np.ndarray, rounds: int, least: float
) -> Grid:
    """Combine the measurements of `cell_of` on the two parts of the queries.

    ``least`` is the loss of the comparator on the whole stream.
    """
    share = validation.mean()
    return Grid(
        accuracy=found["success"],
        final=share * found["validation"] + (1 - share) * found["rest"],
        regret=found["loss"] * rounds - least,
        chosen=int(found["best"]),
        rest_accuracy=(found["success"] - share * found["online"]) / (1 - share),
        rest_final=found["rest"],
    )


def measured(
    way: str, pairs: Sequence[tuple[float, float]], found: Grid, metrics: Sequence[str]
) -> dict[str, np.ndarray]:
    """Name the results of every cell, of the chosen one, and of the best one."""
    results = {}
    best = int(found.accuracy.mean(axis=1).argmax())
    cells = {f"tau={tau:g}/eta_over_tau={rate:g}": g for g, (tau, rate) in enumerate(pairs)}
    for name, g in {**cells, "best": best}.items():
        results |= one_cell(f"{way}/{name}", found.accuracy[g], found.final[g], metrics)
        results[f"{way}/{name}/regret"] = found.regret[g]
    chosen = found.chosen
    name = f"{way}/chosen"
    results |= one_cell(name, found.rest_accuracy[chosen], found.rest_final[chosen], metrics)
    for which, g in {"best": best, "chosen": chosen}.items():
        for number, value in zip(("tau", "eta_over_tau"), pairs[g], strict=True):
            results[f"{way}/{which}/{number}"] = np.array([value])
    return results


def one_cell(
    name: str,
    accuracy: Float[np.ndarray, " S"],
    final: Float[np.ndarray, "S 4"],
    metrics: Sequence[str],
) -> dict[str, np.ndarray]:
    """Name the online success and the final rankings of a cell."""
    rankings = {f"{name}/final/{metric}": final[:, i] for i, metric in enumerate(metrics)}
    return {f"{name}/online/accuracy": accuracy, **rankings}


@jax.jit
def success_of_drawn(theta, queries, labels, tau) -> Float[jax.Array, ""]:
    """Compute the probability of success if tools are drawn from p without learning."""
    p = jax.nn.softmax(queries @ theta.T / tau, axis=1)
    right = jnp.take_along_axis(p, labels, axis=1)  # -1 selects the last item, which is ignored
    return jnp.where(labels >= 0, right, 0.0).sum(axis=1).mean()


def figures(
    cfg: DictConfig, run: RunDirectory, grids: Mapping[str, Grid], results: Mapping[str, np.ndarray]
) -> None:
    """Draw maps of the grid, and the best step's success over the temperature."""
    shape = (len(cfg.tau), len(cfg.eta_over_tau))
    chosen = {name: divmod(found.chosen, shape[1]) for name, found in grids.items()}
    rounds = results["rounds"][0] / results["cells"][0] / cfg.seeds
    maps = {
        "online": ("online accuracy", {n: x.accuracy for n, x in grids.items()}, {}),
        "final": (f"final nDCG@{cfg.k}", {n: x.final[..., NDCG] for n, x in grids.items()}, {}),
        "regret": (
            "regret a round",
            {n: x.regret / rounds for n, x in grids.items()},
            {"lower_is_better": True},
        ),
    }
    for name, (label, values, more) in maps.items():
        figure = heatmaps(
            {way: x.mean(axis=1).reshape(shape) for way, x in values.items()},
            rows=("temperature tau", cfg.tau),
            columns=("eta / tau", cfg.eta_over_tau),
            label=f"{label} (framed: the cell that would have been chosen)",
            outlined=chosen,
            **more,
        )
        run.save_figure(figure, name)
    figure, ax = plots.new_figure("temperature tau", "online accuracy, best step")
    for name, found in grids.items():
        cells = found.accuracy.reshape(*shape, -1)
        steps = cells.mean(axis=2).argmax(axis=1)
        plots.curve_with_band(ax, np.array(cfg.tau), cells[np.arange(shape[0]), steps].T, name)
    still = [results[f"frozen/drawn/tau={tau:g}"][0] for tau in cfg.tau]
    ax.plot(cfg.tau, still, ":", color=plots.GREY, label="drawn, frozen")
    level = results["frozen/online/accuracy"][0]
    ax.plot(cfg.tau, [level] * len(still), "--", color=plots.GREY, label="best, frozen")
    ax.set_xscale("log")
    ax.set_xticks(cfg.tau, [f"{tau:g}" for tau in cfg.tau])
    ax.minorticks_off()
    plots.label_curves(ax)
    run.save_figure(figure, "temperature")


def heatmaps(
    panels: Mapping[str, Float[np.ndarray, "n m"]],
    *,
    rows: tuple[str, Sequence[float]],
    columns: tuple[str, Sequence[float]],
    label: str,
    outlined: Mapping[str, tuple[int, int]],
    lower_is_better: bool = False,
) -> Figure:
    """Draw grids of numbers, two in a line, in one scale of colours whose bright end is good."""
    lines, across = -(-len(panels) // 2), min(len(panels), 2)
    height = 0.9 + lines * (0.55 + 0.3 * len(rows[1]))
    everything = np.concatenate([np.ravel(values) for values in panels.values()])
    scale = Normalize(everything.min(), everything.max())
    colours = plots.plt.get_cmap("viridis_r" if lower_is_better else "viridis")
    with plots.plt.rc_context(plots.STYLE):
        figure, grid = plots.plt.subplots(
            lines, across, figsize=(3.2 * across, height), squeeze=False, sharex=True, sharey=True
        )
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, values) in zip(grid.flat, panels.items(), strict=False):
        ax.imshow(values, cmap=colours, norm=scale, aspect="auto")
        ax.set_title(title, fontsize=12)
        ax.set_xticks(range(len(columns[1])), [f"{x:g}" for x in columns[1]], rotation=45)
        plots.plt.setp(ax.get_xticklabels(), ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(rows[1])), [f"{x:g}" for x in rows[1]])
        ax.tick_params(colors=plots.GREY, labelsize=11, length=0)
        for place, value in np.ndenumerate(values):
            red, green, blue, _ = colours(scale(value))
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            colour = "white" if dark else "black"
            ax.text(place[1], place[0], _short(value), ha="center", va="center", color=colour)
        if title in outlined:
            row, column = outlined[title]
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False)
            frame.set(edgecolor=plots.COLOURS[1], linewidth=3, zorder=3)
            ax.add_patch(frame)
    figure.supxlabel(columns[0], fontsize=12)
    figure.supylabel(rows[0], fontsize=12)
    figure.suptitle(label, fontsize=12)
    return figure


def _short(value: float) -> str:
    """Format a number with two significant digits."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:,.0f}"


if __name__ == "__main__":
    main.cli()
