"""What do temperature and exploration cost, and what do they buy?         (ORAG Section 3, Eq. (3))

    uv run python -m experiments.exploration                                  # DeskBank, built in
    uv run python -m experiments.exploration dataset=ultratool dataset.path=FILE
    uv run python -m experiments.exploration exposures=5

The paper draws the tool from p = softmax(Theta q / tau) with tau = 1 and has no other exploration.
Here each way to act is played at every tau and every step eta / tau, on the same streams:

    sampled              a tool drawn from p, importance weighting: the paper's
    sampled_likelihood   a tool drawn from p, the likelihood of the bit
    greedy               the best tool, the likelihood of the bit: tau is for learning alone
    epsilon_greedy       the best tool, in a twentieth of the rounds any; the likelihood of the bit

Of every cell: success of the tool shown, scored before the round's update (online), ranking by the
last embeddings (final), and regret against one proximal comparator for all cells. Nothing is tuned:
all queries are streamed and all cells reported. ``chosen`` is the cell that a tenth of the queries
would have chosen (by the rule of `experiments.orag`), with its numbers on the other queries;
``best`` the cell with the most online success, which is known in hindsight only. ``frozen``
never learns: it shows the best tool, or (``drawn``) draws it from p at each tau.

2 cores: DeskBank 1 min. Expect there (each query once, 3 seeds), where the best tool of Theta_1 is
right in 0.214 of the rounds: at the best step, ``sampled`` 0.224 at tau = 0.005, 0.13 at 0.04 and
0.007 at 1; ``greedy`` 0.240 at 0.04, ``epsilon_greedy`` 0.225. The chosen cells end with nDCG@10
0.411, 0.456 and 0.450 on their queries, static retrieval with 0.380 on all.
"""

from collections.abc import Mapping

import hydra
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig
from tqdm import tqdm

from experiments.parts import alike, problem, show
from experiments.parts.comparator import solve
from experiments.parts.config import CONFIGS, plain
from experiments.parts.learners import Rival
from experiments.parts.maps import Grid, figures
from experiments.parts.player import Player
from experiments.parts.problem import Parts, Problem
from experiments.parts.run import Run, open_run
from experiments.parts.tuning import METRICS, Ranker, catalogues, orders, tune
from jaxret import tracking
from jaxret.online.environment import Environment
from jaxret.validate import require

COLUMNS = ("tau", "step", "online/accuracy", "final/recall@{k}", "final/ndcg@{k}")


