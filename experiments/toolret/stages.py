"""Models that rank ToolRet's tools, for `experiments.evaluate_toolret`.

A model of the config is one of

    bm25             Lucene's variant on words, without stemming
    dense            inner products of unit vectors, by an encoder of `jaxret.encoders`
    run              files TASK-SETTING.run in a folder, written by an earlier run or elsewhere
    cross_encoder    a HuggingFace sequence classifier, on the list of the model ``first``
    tool_rank        a language model that says true or false, on that list likewise

Documents are the strings of the data without the encoders' prefixes, as in the authors' code, not
even E5's ``passage:``. The prefix of queries is in the model's ``template``.
"""

import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from experiments.toolret.protocol import Request, World
from jaxret.encoders import ENCODERS, encode, load_encoder
from jaxret.methods import cross_encoder, tool_rank
from jaxret.methods.tool_rank import verdict
from jaxret.retrieval import bm25, runs
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.ranking import Ranking, in_trec_order
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.runtime.files import existing
from jaxret.training.config import require_one_of

Stage: TypeAlias = Callable[[Request], Ranking]

HOLES = ("instruction", "query")  # placeholders of a template


def stage(world: World, name: str) -> Stage:
    """Makes the function that ranks tools for the queries of a task, or reads stored rankings.

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
    """Makes the stage of a reranker, on the lists of another model."""

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


def check(models: Mapping[str, Mapping[str, Any]], methods: list[str]) -> None:
    """Checks the models, before anything is read.

    Raises:
      ValueError: if a model or setting is unknown or invalid.
      FileNotFoundError: if the file of a prompt does not exist.
    """
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
            check({key: x for key, x in models.items() if key != name}, [model["first"]])


def _check_template(where: str, template: str) -> None:
    holes = [hole for _, hole, _, _ in string.Formatter().parse(template) if hole is not None]
    if "query" not in holes or not set(holes) <= set(HOLES):
        raise ValueError(
            f"{where} must hold {{query}} and may hold {{instruction}}, got {template!r}"
        )


def _path(settings: Mapping[str, Any]) -> Path | None:
    return None if settings["path"] is None else Path(settings["path"])
