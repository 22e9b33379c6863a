"""Tool-Rank: the reranker of a recipe with ``model: tool_rank``, on the first stage it names
(Tool-REX, Section 2.5)."""

from pathlib import Path

import numpy as np

from experiments.parts.bench import Bench
from experiments.parts.fit import store
from experiments.parts.fit.refiner import candidates
from experiments.parts.fit.trainable import trainable
from jaxret.nn.layers import Compute
from jaxret.retrieval import tool_rank as retrieval
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.retrieval.verdict import verdict
from jaxret.training import pairs, verdicts, word_dropout

HARD = ("candidates", "random")


def reranker(bench: Bench, name: str, seed: int) -> Reranker:
    """The trained language model."""
    settings, train, documents = bench.recipes[name], bench.parts.train, bench.task.documents
    if settings["hard"] not in HARD:
        raise ValueError(f"{name}: hard must be one of {HARD}, got {settings['hard']!r}")
    word_dropout.check(settings["drop_words"])
    path = None if settings["path"] is None else Path(settings["path"])
    model = retrieval.load(settings["weights"], path, dtype=settings["dtype"])
    asked = verdict(
        model.tokenizer,
        answers=tuple(settings["answers"]),
        place=settings["place"],
        instruction=settings["instruction"],
        prompt=None if settings["prompt"] is None else Path(settings["prompt"]),
        query_limit=settings["limit"],
        document_limit=settings["document_limit"],
    )
    print(f"{settings['weights']}: {model.memory()}", flush=True)  # before anything is loaded
    compute = Compute(dtype=settings["dtype"], remat=settings["remat"])
    params = model.params(asked)
    part = trainable(model.network(asked, compute), params, settings["lora"], seed)
    untrained = retrieval.tool_rank(
        model.network(asked), params, asked, documents, pairs=settings["pairs"], name=name
    )
    table = untrained.params[1]

    def with_weights(trained):
        return untrained._replace(params=(part.whole(trained), table))

    def recipe():
        labels, count = bench.trained_on[1], settings["negatives"]
        if settings["hard"] == "random":
            rows = np.concatenate(
                [
                    pairs.random_negatives(
                        labels, len(documents), count=count, seed=seed + 1000 * i
                    )
                    for i in range(settings["redraws"])
                ]
            )
        else:
            found = candidates(bench, name, seed, "train", train).items
            rows = pairs.hard_negatives(labels, found, count=count)
        heads, tails = asked.heads(bench.texts(train)), asked.tails(documents)
        made = verdicts.verdicts(
            part.apply,
            heads,
            tails,
            rows,
            drop_words=settings["drop_words"],
            size=settings["size"],
            seed=seed,
        )
        return made._replace(frozen=part.frozen)

    def validate(trained):
        rows = bench.parts.validation[: settings["validated"]]
        first = candidates(bench, name, seed, "validation", bench.parts.validation)
        first = first._replace(items=first.items[: len(rows)], scores=first.scores[: len(rows)])
        found = refine(with_weights(trained), bench.texts(rows), first, progress=False)
        return bench.means(found, rows)

    fitted = store.fitted(
        bench.cfg,
        bench.run,
        name,
        seed,
        settings={**settings, "under": bench.recipes.get(settings["first"])},
        start=lambda: part.start,
        recipe=recipe,
        validate=validate,
    )
    return with_weights(fitted.params)
