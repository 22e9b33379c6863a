"""How good is retrieval on ToolRet, by its authors' protocol?      (Tool-REX, Tables 2 and 3)

    uv run python -m experiments.evaluate_toolret dataset.path=FOLDER      # null: from the hub
    uv run python -m experiments.evaluate_toolret dataset.path=FOLDER \\
        methods=[bm25,tool_embed_4b,tool_rank]

Reads any copy of the data in the hub's layout, with the documents of ToolRet or the expanded ones
of Tool-REX (`jaxret.data.toolret`). Each task is run with and without its instructions, the pool is
all tools, lists have length 100, and ties rank by descending id as in trec_eval, also those of a
reranker or of a file. Metrics are nDCG@10, recall@10 and completeness@10 of each query; then means

    task/TASK             over its queries
    web, code, customized over the category's tasks      (CATEGORY/queries: over its queries)
    average               over the three categories      the paper's tables
    tasks                 over all tasks                 the scripts that come with it

A model of the config is one of

    bm25             Lucene's variant on words, without stemming
    dense            inner products of unit vectors, by an encoder of `jaxret.encoders`
    run              files TASK-SETTING.run in a folder, written by an earlier run or elsewhere
    cross_encoder    a HuggingFace sequence classifier, on the list of the model ``first``
    tool_rank        a language model that says true or false, on that list likewise

Documents are the strings of the data without the encoders' prefixes, as in the authors' code, not
even E5's ``passage:``. The prefix of queries is in the model's ``template``.

Departures from the authors' code: weights in float32 or bfloat16, not float16; ties at rank 100,
which are broken by id here and by the order of a Python set there; and Tool-Rank, which uses our
prompt unless ``models.tool_rank.prompt=FILE`` gives the one that the weights were trained on, and
cuts documents instead of the end of the question.

Letters: M queries of a task, P tools of a pool.

2 cores: a copy of 1,287 tools (`experiments.arrange_toolret`), limit=60, BM25 and MiniLM: 1.5 min.

The paper's nDCG@10, recall@10 and completeness@10, averaged over categories:

    ToolRet     BM25 36.41 46.40 39.02     Qwen3-Embedding-0.6B 43.13 52.80 42.97
    Tool-REX    BM25 39.35 48.17 40.08     Qwen3-Embedding-0.6B 43.30 52.89 43.03

The paper does not say whether these are with instructions; its scripts have them only for BM25 and
rerankers.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import print_table
from jaxret.data.toolret import CATEGORIES, Benchmark, benchmark
from jaxret.encoders import ENCODERS, encode, load_encoder
from jaxret.evaluation import metrics
from jaxret.methods import cross_encoder, tool_rank
from jaxret.methods.tool_rank import verdict
from jaxret.retrieval import bm25, runs
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.ranking import Ranking, in_trec_order, trec_order
from jaxret.retrieval.retriever import Reranker, Retriever, Texts, refine, search
from jaxret.runtime import sharding
from jaxret.runtime.files import existing
from jaxret.runtime.validate import require
from jaxret.training.config import require_one_of

COLUMNS = (*CATEGORIES, "average", "tasks")
SETTINGS = ("with", "without")  # with or without instruction
POOLS = ("all", "category")
MEASURES = ("ndcg", "recall", "completeness")
HOLES = ("instruction", "query")  # placeholders of a template

Rows: TypeAlias = Int[np.ndarray, " M"]  # positions of queries


class Request(NamedTuple):
    """The queries of a task under a setting."""

    task: str
    setting: str
    rows: Rows

    @property
    def name(self) -> str:
        return f"{self.task}-{self.setting}"


class World:
    """The benchmark, the queries that were drawn of each task, and the pools that are searched."""

    def __init__(self, cfg: DictConfig, run: RunDirectory, benchmark: Benchmark):
        self.cfg, self.run, self.benchmark = cfg, run, benchmark
        self.models: dict[str, dict[str, Any]] = plain(cfg.models)
        self.documents = [str(text) for text in benchmark.dataset.documents]
        self.tool_ids, self.labels = benchmark.dataset.tool_ids, benchmark.dataset.labels
        self.trec_order = trec_order(self.tool_ids)
        self.cache: Path | None = cache_folder(cfg)
        split = np.asarray(benchmark.dataset.split)
        self.rows = {task: self._drawn(np.flatnonzero(split == task)) for task in benchmark.tasks}

    def _drawn(self, rows: Rows) -> Rows:
        order = np.random.default_rng(self.cfg.seed).permutation(len(rows))
        return rows[np.sort(order[: self.cfg.limit])]

    def ids(self, rows: Rows) -> list[str]:
        """Return the ids of queries, as in run files."""
        return [self.benchmark.ids[row] for row in rows]

    def texts(self, name: str, setting: str, rows: Rows) -> list[str]:
        """Render the queries for a model.

        Without an instruction the template gets the model's ``uninstructed``, as in the authors'
        code, so most models still read the rest of the template.
        """
        model, instructed = self.models[name], setting == "with"
        bare = model["uninstructed"]
        bare = ENCODERS[model["encoder"]].instruction if bare is None else bare
        return [
            model["template"].format(
                query=self.benchmark.queries[row],
                instruction=(instructed and self.benchmark.instructions[row]) or bare,
            )
            for row in rows
        ]

    def pool(self, task: str) -> str | None:
        """Return the category that is searched for a task; None for all tools."""
        return None if self.cfg.pool == "all" else self.benchmark.tasks[task]

    def members(self, pool: str | None) -> Int[np.ndarray, " P"]:
        """Return the tools of a pool, as catalogue rows in the order of trec_eval's ties."""
        found = np.flatnonzero([pool in (None, own) for own in self.benchmark.pools])
        if not len(found):
            raise ValueError(f"there are no tools of category {pool!r}: search pool=all")
        return found[np.argsort(self.trec_order[found])]

    def search(self, retriever: Retriever, texts: Texts, pool: str | None) -> Ranking:
        """Find the best tools of a pool, as rows of the whole catalogue."""
        members, cfg = self.members(pool), self.cfg
        found = search(
            retriever,
            texts,
            min(cfg.depth, len(members)),
            mesh=sharding.make_mesh(item=cfg.devices) if cfg.devices > 1 else None,
            chunk=cfg.chunk,
            progress=False,
        )
        return found._replace(items=members[found.items].astype(np.int32))


