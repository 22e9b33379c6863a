"""Every retrieval method by name: it fills the method's Config and calls its ``fit``.

    bm25, documents                 no training
    tool2vec_raw, tool2vec          means of training queries, unscaled and of length 1
    nudge_m, nudge_n                documents moved towards training queries, closed form
    query2query, query2desc         Tool2Vec, and documents, with an encoder trained for them
    dpr, tool_embed                 documents, with an encoder trained by contrast
    mlc                             multi-label classification
    refiner_tool2vec, ...           ToolRefiner on the first stage of its recipe
    cross_encoder, tool_rank        every candidate read together with the query
    refit                           queries corrected by a reranker's scores, and a second search
    greedy, orag, orag+once, ...    documents moved by an online learner; +once: each query once

Trained methods have a recipe of their name (`configs/methods.yaml`), online learners a config in
the group ``learner``. The data of the training part that a method uses (``sees``):

    nothing   documents alone
    bits      for each query shown, whether one tool was right
    labels    the right tools

Settings of every method are chosen on the labels of the validation part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.learners import learner_grid
from experiments.retrieval.bench import Bench
from experiments.retrieval.recipes import RERANKERS, RETRIEVERS, config_of
from jaxret.learners.rank_one import rule_of
from jaxret.methods import nudge, refiner, refit, tool2vec
from jaxret.methods.common import KEPT, FirstStage
from jaxret.retrieval import bm25
from jaxret.retrieval.dense import dense
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Features, Reranker, Retriever, Texts, refine
from jaxret.runtime.validate import require
from jaxret.task import Split, Task

UNTRAINED = ("bm25", "documents", "tool2vec_raw", "tool2vec", "nudge_m", "nudge_n")
SEES = {"bm25": "nothing", "documents": "nothing"}  # other methods without a learner: labels

#: (texts, ranking of the stage before, progress=True) -> ranking
Second: TypeAlias = Callable[..., Ranking]
Read: TypeAlias = Callable[[Texts], Features]


def rank(bench: Bench, name: str, seed: int, part: str = "test") -> Ranking:
    """Rank the queries of a part by a method.

    Args:
      bench: data, parts and recipes.
      name: name of the method; ``NAME+first`` is the refiner NAME with the first stage's score
        added, ``NAME+once`` the online learner NAME after a stream that shows each query once.
      seed: seed of its training or stream.
      part: train, validation or test.
    """

    def compute():
        first, recipe = before(bench, name), name.partition("+")[0]
        if first is None:
            return bench.search(retriever(bench, name, seed), part)
        second = second_stage(bench, name, seed)  # validates settings before a first stage trains
        found = rank(bench, first, seed, part)
        if bench.recipes[recipe]["model"] != "refit":
            found = cut(found, bench.recipes[recipe]["candidates"])
        return second(bench.texts(getattr(bench.parts, part)), found)

    return bench.ranking(name, seed, part, compute)


def cut(ranking: Ranking, k: int) -> Ranking:
    """Return the k best of each list."""
    return Ranking(items=ranking.items[:, :k], scores=ranking.scores[:, :k])


def retriever(bench: Bench, name: str, seed: int) -> Retriever:
    """Return a method that searches the catalogue itself."""
    if name in bench.recipes:
        recipe = bench.recipes[name]
        more = {"first": ranked_by(bench, recipe["hard"], 0)} if recipe["model"] == "dpr" else {}
        return _fitted(RETRIEVERS, bench, name, seed, **more)
    if name.partition("+")[0] in (bench.cfg.get("learners") or {}):
        return learnt_online(bench, name, seed)
    return untrained(bench, name)


def trained(bench: Bench, name: str, seed: int) -> Any:
    """Return the retriever or reranker of a recipe, trained on the training part."""
    if bench.recipes[name]["model"] in RERANKERS:
        return reranker(bench, name, seed)
    return retriever(bench, name, seed)


def learnt_online(bench: Bench, name: str, seed: int) -> Retriever:
    """Return what an online learner has learnt from a stream of training queries.

    These are its last rows, and its query map where it has one. Each training query comes
    ``online.exposures`` times, or once for ``NAME+once`` (ORAG Tables 1 and 2), in an order of each
    seed; the feedback is one bit, whether the tool shown was right. The setting whose last rows
    rank the validation part best, on average over the seeds, is chosen. What each seed has learnt
    is in ``embeddings/NAME/SEED`` of the run.
    """
    base, _, extra = name.partition("+")
    cfg, task, parts, step = bench.cfg, bench.task, bench.masks, f"{name}-stream"
    seeds = range(cfg.seed, cfg.seed + cfg.online.seeds)
    folder = bench.run.directory / "embeddings" / name

    def learn():
        swept = jr.sweep(
            learner_grid(base, plain(cfg.learners)[base]),
            task,
            part=parts.training,
            exposures=1 if extra == "once" else cfg.online.exposures,
            seeds=seeds,
            resume=bench.run.resume(step),
            chunk=cfg.online.chunk,
        )
        ndcg = f"ndcg@{cfg.online.k}"
        best = swept.best(on=parts.validation, metric=ndcg)
        for one in seeds:
            best.save(folder / str(one), one)
        ranked = jr.evaluate(best, task, [f"recall@{cfg.online.k}", ndcg], part=parts.heldout)
        return {"order": best.order, **{f"heldout/{m}": x.values for m, x in ranked.items()}}

    bench.run.result(step, learn)
    learnt = jr.load_embeddings(folder / str(seed))
    plainly = dense(name, learnt.theta, task.encoder, cache=bench.cache)
    return plainly._replace(read=lambda texts: learnt.map_queries(plainly.read(texts)))


def untrained(bench: Bench, name: str) -> Retriever:
    """Return a method without a recipe."""
    train, validation = bench.tasks.train, bench.tasks.validation
    if name == "bm25":
        return bm25.bm25(bench.task.documents or ())
    if name == "documents":
        return dense(name, bench.task.theta, bench.task.encoder, cache=bench.cache)
    options = {"name": name, "cache": bench.cache}
    if name in ("tool2vec", "tool2vec_raw"):
        return tool2vec.fit(train, tool2vec.Config(normalise=name == "tool2vec"), **options)
    if name == "nudge_m":
        return nudge.fit(train, nudge.Config(form="m"), validation=validation, **options)
    if name == "nudge_n":
        return nudge.fit(train, nudge.Config(form="n"), validation=validation, **options)
    known = ", ".join([*UNTRAINED, *bench.recipes])
    raise ValueError(f"unknown method {name!r}; known: {known}")


def reranker(bench: Bench, name: str, seed: int) -> Reranker:
    """Return a method that sorts a list; ``NAME+first`` adds the first stage's score."""
    recipe, _, extra = name.partition("+")
    first = first_stage(bench, recipe, seed)
    found = _fitted(RERANKERS, bench, recipe, seed, first=first)
    if extra != "first":
        return found
    weights, validation = found.config.first_weights, bench.tasks.validation
    mixed = refiner.with_first(found, weights, validation=validation, first=first)
    print(f"{recipe}: weight {mixed.prior} of the first stage's score")
    return mixed


