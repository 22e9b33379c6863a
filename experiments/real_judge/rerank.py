"""A real judge as a reranker, with unknown probabilities                      (ORAG Algorithm 2)

    uv run python -m experiments.real_judge.rerank

Some tools are shown, one is used, and its success is the reward. Rerankers:

    none     uses the first tool of the slate
    judge    the language model of `experiments.real_judge.ask`: uses the most probable tool
    matched  a simulated reranker that recognises a right tool with the judge's mean probability,
             the same for every tool and query, and otherwise picks at random

No learner knows the probability that a shown tool is used. ``recognised`` is this probability r for
right tools, measured over slates drawn from the documents' embeddings. ``reranked`` divides by pi,
the probability that a tool is on the slate, so on average the row of the right tool moves by r, not
by 1: a constant r scales its steps, an r that varies between queries biases them.

    recognised/..           r over queries (mean), over those of one tool (least, most), and the
                            share of queries with r below 0.1 (never) and above 0.9 (always)
    RERANKER/LEARNER/..     success of the tool used (online), nDCG@k by the last embeddings (final)

Letters: N queries, I tools, k tools shown. 2 cores: 40 s; no server is needed.
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from experiments.real_judge.learn import measure
from experiments.real_judge.table import TABLE, Pairs, joined, load
from jaxret.environments.environment import Environment, SlateReranker
from jaxret.rules.policies import Policy
from jaxret.runtime.validate import require
from jaxret.types import PRNGKey

RERANKERS = ("none", "judge", "matched")
COLUMNS = ("online", "final")
TAU = 0.04  # tau of the slates that measure recognition; the largest in the learners' grids


@experiment("real_judge_rerank")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Measure how often the judge recognises a tool, then every learner with every reranker."""
    pairs = joined(task_of(cfg), load(TABLE if cfg.table is None else Path(cfg.table)))
    tools = len(pairs.task.theta)
    require("shown", cfg.shown, f"at most {tools}, the tools of the table", lambda x: x <= tools)
    seen = recognised(pairs, cfg.shown, cfg.draws, cfg.seed)
    results = {f"recognised/{name}": np.array([x]) for name, x in seen.items()}
    by_reranker = environments(pairs, seen["mean"], cfg.shown)
    steps = {}
    for name in cfg.rerankers:
        for grid in learner_grids(cfg):
            step = f"{name}/{grid.name}"
            steps[step] = partial(measure, cfg, run.resume(step), pairs, grid, by_reranker[name])
    for step, found in run.results(steps, "learner"):
        results |= {f"{step}/{key}": found[key] for key in COLUMNS}
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check rerankers and numbers."""
    for name in cfg.rerankers:
        require("rerankers", name, f"some of {', '.join(RERANKERS)}", RERANKERS.__contains__)
    require("draws", cfg.draws, ">= 1", lambda x: x >= 1)
    require("shown", cfg.shown, ">= 2", lambda x: x >= 2)
    learner_grids(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print how often a right tool is recognised, and a line per learner and reranker."""
    for name in ("mean", "least", "most", "never", "always"):
        print(f"recognised/{name:<8} {results[f'recognised/{name}']['mean']:.3f}")
    rows = [f"{name}/{learner}" for name in cfg.rerankers for learner in cfg.learners]
    results_table(results, rows, COLUMNS, f"{cfg.dataset.name}, {cfg.shown} shown")


def recognised(pairs: Pairs, shown: int, draws: int, seed: int) -> dict[str, float]:
    """Measure how often the judge uses a shown right tool, over drawn slates."""
    task = pairs.task
    found = recognition(
        jr.judging_reranker(pairs.yes),
        jr.policies.softmax(k=shown),
        jnp.asarray(task.queries @ task.theta.T / TAU),
        jnp.asarray(task.labels),
        jax.random.key(seed),
        draws,
    )
    shown_at_all = np.isfinite(found)
    right, found = task.labels[shown_at_all, 0], found[shown_at_all]
    tools = [found[right == tool].mean() for tool in np.unique(right)]
    return {
        "mean": float(found.mean()),
        "least": float(min(tools)),
        "most": float(max(tools)),
        "never": float((found < 0.1).mean()),
        "always": float((found > 0.9).mean()),
    }


def environments(pairs: Pairs, recognised: float, shown: int) -> dict[str, Environment]:
    """Make the rerankers; the simulated one also finds a right tool by chance, 1 in ``shown``."""
    accuracy = max(0.0, (recognised - 1 / shown) / (1 - 1 / shown))
    return {
        "none": Environment(),
        "judge": Environment(reranker=jr.judging_reranker(pairs.yes)),
        "matched": Environment(reranker=jr.simulated_reranker(accuracy=accuracy)),
    }


def recognition(
    reranker: SlateReranker,
    policy: Policy,
    logits: Float[Array, "N I"],
    labels: Int[Array, "N L"],
    key: PRNGKey,
    draws: int,
) -> Float[np.ndarray, " N"]:
    """Compute the share of slates with a right tool on which the reranker uses a right one.

    Returns:
      the shares; NaN where no slate has a right tool.
    """

    def draw(key, query):
        show, rerank = jax.random.split(key)
        slate = policy.show(show, logits[query], None)
        right = (slate.items[:, None] == labels[query][None, :]).any(axis=1)
        return right.any(), right[reranker(rerank, slate, labels[query], query)]

    def count(key, query):
        present, used = jax.vmap(draw, (0, None))(jax.random.split(key, draws), query)
        return used.sum() / present.sum()  # 0 / 0 is NaN

    queries = jnp.arange(len(labels))
    return np.asarray(jax.jit(jax.vmap(count))(jax.random.split(key, len(labels)), queries))


if __name__ == "__main__":
    main.cli()
