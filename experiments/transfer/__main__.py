"""Does the projection matter, and does what is learnt transfer?   (ORAG Algorithms 1 and 3)

    uv run python -m experiments.transfer                                  # DeskBank, built in
    uv run python -m experiments.transfer dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.transfer other.name=e5_small other.path=FOLDER other.layers=null

Each learner runs with unconstrained rows, in the unit ball and on the unit sphere; each seed splits
the queries and tunes on its validation part as in `experiments.orag`:

    online, final   as in `experiments.orag`
    norms           norms of the final rows: mean and standard deviation (spread) over tools, and
                    the mean over the stream's right tools (used), which is larger if the rows of
                    frequently needed tools grow
    seen, heldout   nDCG@k of the streamed training queries, and of held-out queries with the same
                    tools in other words; the gain of each over the documents, and the ratio of the
                    second gain to the first

With the projection ``transferred``, after the stream of the training part at the same setting:

    later     a fifth of the tools, drawn by each seed, is missing in the stream with all queries
              that need one, and is added afterwards with the rows of its documents. For held-out
              queries that need an old tool, and that need a new one: nDCG@k (old, new), and how
              often a tool of the other kind is ranked first (new_for_old, old_for_new)
    encoder   held-out queries are encoded by another encoder (here fewer layers of the same):
                static        its documents
                as_they_are   the learnt rows, if the widths agree
                rotated       the learnt rows, rotated by the best alignment of the two encoders on
                              documents and streamed queries (`experiments.transfer.align`)
                change        its documents plus the rotated, scaled change of the rows
                relearnt      learnt with the other encoder from the start, tuned for it
              as_they_are_static and rotated_static are the first encoder's documents, likewise

2 cores: DeskBank 4 min, busy with other work. Expect there (5 seeds): greedy ends at nDCG@10 0.59
to 0.60 with any projection, its unconstrained rows at a mean norm of 1.13; on the sphere 0.40 ±
0.04 of its gain transfers to other words; tools added later are found slightly better than by
documents (0.371 against 0.346), and so are tools learnt before (0.458 against 0.396). To four of
the six layers its rows transfer when rotated (0.322, relearnt 0.326, the first encoder's documents
0.269), the change less so (0.208, from 0.173).
"""

import numpy as np
from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from experiments.common.experiment import Found, experiment
from experiments.common.figures import accuracy_figure
from experiments.common.learners import learner_grid
from experiments.common.loading import encoder_of, task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.transfer import other_encoder
from experiments.transfer.later_tools import KINDS, draw, later
from experiments.transfer.other_encoder import WAYS
from experiments.transfer.protocols import Protocol, Results, online, unseen
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.rank_one import rule_of
from jaxret.rules import projections
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.task import encoded

ONLINE = ("online/accuracy", "final/ndcg@{k}", "norms/mean", "norms/spread", "norms/used")
WORDS = ("seen/ndcg@{k}", "heldout/ndcg@{k}", "seen/gain", "heldout/gain", "heldout/share")
LATER = tuple(f"later/{kind}/{who}" for kind in KINDS for who in ("static", "learnt", "gain"))
ENCODER = tuple(f"encoder/{way}" for way in dict.fromkeys([*WAYS.values(), *WAYS]))
Grids = dict[str, dict[str, LearnerGrid]]  # learner -> projection -> grid