def first_stage(bench: Bench, recipe: str, seed: int) -> FirstStage:
    """Return the first stage that retrieves the candidates of a recipe's reranker."""
    settings = bench.recipes[recipe]
    if settings["first"] == "tool2vec":
        return tool2vec.tool2vec_stage(bench.tasks.train, settings["leave_out"])
    return ranked_by(bench, settings["first"], seed)


def ranked_by(bench: Bench, name: str, seed: int) -> FirstStage:
    """Return a method as a first stage, whose rankings are kept in the run."""

    def search(task: Task, k: int) -> Ranking:
        part = Split._fields[[one is task for one in bench.tasks].index(True)]
        return cut(rank(bench, name, seed, part), k)

    return FirstStage(search, bench.recipes.get(name, name))


def before(bench: Bench, name: str) -> str | None:
    """Return the method whose list this one sorts; None where it searches the catalogue itself."""
    settings = bench.recipes.get(name.partition("+")[0], {})
    return settings["first"] if settings.get("model") in (*RERANKERS, "refit") else None


def second_stage(bench: Bench, name: str, seed: int, read: Read | None = None) -> Second:
    """Return what a method does with the list of the method before it."""
    recipe = bench.recipes[name.partition("+")[0]]
    if recipe["model"] != "refit":
        return partial(refine, reranker(bench, name, seed))
    config = config_of(name, recipe)
    first = untrained(bench, bench.recipes[recipe["first"]]["first"])
    found = refit.fit(
        bench.task,
        config,
        validation=bench.tasks.validation,
        judged=rank(bench, recipe["first"], seed, "validation"),
        theta=first.params,
        name=name,
    )
    print(f"{name}: {found.steps} steps")
    return replace(found, read=read or first.read)