Stage: TypeAlias = Callable[[Request], Ranking]


@experiment("evaluate_toolret")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Rank, write run files, measure."""
    methods = list(cfg.methods)
    world = World(cfg, run, benchmark(cfg.dataset.path, **plain(cfg.dataset.options)))
    print(counts(world.benchmark, world.rows), flush=True)
    results = {f"drawn/{task}": float(len(rows)) for task, rows in world.rows.items()}
    stages = {name: stage(world, name) for name in methods}
    done = 0
    for name in methods:
        for setting in SETTINGS:
            of_tasks = {}
            for task, rows in world.rows.items():
                request = Request(task=task, setting=setting, rows=rows)
                found = stages[name](request)
                path = run.directory / "rankings" / name / f"{request.name}.run"
                runs.save_run(path, found, world.ids(rows), world.tool_ids, tag=name)
                labels, order = world.labels[rows], world.trec_order
                of_tasks[task] = measured(found, labels, order, cfg.k)
                done += 1
                run.pause(done)
            means = averages(of_tasks, world.benchmark.tasks)
            results |= {f"{name}/{setting}/{which}": mean for which, mean in means.items()}
            print(f"{name}, {setting} instruction: done", flush=True)
    return {name: np.array([value]) for name, value in results.items()}


@main.check
def check(cfg: DictConfig) -> None:
    """Check methods and numbers."""
    check_models(plain(cfg.models), list(cfg.methods))
    for name in ("depth", "devices"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    require("k", cfg.k, f"at most depth, {cfg.depth}", lambda k: k <= cfg.depth)
    require("limit", cfg.limit, "null or >= 1", lambda x: x is None or x >= 1)
    require("pool", cfg.pool, f"one of {', '.join(POOLS)}", lambda x: x in POOLS)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print two tables in percent: the paper's averages, then nDCG of every task."""
    methods, means = list(cfg.methods), {name: x["mean"] for name, x in results.items()}
    drawn = {name.split("/")[1]: int(n) for name, n in means.items() if name.startswith("drawn/")}
    limit = "all queries" if cfg.limit is None else f"at most {cfg.limit} a task, seed {cfg.seed}"
    title = (
        f"{cfg.dataset.path or 'hub'}, pool={cfg.pool}: {sum(drawn.values()):,} queries of "
        f"{len(drawn)} tasks ({limit})"
    )
    rows = [f"{name}/{setting}" for name in methods for setting in SETTINGS]
    metrics = measures(cfg.k)
    columns = [(which, metric) for which in COLUMNS for metric in metrics]
    print_table(
        title,
        [f"{which if m == metrics[0] else ''}\n{m[0].upper()}@{cfg.k}" for which, m in columns],
        {row: [percent(means.get(f"{row}/{which}/{m}")) for which, m in columns] for row in rows},
    )
    print_table(
        f"N@{cfg.k} of every task",
        ["queries", *(row.replace("/", "\n") for row in rows)],
        {
            task: [str(count), *(percent(means[f"{row}/task/{task}/{metrics[0]}"]) for row in rows)]
            for task, count in drawn.items()
        },
    )


