"""An online learner as a retriever: the rows of the documents after a stream of training queries.

Each training query comes ``online.exposures`` times, or once for the method ``NAME+once`` (ORAG
Tables 1 and 2), in an order of each seed; the feedback is one bit, whether the tool shown was
right. The setting whose last rows rank the validation part best, on average over the seeds, is
chosen. What each seed has learnt is in ``embeddings/NAME/SEED`` of the run.
"""

import jaxret as jr
from experiments.common.config import plain
from experiments.common.learners import learner_grid
from experiments.retrieval.bench import Bench
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Retriever


def retriever(bench: Bench, name: str, seed: int) -> Retriever:
    """Returns the retriever of one seed: its last rows, and its query map where it has one.

    Args:
      bench: data and parts.
      name: name of the learner, or ``NAME+once``.
      seed: one of those that are streamed.
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