@hydra.main(config_path=CONFIGS, config_name="exploration", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Plays every cell, or reads what was found before; returns the mean of every result."""
    rivals = alike.build(plain(cfg.ways), cfg)
    for name in ("exposures", "seeds", "chunk"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("validation", cfg.validation, "in (0, 1)", lambda x: 0 < x < 1)
    with open_run(cfg) as run:
        if run is not None:
            compute(cfg, rivals, problem.load(cfg), run)
    results = tracking.read_results(cfg.directory)
    columns = [column.format(k=cfg.k) for column in COLUMNS]
    rows = [f"{rival.name}/{which}" for rival in rivals for which in ("chosen", "best")]
    title = f"{cfg.dataset.name}, exposures={cfg.exposures}: {cfg.directory}"
    show.results_table(results, ["frozen", *rows], columns, title)
    cells, rounds = (int(results[name]["mean"]) for name in ("cells", "rounds"))
    print(f"{cells:,} cells, {rounds:,} rounds in all")
    return {name: value["mean"] for name, value in results.items()}


def compute(cfg: DictConfig, rivals: list[Rival], task: Problem, run: Run) -> None:
    """Plays every way on the grid; writes results, curves and figures."""
    # The same queries whatever share is held out: here none is.
    validation = problem.part(task.dataset, cfg.validation, 0.5, cfg.seed).validation
    parts = Parts(validation=validation, heldout=~validation, training=~validation)
    seeds, ranker = range(cfg.seed, cfg.seed + cfg.seeds), Ranker(task, cfg.k)
    everyone = np.ones(len(task.queries), bool)
    stream = orders(everyone, cfg.exposures, seeds)
    arrays = (task.theta_1, task.queries, task.labels)
    _, comparator = solve(
        *arrays,
        tau=cfg.comparator.tau,
        eta=cfg.comparator.tau * cfg.comparator.step,
        counts=np.full(len(task.queries), cfg.exposures),
    )
    least = comparator.astype(np.float64).sum() * cfg.exposures

    static = ranker(catalogues(task.theta_1), everyone)[0]
    results = {"frozen/online/accuracy": static[:1]}
    results |= {f"frozen/final/{m.format(k=cfg.k)}": static[[i]] for i, m in enumerate(METRICS)}
    for tau in cfg.tau:
        results[f"frozen/drawn/tau={tau:g}"] = np.array([drawn(*arrays, tau)])
    grids: dict[str, Grid] = {}
    for rival in (bar := tqdm(rivals, unit="way")):
        bar.set_postfix_str(rival.name)
        player = Player(run, rival.make, *arrays, Environment(), seeds=seeds, chunk=cfg.chunk)
        found = tune(rival.name, rival, player, ranker, stream, parts)
        grids[rival.name] = grid(found, validation, stream.shape[1], least)
        results |= measured(rival, grids[rival.name], cfg.k)
    cells = sum(len(rival.settings) for rival in rivals)
    results |= {"cells": np.array([cells]), "rounds": np.array([cells * stream.size])}
    flat = {f"{name}/{key}": x for name, one in grids.items() for key, x in one._asdict().items()}
    np.savez(run.directory / "curves.npz", allow_pickle=False, **flat)
    figures(cfg, run, grids, results)
    run.finish(results)


def grid(
    found: Mapping[str, np.ndarray], validation: np.ndarray, rounds: int, least: float
) -> Grid:
    """Puts together what `tune` found on the two parts of the queries.

    Args:
      found: of `tune`, whose held-out part are all queries that are not for validation.
      validation: mask of the queries.
      rounds: T.
      least: what the comparator loses on the whole stream.
    """
    share = validation.mean()
    return Grid(
        accuracy=found["success"],
        final=share * found["validation"] + (1 - share) * found["heldout"],
        regret=found["loss"] * rounds - least,
        chosen=int(found["best"]),
        rest_accuracy=(found["success"] - share * found["online"]) / (1 - share),
        rest_final=found["heldout"],
    )


def measured(rival: Rival, found: Grid, k: int) -> dict[str, np.ndarray]:
    """Every cell, the one that would have been chosen, and the best, as results."""
    results = {}
    best = int(found.accuracy.mean(axis=1).argmax())
    cells = {f"tau={tau:g}/step={step:g}": g for g, (tau, step) in enumerate(rival.steps)}
    for name, g in {**cells, "best": best}.items():
        results |= one_cell(f"{rival.name}/{name}", found.accuracy[g], found.final[g], k)
        results[f"{rival.name}/{name}/regret"] = found.regret[g]
    chosen = found.chosen
    name = f"{rival.name}/chosen"
    results |= one_cell(name, found.rest_accuracy[chosen], found.rest_final[chosen], k)
    for which, g in {"best": best, "chosen": chosen}.items():
        for i, number in enumerate(("tau", "step")):
            results[f"{rival.name}/{which}/{number}"] = rival.steps[g, i][None]
    return results


def one_cell(
    name: str, accuracy: Float[np.ndarray, " S"], final: Float[np.ndarray, "S 4"], k: int
) -> dict[str, np.ndarray]:
    """Online success and the last rankings."""
    rankings = {f"{name}/final/{m.format(k=k)}": final[:, i] for i, m in enumerate(METRICS)}
    return {f"{name}/online/accuracy": accuracy, **rankings}


@jax.jit
def drawn(theta, queries, labels, tau) -> Float[jax.Array, ""]:
    """The chance of success if tools are drawn from p and nothing is learnt."""
    p = jax.nn.softmax(queries @ theta.T / tau, axis=1)
    right = jnp.take_along_axis(p, labels, axis=1)  # where a label is -1 the last item: left out
    return jnp.where(labels >= 0, right, 0.0).sum(axis=1).mean()


if __name__ == "__main__":
    cli()
