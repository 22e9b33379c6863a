"""Is a model better if it was trained on expanded documents?   (Tool-REX, Sections 4.1 and 4.2)

    uv run python -m experiments.document_training seeds=3                      # DeskBank, built in
    uv run python -m experiments.document_training +others.torchhub=FOLDER   # other data as well

Trains each recipe once on each text of the documents (``documents``), on the training part of one
data set, and ranks its test queries under each text. A reranker sorts one fixed pool, found by the
encoder before training under the first text, so that only the text that the reranker reads differs.
The queries of the data sets in ``others``, of which no query and no tool was trained on, are ranked
as well, under each text that all of their documents have.

    encoder/DATA/TEXT/metric                   the encoder before training
    RECIPE/trained on TEXT/DATA/TEXT/metric    one value per seed; metrics at ``cuts``

2 quiet cores: two to four minutes a training of `tool_embed`, six and 15 GB of memory one of
`cross_encoder`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.retrieval import methods
from experiments.retrieval.bench import Bench
from experiments.retrieval.recipes import config_of
from jaxret import data, encoders
from jaxret.data.templates import TEMPLATES, template
from jaxret.methods import cross_encoder, encoder_tuning
from jaxret.retrieval.dense import dense
from jaxret.retrieval.ranking import Ranking, mean_metrics, metrics_at
from jaxret.retrieval.retriever import refine, search
from jaxret.runtime.validate import require, require_one_of
from jaxret.task import Task

#: Models that can read other documents than those that they were trained on.
MODELS = ("query2desc", "dpr", "tool_embed", "cross_encoder")


@experiment("document_training")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Train every recipe on every text, and rank every data set under every text."""
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    benches = {text: Bench(reading(cfg, text), run, step=f"{text}-") for text in cfg.documents}
    first = next(iter(benches.values()))
    tasks = {cfg.dataset.name: first.tasks.test, **others(cfg)}
    results: dict[str, np.ndarray] = {}
    pools: dict[str, Ranking] = {}
    for name, task in tasks.items():
        for text, documents in documents_of(task, cfg.documents):
            rows = encoders.encode(first.encoder, documents, kind="document", cache=first.cache)
            found = search(dense(text, rows, first.encoder), task.texts or (), cfg.pool)
            pools.setdefault(name, found)  # of the first text
            results |= measured(f"encoder/{name}/{text}", found, task, cfg.cuts)

    def learn(recipe, bench, seed):
        """Train a recipe on one text, and rank every data set under every text."""
        model = methods.trained(bench, recipe, seed)
        found = {}
        for name, task in tasks.items():
            for text, documents in documents_of(task, cfg.documents):
                if bench.recipes[recipe]["model"] == "cross_encoder":
                    other = cross_encoder.with_documents(model, first.encoder, documents)
                    ranking = refine(other, task.texts or (), pools[name])
                else:
                    other = encoder_tuning.with_documents(model, documents)
                    ranking = search(other, task.texts or (), max(cfg.cuts))
                found |= measured(f"{name}/{text}", ranking, task, cfg.cuts)
        return found

    for recipe in selected(cfg):
        for text, bench in benches.items():
            steps = [
                run.result(f"{recipe}-{text}-{seed}", partial(learn, recipe, bench, seed))
                for seed in seeds
            ]
            for key in steps[0]:
                values = np.concatenate([step[key] for step in steps])
                results[f"{recipe}/trained on {text}/{key}"] = values
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check recipes, texts and numbers."""
    require("documents", list(cfg.documents), "one text or more", bool)
    for text in cfg.documents:
        require_one_of("documents", text, TEMPLATES)
    recipes = selected(cfg)
    for name, recipe in recipes.items():
        config_of(name, recipe)
        require_one_of(f"recipes.{name}.model", recipe["model"], MODELS)
        if recipe["model"] == "cross_encoder":
            methods.check_below(recipes, name)
    require("cuts", list(cfg.cuts), f"in 1 .. pool={cfg.pool}", lambda c: c and max(c) <= cfg.pool)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per training text, for each data set and each text that is ranked."""
    metrics = metrics_at(cfg.cuts)
    ranked = dict.fromkeys(key.rpartition("/")[0].rpartition("/trained on ")[2] for key in results)
    places = dict.fromkeys(one.partition("/")[2] for one in ranked)
    trained = [f"{r}/trained on {text}" for r in selected(cfg) for text in cfg.documents]
    for place in places:
        rows = [f"{one}/{place}" for one in ("encoder", *trained)]
        results_table(results, rows, metrics, place.replace("/", ", "))


def selected(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """Return the selected recipes; the config has settings of others, too."""
    return {name: recipe for name, recipe in plain(cfg.recipes).items() if "model" in recipe}


def reading(cfg: DictConfig, text: str) -> DictConfig:
    """Return the config of an experiment on one text of the documents."""
    copy = cfg.copy()
    OmegaConf.update(copy, "document", text, force_add=True)
    return copy


def others(cfg: DictConfig) -> dict[str, Task]:
    """Load the data sets in which nothing was trained on, at most ``queries`` of each.

    Raises:
      ValueError: if the documents of a data set have none of the texts.
    """
    tasks = {}
    for name, path in plain(cfg.others).items():
        known = name in data.SOURCES
        task = jr.load_task(name if known else "jsonl", path, encoder=None)
        rows = np.random.default_rng(cfg.seed).permutation(len(task))[: cfg.queries]
        tasks[name] = replace(task.select(np.sort(rows)), name=name)
        if not list(documents_of(task, cfg.documents)):
            raise ValueError(f"others.{name}: its documents have no {' or '.join(cfg.documents)}")
    return tasks


def documents_of(task: Task, texts: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each text that all documents of a task have, with the documents."""
    assert task.dataset is not None
    for text in texts:
        try:
            yield text, [template(text)(document) for document in task.dataset.documents]
        except ValueError:  # without a tool profile
            continue


def measured(
    name: str, ranking: Ranking, task: Task, cuts: Sequence[int]
) -> Mapping[str, np.ndarray]:
    """Compute recall and nDCG at the cuts, as results of one seed."""
    means = mean_metrics(ranking, task.labels, cuts)
    return {f"{name}/{metric}": np.array([value]) for metric, value in means.items()}


if __name__ == "__main__":
    main.cli()
