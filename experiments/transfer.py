"""Does the projection matter, and does what is learnt transfer?   (ORAG Algorithms 1 and 3)

    uv run python -m experiments.transfer                                  # DeskBank, built in
    uv run python -m experiments.transfer dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.transfer other.name=e5_small other.path=FOLDER other.layers=null

Each learner with rows that are free, in the unit ball and on the unit sphere, tuned for each on the
validation part as in `experiments.orag`:

    online, final   as there
    norms           of the rows afterwards: mean and standard deviation (spread) over tools, and the
                    mean over the stream's right tools (used): larger, where tools in demand grow
    seen, heldout   nDCG@k of the queries of a stream of the training part, and of others that need
                    the same tools in other words; the gain of each over the documents, and the
                    share of the first gain that the second is

With the projection ``carry``, after the stream of the training part at the same setting:

    later     a fifth of the tools, drawn by each seed, was missing in the stream with all queries
              that need one, and is added with the rows of its documents. Held-out queries that need
              an old tool, and that need a new one: nDCG@k (old, new), and how often a tool of the
              other kind is ranked first (new_for_old, old_for_new)
    encoder   held-out queries come in another encoder's vectors (here fewer layers of the same):
                static        its documents
                as_they_are   the learnt rows, if the widths agree
                rotated       the learnt rows, by the rotation that brings the two encoders closest
                              on documents and streamed queries (`jaxret.retrieval.align`)
                change        its documents and the rotated, scaled change of the rows
                relearnt      learnt with the other encoder from the start, tuned for it
              as_they_are_static and rotated_static are the first encoder's documents so carried

2 cores: DeskBank 3 min, busy with other work too. Expect there (5 seeds): greedy ends at nDCG@10
0.60 with any projection, its free rows at a mean norm of 1.16; on the sphere 0.41 of its gain
carries over to other words (0.490 against 0.401); tools added later are found better than by
documents alone (0.437 against 0.392), and those learnt before too (0.482 against 0.403). To four of
the six layers its rows carry over when rotated (0.348, relearnt 0.308, the first encoder's
documents 0.270), the change alone less (0.214, from 0.160).
"""

from pathlib import Path

import hydra
import numpy as np
from omegaconf import DictConfig
from tqdm import tqdm

from experiments.parts import learners, other_encoder, problem, show
from experiments.parts.config import CONFIGS, plain
from experiments.parts.later_tools import KINDS, draw, later
from experiments.parts.learners import PROJECTIONS, Rival
from experiments.parts.other_encoder import WAYS
from experiments.parts.problem import Problem
from experiments.parts.run import Run, open_run
from experiments.parts.transfer_plays import Results, Stage, online, unseen
from experiments.parts.tuning import Ranker
from jaxret import encoders, plots, tracking
from jaxret.encoders import TextEncoder
from jaxret.online.environment import Environment
from jaxret.validate import require

ONLINE = ("online/accuracy", "final/ndcg@{k}", "norms/mean", "norms/spread", "norms/used")
WORDS = ("seen/ndcg@{k}", "heldout/ndcg@{k}", "seen/gain", "heldout/gain", "heldout/share")
LATER = tuple(f"later/{kind}/{who}" for kind in KINDS for who in ("static", "learnt", "gain"))
ENCODER = tuple(f"encoder/{way}" for way in dict.fromkeys([*WAYS.values(), *WAYS]))
Rivals = dict[str, dict[str, Rival]]  # learner -> projection -> its settings


