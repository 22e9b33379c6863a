"""How do rankings change while learning, is anything forgotten?   (ORAG Figures 1b and 9, C.5.1)

    uv run python -m experiments.forgetting                                # DeskBank, built in
    uv run python -m experiments.forgetting dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool
    uv run python -m experiments.forgetting exposures=5 \\
        learner=[frozen,greedy_replayed] tsne.tools=0

A stream is stopped at 20 points, and queries are ranked by the current embeddings:

    heldout     queries of a held-out fifth, during a stream of the training part (the paper's
                'offline evaluation')
    seen        all queries so far, ranked again at each point. The paper 'obtains their average
                iteratively', which may also mean the average of each query's value on arrival; such
                a mean would mix embeddings of different times.
    gain        ``seen`` minus the metric of Theta_1 on the same queries
    first_ten   the first ten queries of each seed's stream; with 5 seeds these are 50 queries

Reported for each curve: ``first`` (before any learning; for ``seen`` after the first chunk),
``half`` and ``last``, and ``fall``, the largest decrease from an earlier value. Ten queries say
little about forgetting, so each streamed query is followed, by whether its first item is right:

    learnt      wrong by Theta_1, right at the end
    lost        right by Theta_1, wrong at the end
    forgotten   right at a point after it arrived, wrong at the end
    drop        decrease of accuracy from its maximum to the end, as in Chaudhry et al. (2018), over
                groups that arrived together; fluctuation alone makes it positive

``needed`` and ``others`` are mean cosines of tools' rows with the queries that need them and with
the rest, before and after the stream, ``moved`` is the mean distance between old and new rows (see
`moves`). embeddings.png shows the rows of some tools before and after, for one seed, with queries
of the stream. The nearest neighbour of a row is usually the same tool's old row, so t-SNE
understates the change.

Each learner has one setting for both streams, chosen as in `experiments.orag` by a stream with the
validation part and without the held-out part.

2 cores: DeskBank 1 min. The paper's claims, and what to expect there (nDCG@10, 5 seeds):

    Held-out and seen queries improve steadily. Held-out yes, if little from one bit per query:
    0.401 to 0.429 (clipped), 0.428 (orag), 0.413 (greedy); 0.570 with labels. Seen queries gain
    0.042, 0.034, 0.076; 0.582.

    Nothing is forgotten, by the first ten. They end above their start, 0.397 to 0.433, 0.422,
    0.497; 0.913. But at the end 5.0 %, 6.2 %, 8.1 %; 8.7 % of all queries are forgotten, and
    8.7 %, 8.6 %, 15.6 %; 70.5 % are learnt. The oracle's first ten had 1.000 on arrival.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common import tsne
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import curves_figure
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.forgetting import moves
from experiments.forgetting.curves import fates, forgotten, moments, seen
from experiments.forgetting.follow import by_arrival, follow, points
from jaxret.learners.learner import map_queries
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
LABELS = {
    "heldout": "held-out queries",
    "seen": "queries seen so far",
    "first_ten": "the first ten queries",
}
LEVELS = ("heldout/ndcg@{k}/first", "heldout/ndcg@{k}/last", "heldout/ndcg@{k}/fall")
LEVELS += ("seen/ndcg@{k}/first", "seen/ndcg@{k}/last", "gain/ndcg@{k}/last", "gain/ndcg@{k}/fall")
FATES = ("first_ten/ndcg@{k}/first", "first_ten/ndcg@{k}/last", "first_ten/ndcg@{k}/fall")
FATES += ("learnt", "lost", "forgotten", "drop")
TABLES = (LEVELS, FATES, moves.MEASURES)


@experiment("forgetting")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Follows every learner along both streams; writes curves and figures."""
    grids, task = learner_grids(cfg), task_of(cfg)
    metrics = [name.format(k=cfg.k) for name in METRICS]
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=[cfg.seed])
    training, validation, heldout = (mask[0] for mask in parts)
    streamed, seeds = ~validation, range(cfg.seed, cfg.seed + cfg.seeds)
    hops = bool(cfg.dataset.get("hops"))
    stream: dict[str, Any] = {"exposures": cfg.exposures, "hops": hops}
    order, shorter = (
        jr.stream_orders(task, cfg.exposures, seeds, part=part, hops=hops)
        for part in (streamed, training)
    )
    chunk = -(-order.shape[1] // cfg.points)
    rounds, heldout_rounds = (points(some, chunk) for some in (order, shorter))
    drawn = moves.sample(cfg, task, streamed)

    def measure(grid):
        """Chooses a setting, and follows the learner along both streams."""
        shared: dict[str, Any] = {"seeds": seeds, "chunk": chunk}
        setting: Any = grid.learner(0)
        if len(grid.settings) > 1:
            part = training | validation
            resume = run.resume(grid.name, "choice")
            swept = jr.sweep(grid, task, part=part, resume=resume, **stream, **shared)
            setting = swept.best(on=validation, metric=f"ndcg@{cfg.k}")
        shared |= {"pause": run.pause}
        held, _ = follow(setting, task, shorter, heldout, metrics, **shared)
        found, last = follow(setting, task, order, streamed, metrics, **shared)
        first, learner = last.state(seeds[0]), last.learner_of(seeds[0])
        queries = jnp.asarray(task.queries[drawn.queries])
        return {
            "heldout": held,
            "values": found,
            "rows": first.theta[drawn.tools],
            "asked": map_queries(learner, first, queries),
            **moves.measure(task, streamed, last),
            **grid.columns(
                np.tile(last.numbers[:1], (len(seeds), 1))
                if last.settings
                else np.tile(grid.settings[:1], (len(seeds), 1))
            ),
        }

    results: dict[str, np.ndarray] = {}
    curves = {"rounds": rounds, "heldout/rounds": heldout_rounds}
    bar = Progress(grids, unit="learner")
    for grid in bar:
        bar.set_postfix_str(name := grid.name)
        found = run.result(name, lambda grid=grid: measure(grid))
        values = by_arrival(found["values"], order, streamed)
        rankings = {
            "heldout": found["heldout"].mean(axis=-1, dtype=np.float64),
            "seen": seen(values, rounds),
            "gain": seen(values - values[:, :1], rounds),
            "first_ten": values[..., :10].mean(axis=-1, dtype=np.float64),
        }
        for curve, means in rankings.items():
            for metric in ("recall@{k}", "ndcg@{k}"):
                key = f"{name}/{curve}/{metric.format(k=cfg.k)}"
                curves[key] = means[..., METRICS.index(metric)]
                results |= {f"{key}/{at}": x for at, x in moments(curves[key]).items()}
        right = values[:, :, METRICS.index("accuracy")] > 0
        curves[f"{name}/forgotten"] = forgotten(right, rounds)
        single = fates(right, rounds) | {key: found[key] for key in moves.MEASURES}
        single |= {number: found[number] for number in grid.names}
        results |= {f"{name}/{key}": value for key, value in single.items()}
        if cfg.tsne.tools and name == cfg.tsne.learner:
            moves.picture(cfg, run, task.theta[drawn.tools], found["rows"], found["asked"])
    np.savez(run.directory / "curves.npz", allow_pickle=False, **curves)
    for curve, label in LABELS.items():
        at = heldout_rounds if curve == "heldout" else rounds
        shown = {grid.name: curves[f"{grid.name}/{curve}/ndcg@{cfg.k}"] for grid in grids}
        curves_figure(run, curve, ("round", f"nDCG@{cfg.k} of {label}"), at, shown)
    shown = {grid.name: curves[f"{grid.name}/forgotten"] for grid in grids}
    labels = ("round", "queries forgotten, of those seen")
    curves_figure(run, "forgotten", labels, rounds, shown)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Checks learners, points and the picture."""
    names = [grid.name for grid in learner_grids(cfg)]
    require("points", cfg.points, ">= 2", lambda x: x >= 2)
    for part in ("tools", "queries"):
        require(f"tsne.{part}", cfg.tsne[part], ">= 0", lambda x: x >= 0)
    if cfg.tsne.tools:
        require("tsne.learner", cfg.tsne.learner, f"one of {names}", lambda x: x in names)
        tsne.require_sklearn("tsne.tools=0")


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints levels, forgetting and moves of each learner."""
    title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}"
    for columns in TABLES:
        columns = [column.format(k=cfg.k) for column in columns]
        results_table(results, list(cfg.learners), columns, title)


if __name__ == "__main__":
    main.cli()