def seeds(bench: Bench, name: str) -> range:
    """Return the seeds of a method's training or stream; one seed where nothing is random."""
    cfg, base = bench.cfg, name.partition("+")[0]
    streams = base in (cfg.get("learners") or {})
    count = cfg.seeds if base in bench.recipes else cfg.online.seeds if streams else 1
    return range(cfg.seed, cfg.seed + count)


def sees(cfg: DictConfig, name: str) -> str:
    """Return what a method learns from: nothing, bits or labels."""
    base = name.partition("+")[0]
    if base in (cfg.get("learners") or {}):
        learner = learner_grid(base, plain(cfg.learners)[base]).learner(0)
        rule = rule_of(learner)
        frozen = rule is not None and rule.estimator.name == "none"
        return "labels" if learner.facts.oracle else "nothing" if frozen else "bits"
    return SEES.get(base, "labels")


def check(cfg: DictConfig, names: Sequence[str]) -> None:
    """Refuse unknown methods and wrong settings, before anything is loaded or trained."""
    cuts, recipes = list(cfg.cuts), plain(cfg.recipes)
    require("part", cfg.part, f"one of {', '.join(Split._fields)}", Split._fields.__contains__)
    grids = plain(cfg.learners) if cfg.get("learners") else {}
    in_range = bool(cuts) and all(1 <= cut <= KEPT for cut in cuts)
    require("cuts", cuts, f"one or more numbers in 1 .. {KEPT}", lambda _: in_range)
    known = [*UNTRAINED, *recipes, *grids]
    for name in names:
        base, plus, extra = name.partition("+")
        if base not in known:
            raise ValueError(f"unknown method {name!r}; known: {', '.join(known)}")
        recipe = recipes.get(base, {})
        model = recipe.get("model")
        if plus and extra != ("once" if base in grids else "first" if model == "refiner" else ""):
            raise ValueError(f"method {name!r}: '+first' is for refiners, '+once' for learners")
        if base in grids:
            learner_grid(base, grids[base])
            for setting in ("exposures", "seeds", "k", "chunk"):
                require(f"online.{setting}", cfg.online[setting], ">= 1", lambda x: x >= 1)
        if recipe:
            config_of(base, recipe)
        if model in RERANKERS:
            given, allowed = recipe["candidates"], f">= {max(cuts)}, the largest of cuts"
            require(f"recipes.{base}.candidates", given, allowed, lambda n: n >= max(cuts))
            check_below(recipes, base)
        if model == "refit":
            reranker = recipes.get(recipe["first"], {})
            if reranker.get("model") not in RERANKERS or reranker["first"] not in UNTRAINED[1:]:
                raise ValueError(
                    f"recipes.{base}.first must be a recipe of a reranker on one of "
                    f"{', '.join(UNTRAINED[1:])}, got {recipe['first']!r}"
                )


def check_below(recipes: Mapping[str, Mapping[str, Any]], name: str) -> None:
    """Refuse the recipe of a reranker whose first stage is unknown or has wrong settings."""
    known = [*UNTRAINED, *(one for one in recipes if recipes[one]["model"] in RETRIEVERS)]
    first, allowed = recipes[name]["first"], f"one of {', '.join(known)}"
    require(f"recipes.{name}.first", first, allowed, known.__contains__)
    if first in recipes:
        config_of(first, recipes[first])


def _fitted(kinds: Mapping[str, Any], bench: Bench, name: str, seed: int, **more: Any) -> Any:
    """Fit the method of a recipe to the training part."""
    recipe, tasks = bench.recipes[name], bench.tasks
    return kinds[recipe["model"]].fit(
        tasks.train,
        config_of(name, recipe),
        validation=tasks.validation,
        seed=seed,
        name=name,
        folder=bench.cfg.models,
        hooks=bench.hooks,
        **more,
    )