@experiment("transfer")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every learner in every part; return the results, and write curves and figures."""
    grids, encoder = build(cfg), encoder_of(cfg.other)
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=seeds)
    protocol = Protocol(cfg, run, task, parts, seeds)
    for seed in seeds:
        draw(task, protocol.of_seed(seed).parts, cfg.later.share, seed)  # raises for invalid shares
    assert task.dataset is not None
    second = encoded(task.dataset, encoder, document=cfg.document, cache=cache_folder(cfg))
    other, cosine = other_encoder.bridge(protocol, second, getattr(projections, cfg.transferred)())
    results: Results = {"encoder/cosine": cosine}
    curves: dict[str, dict[str, np.ndarray]] = {}
    pairs = [(name, kind) for name, kinds in grids.items() for kind in kinds]
    bar = Progress(pairs, unit="learner")
    for name, kind in bar:
        unit, grid = f"{name}-{kind}", grids[name][kind]
        bar.set_postfix_str(unit)
        learns = name in learning(grids)
        goes_on = learns and kind == cfg.transferred
        found, success = online(protocol, unit, grid)
        more = (lambda rows: other.serve(rows, task.theta)) if goes_on else lambda rows: {}
        held, setting, kept = unseen(protocol, unit, grid, more)
        results |= {f"{name}/{kind}/{key}": values for key, values in (found | held).items()}
        curves[f"{name}, {kind}" if learns else name] = {"success": success}
        if goes_on:
            added = later(protocol, unit, grid, setting, cfg.later.share)
            served = {way: kept[way] for way in WAYS if way in kept}
            served |= other.static(task.theta) | {"relearnt": other.relearnt(unit, grid)}
            results |= {f"{name}/later/{key}": values for key, values in added.items()}
            results |= {f"{name}/encoder/{key}": values for key, values in served.items()}

    run.save_curves(curves)
    accuracy_figure(run, curves, "projection")
    if learning(grids):
        figures(run, learning(grids), results, cfg.k)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners, shares and encoders."""
    build(cfg)
    require("later.share", cfg.later.share, "in (0, 1)", lambda share: 0 < share < 1)
    encoder_of(cfg.other)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print each learner by projection, then its transfer."""
    grids = build(cfg)
    rows = [f"{name}/{kind}" for name, kinds in grids.items() for kind in kinds]
    for title, names, columns in (
        (f"{cfg.dataset.name}, exposures={cfg.exposures}", rows, ONLINE),
        ("the same tools in other words", rows, WORDS),
        (f"tools added later, {cfg.transferred}", learning(grids), LATER[:6]),
        ("a tool of the other kind is ranked first", learning(grids), LATER[6:]),
        (f"another encoder, {cfg.transferred}", learning(grids), ENCODER),
    ):
        results_table(results, names, [c.format(k=cfg.k) for c in columns], title)
    cosine = results["encoder/cosine"]["mean"]
    print(f"cosine of held-out queries and their rotated vectors: {cosine:.3f}")


def build(cfg: DictConfig) -> Grids:
    """Return every learner with every projection, or its own if it does not learn."""
    projections = list(cfg.projections)
    if cfg.transferred not in projections:
        raise ValueError(
            f"transferred must be one of projections={projections}, got {cfg.transferred!r}"
        )
    grids: Grids = {}
    for name, spec in plain(cfg.learners).items():
        own = learner_grid(name, spec)
        rule = rule_of(own.learner(0))
        if rule is None or rule.query_map is not None:
            raise ValueError(
                f"learner {name!r} must be rank one, without a query map, which another encoder's "
                "queries do not fit: leave it out"
            )
        if learns(own):
            each = {kind: spec | {"projection": kind} for kind in projections}
            grids[name] = {kind: learner_grid(name, one) for kind, one in each.items()}
        else:
            grids[name] = {rule.projection.name: own}
    return grids


def learns(grid: LearnerGrid) -> bool:
    """Return whether a learner learns: its step is not 0."""
    rule = rule_of(grid.learner(0))
    return rule is not None and rule.estimator.name != "none"


def learning(grids: Grids) -> list[str]:
    """Return the learners that learn."""
    return [name for name, kinds in grids.items() if any(map(learns, kinds.values()))]


def figures(run: RunDirectory, names: list[str], results: Results, k: int) -> None:
    """Draw tools added later, and the other encoder: learnt rows beside documents."""

    def draw_dots(file, x_label, groups):
        before, after = zip(*groups.values(), strict=True)
        rows = {"documents": [results[f"{names[0]}/{file}/{key}"] for key in before]}
        rows |= {name: [results[f"{name}/{file}/{key}"] for key in after] for name in names}
        drawn, ax = plots.new_figure(x_label, f"nDCG@{k}")
        plots.dots(ax, list(groups), rows)
        run.save_figure(drawn, file)

    kinds = {f"{kind} tools": (f"{kind}/static", f"{kind}/learnt") for kind in KINDS[:2]}
    draw_dots("later", "held-out queries that need", kinds)
    ways = [way for way in WAYS if f"{names[0]}/encoder/{way}" in results]
    groups = {way.replace("_", " "): (WAYS[way], way) for way in ways}
    draw_dots("encoder", "rows for another encoder's queries", groups)


if __name__ == "__main__":
    main.cli()