def percent(value: float | None) -> str:
    """Format a number in percent; empty for None."""
    return "" if value is None else f"{100 * value:.2f}"


def measured(
    ranking: Ranking, labels: Int[np.ndarray, "M L"], order: Int[np.ndarray, " I"], k: int
) -> dict[str, Float[np.ndarray, " M"]]:
    """Compute nDCG, recall and completeness at k of every query, with trec_eval's ties."""
    items = in_trec_order(ranking, order).items
    items = np.pad(items, ((0, 0), (0, max(0, k - items.shape[1]))), constant_values=-1)
    values = metrics.evaluate_ranking(items, labels, [k])
    return {name: np.asarray(values[name], np.float64) for name in measures(k)}


def measures(k: int) -> tuple[str, ...]:
    """Return the names of the metrics."""
    return tuple(f"{measure}@{k}" for measure in MEASURES)


def averages(
    of_tasks: Mapping[str, Mapping[str, np.ndarray]], categories: Mapping[str, str]
) -> dict[str, float]:
    """Compute the means that the module's docstring lists.

    Returns:
      Means by ``which/metric``; without ``average`` if a category has no task.
    """
    found: dict[str, float] = {}
    for metric in next(iter(of_tasks.values())):
        task = {name: float(values[metric].mean()) for name, values in of_tasks.items()}
        found |= {f"task/{name}/{metric}": value for name, value in task.items()}
        found[f"tasks/{metric}"] = fmean(task.values())
        for category in CATEGORIES:
            if own := [name for name in task if categories[name] == category]:
                queries = np.concatenate([of_tasks[name][metric] for name in own])
                found[f"{category}/{metric}"] = fmean(task[name] for name in own)
                found[f"{category}/queries/{metric}"] = float(queries.mean())
        parts = [f"{category}/{metric}" for category in CATEGORIES]
        if all(part in found for part in parts):
            found[f"average/{metric}"] = fmean(found[part] for part in parts)
    return found


def counts(benchmark: Benchmark, rows: Mapping[str, Sequence[int] | Rows]) -> str:
    """Format a line with the tools, tasks and queries of each category, since copies differ."""
    parts = []
    for category in CATEGORIES:
        tasks = [task for task, own in benchmark.tasks.items() if own == category]
        parts.append(
            f"{category} {benchmark.pools.count(category):,} tools, "
            f"{sum(len(rows[task]) for task in tasks):,} queries of {len(tasks)} tasks"
        )
    return "; ".join(parts)


def stage(world: World, name: str) -> Stage:
    """Make the function that ranks tools for the queries of a task, or read stored rankings.

    Documents are read, and weights loaded, when they are first needed.
    """
    compute = STAGES[world.models[name]["model"]](world, name)

    def rank(request):
        unit = f"{name}-{request.name}"
        return Ranking(**world.run.result(unit, lambda: compute(request)._asdict()))

    return rank


def _bm25(world: World, name: str) -> Stage:
    @cache
    def index(pool):
        return bm25.bm25([world.documents[row] for row in world.members(pool)], name=name)

    def rank(request):
        texts = world.texts(name, request.setting, request.rows)
        pool = world.pool(request.task)
        return world.search(index(pool), [text.strip() or "NONE" for text in texts], pool)

    return rank


def _dense(world: World, name: str) -> Stage:
    settings = world.models[name]
    found = load_encoder(settings["encoder"], _path(settings), dtype=settings["dtype"])
    tokens = settings["max_tokens"] or found.spec.max_tokens
    spec = found.spec._replace(query_prefix="", document_prefix="", max_tokens=tokens)
    encoder = replace(found, spec=spec)

    @cache
    def index(pool):
        texts = [world.documents[row] for row in world.members(pool)]
        vectors = encode(encoder, texts, kind="document", cache=world.cache)
        return inner_product(name, jnp.asarray(vectors))

    @cache
    def queries(setting):  # all tasks at once, so that the cache is read once
        rows = np.concatenate(list(world.rows.values()))
        texts = world.texts(name, setting, rows)
        vectors = encode(encoder, texts, kind="query", cache=world.cache)
        return dict(zip(rows.tolist(), vectors, strict=True))

    def rank(request):
        pool = world.pool(request.task)
        vectors = np.stack([queries(request.setting)[row] for row in request.rows.tolist()])
        return world.search(index(pool), vectors, pool)

    return rank