@hydra.main(config_path=CONFIGS, config_name="transfer", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Runs what the config says, or reads it if it ran before; returns the mean of every result."""
    rivals = build(cfg)
    require("later.share", cfg.later.share, "in (0, 1)", lambda share: 0 < share < 1)
    other = problem.find_encoder(cfg.other)
    with open_run(cfg) as run:
        if run is not None:
            compute(cfg, rivals, other, problem.load(cfg), run)
    results = tracking.read_results(cfg.directory)
    rows = [f"{name}/{kind}" for name, kinds in rivals.items() for kind in kinds]
    where = f"{cfg.dataset.name}, exposures={cfg.exposures}: {cfg.directory}"
    for title, names, columns in (
        (where, rows, ONLINE),
        ("the same tools in other words", rows, WORDS),
        (f"tools added later, {cfg.carry}", learning(rivals), LATER[:6]),
        ("a tool of the other kind is ranked first", learning(rivals), LATER[6:]),
        (f"another encoder, {cfg.carry}", learning(rivals), ENCODER),
    ):
        show.results_table(results, names, [c.format(k=cfg.k) for c in columns], title)
    cosine = results["encoder/cosine"]["mean"]
    print(f"cosine of held-out queries and their rotated vectors: {cosine:.3f}")
    return {name: value["mean"] for name, value in results.items()}


def build(cfg: DictConfig) -> Rivals:
    """Every learner with every projection; one that does not learn with its own alone."""
    projections = list(cfg.projections)
    if cfg.carry not in projections:
        raise ValueError(f"carry must be one of projections={projections}, got {cfg.carry!r}")
    rivals: Rivals = {}
    for name, spec in plain(cfg.learners).items():
        own = learners.build(name, spec)
        if "lens" in spec:
            raise ValueError(
                f"learner {name!r} has a lens, which another encoder's queries do not fit: leave "
                "it out"
            )
        if own.settings[:, 1].any():
            each = {kind: spec | {"projection": {"name": kind}} for kind in projections}
            rivals[name] = {kind: learners.build(name, one) for kind, one in each.items()}
        else:
            rivals[name] = {spec["projection"]["name"]: own}
    return rivals


def learning(rivals: Rivals) -> list[str]:
    """The learners that learn: their step is not 0."""
    return [
        name
        for name, kinds in rivals.items()
        if any(rival.settings[:, 1].any() for rival in kinds.values())
    ]


def compute(cfg: DictConfig, rivals: Rivals, encoder: TextEncoder, task: Problem, run: Run) -> None:
    """Plays every learner in every part; writes results, curves and figures."""
    parts = problem.part(task.dataset, cfg.validation, cfg.heldout, cfg.seed)
    stage = Stage(
        run=run,
        task=task,
        parts=parts,
        k=cfg.k,
        seeds=range(cfg.seed, cfg.seed + cfg.seeds),
        exposures=cfg.exposures,
        chunk=cfg.chunk,
        tasks=task.dataset.groups if cfg.dataset.get("hops") else None,
        ranker=Ranker(task, cfg.k),
    )
    for seed in stage.seeds:
        draw(task, parts, cfg.later.share, seed)  # or refuses it
    cache = encoders.cache_directory() if cfg.cache is None else Path(cfg.cache)
    there = other_encoder.encoded(task, encoder, cache)
    other, cosine = other_encoder.bridge(stage, there, PROJECTIONS[cfg.carry]())
    results: Results = {"encoder/cosine": cosine}
    curves: dict[str, dict[str, np.ndarray]] = {}

    def carry(states):
        return other.serve(np.asarray(states.theta), task.theta_1)

    pairs = [(name, kind) for name, kinds in rivals.items() for kind in kinds]
    bar = tqdm(pairs, unit="learner")
    for name, kind in bar:
        unit, rival = f"{name}-{kind}", rivals[name][kind]
        bar.set_postfix_str(unit)
        learns = name in learning(rivals)
        goes_on = learns and kind == cfg.carry
        player = stage.player(rival, Environment())
        found, success = online(stage, unit, rival, player)
        more = carry if goes_on else lambda states: {}
        held, setting, kept = unseen(stage, unit, rival, player, more)
        results |= {f"{name}/{kind}/{key}": values for key, values in (found | held).items()}
        curves[f"{name}, {kind}" if learns else name] = {"success": success}
        if goes_on:
            added = later(stage, unit, rival, setting, cfg.later.share)
            served = {way: kept[way] for way in WAYS if way in kept}
            served |= other.static(task.theta_1) | {"relearnt": other.relearnt(unit, rival)}
            results |= {f"{name}/later/{key}": values for key, values in added.items()}
            results |= {f"{name}/encoder/{key}": values for key, values in served.items()}

    flat = {f"{name}/success": curve["success"] for name, curve in curves.items()}
    np.savez(run.directory / "curves.npz", allow_pickle=False, **flat)
    show.accuracy_figure(run.directory, run.tracker, curves, "projection")
    if learning(rivals):
        figures(run, learning(rivals), results, cfg.k)
    run.finish(results)


def figures(run: Run, names: list[str], results: Results, k: int) -> None:
    """Tools added later, and the other encoder: learnt rows beside documents."""

    def draw_dots(file, x_label, places):
        before, after = zip(*places.values(), strict=True)
        rows = {"documents": [results[f"{names[0]}/{file}/{key}"] for key in before]}
        rows |= {name: [results[f"{name}/{file}/{key}"] for key in after] for name in names}
        drawn, ax = plots.new_figure(x_label, f"nDCG@{k}")
        plots.dots(ax, list(places), rows)
        plots.save(drawn, run.directory / f"{file}.png")
        run.tracker.figure(file, run.directory / f"{file}.png")

    kinds = {f"{kind} tools": (f"{kind}/static", f"{kind}/learnt") for kind in KINDS[:2]}
    draw_dots("later", "held-out queries that need", kinds)
    ways = [way for way in WAYS if f"{names[0]}/encoder/{way}" in results]
    places = {way.replace("_", " "): (WAYS[way], way) for way in ways}
    draw_dots("encoder", "rows for another encoder's queries", places)


if __name__ == "__main__":
    cli()