def _run(world: World, name: str) -> Stage:
    folder = existing(world.models[name]["path"], "run files TASK-with.run and TASK-without.run")

    def rank(request):
        path, ids = folder / f"{request.name}.run", world.ids(request.rows)
        found = in_trec_order(runs.load_run(path, ids, world.tool_ids), world.trec_order)
        return Ranking(*(part[:, : world.cfg.depth] for part in found))

    return rank


def _reranked(load: Callable[[World, str], Reranker]) -> Callable[[World, str], Stage]:
    """Make the stage of a reranker, on the lists of another model."""

    def build(world, name):
        settings = world.models[name]
        first = stage(world, settings["first"])
        reranker = cache(lambda: load(world, name))

        def rank(request):
            texts = world.texts(name, request.setting, request.rows)
            ranking, chunk = first(request), settings["chunk"]
            found = refine(reranker(), texts, ranking, chunk=chunk, progress=False)
            return in_trec_order(found, world.trec_order)

        return rank

    return build


def _cross_encoder(world: World, name: str) -> Reranker:
    settings, path = world.models[name], _path(world.models[name])
    assert path is not None
    network, params = cross_encoder.read_published(path)
    return cross_encoder.reranker(
        network,
        params,
        load_encoder(settings["encoder"], path),
        world.documents,
        query_limit=settings["query_limit"],
        document_limit=settings["document_limit"],
        name=name,
    )


def _tool_rank(world: World, name: str) -> Reranker:
    settings = world.models[name]
    model = tool_rank.load_language_model(
        settings["weights"], _path(settings), dtype=settings["dtype"]
    )
    question = verdict(
        model.tokenizer,
        answers=tuple(settings["answers"]),
        instruction="",  # already added by the template
        prompt=settings["prompt"],
        query_limit=settings["query_limit"],
        document_limit=settings["document_limit"],
    )
    network, params = model.network(question), model.params(question)
    pairs = settings["pairs"]
    return tool_rank.reranker(network, params, question, world.documents, pairs=pairs, name=name)


STAGES: dict[str, Callable[[World, str], Stage]] = {
    "bm25": _bm25,
    "dense": _dense,
    "run": _run,
    "cross_encoder": _reranked(_cross_encoder),
    "tool_rank": _reranked(_tool_rank),
}
NEED_PATH = ("run", "cross_encoder")


def check_models(models: Mapping[str, Mapping[str, Any]], methods: list[str]) -> None:
    """Check the models, before anything is read."""
    if not methods:
        raise ValueError(f"methods is empty; known: {', '.join(models)}")
    for name in methods:
        if name not in models:
            raise ValueError(f"unknown method {name!r}; known: {', '.join(models)}")
        model, where = models[name], f"models.{name}"
        require_one_of(f"{where}.model", model["model"], STAGES)
        if model["model"] in NEED_PATH and not model["path"]:
            raise ValueError(f"{where}.path must name a folder, got {model['path']!r}")
        if "encoder" in model:
            require_one_of(f"{where}.encoder", model["encoder"], ENCODERS)
        if "weights" in model:
            require_one_of(f"{where}.weights", model["weights"], tool_rank.RERANKERS)
        if "prompt" in model:
            tool_rank.read_prompt(model["prompt"])
        if "template" in model:
            _check_template(f"{where}.template", model["template"])
        if "first" in model:
            check_models({key: x for key, x in models.items() if key != name}, [model["first"]])


def _check_template(where: str, template: str) -> None:
    holes = [hole for _, hole, _, _ in string.Formatter().parse(template) if hole is not None]
    if "query" not in holes or not set(holes) <= set(HOLES):
        raise ValueError(
            f"{where} must hold {{query}} and may hold {{instruction}}, got {template!r}"
        )


def _path(settings: Mapping[str, Any]) -> Path | None:
    return None if settings["path"] is None else Path(settings["path"])


if __name__ == "__main__":
    main.cli()
