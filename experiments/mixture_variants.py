"""Which experts, weights and uses of predictions improve a mixture of experts?

    uv run python -m experiments.mixture_variants                                     # DeskBank
    uv run python -m experiments.mixture_variants dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool

Each variant changes one setting of `jr.mixture()`, on the same streams (`seed=100`; only
`map_every` uses these seeds too). For each variant:

    VARIANT/online, /final       success of the tool shown; nDCG@10 of the streamed queries
    VARIANT/gain, /final_gain    the same minus those of the unchanged mixture, seed by seed

Five variants are defined here, since none is good enough for the library:

    stacked     logits are mixed, not probabilities: argmax sum_g w_g logit P_g
    thompson    an expert is drawn by its weight in every round, and its best tool is shown
    clusters    each cluster of tools has weights of its own
    own choice  an expert learns only from the bits of tools that it would have shown
    equal       the weights stay equal

2 cores: 10 minutes for DeskBank, 15 for UltraTool.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner, query_for, vector_of
from jaxret.learners.mixture import Blend, blend_of, logit
from jaxret.learners.offsets import informed
from jaxret.offline.off_policy import groups_of_rows
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.types import Slate

COLUMNS = ("online", "gain", "final", "final_gain")
UNCALIBRATED = 1e6  # a trust that effectively turns calibration off
MAP = {"map_every": 16}  # as the default experts


@experiment("mixture_variants")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate every variant on the same streams."""
    task, seeds = task_of(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    results: dict[str, np.ndarray] = {}
    base: dict[str, np.ndarray] = {}
    made = variants(task, cfg.clusters)
    steps = {name: partial(simulated, make, task, seeds) for name, make in made.items()}
    for name, found in run.results(steps, "variant"):
        base = base or found
        results |= {
            f"{name}/online": found["online"],
            f"{name}/gain": found["online"] - base["online"],
            f"{name}/final": found["final"],
            f"{name}/final_gain": found["final"] - base["final"],
        }
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse numbers out of their range."""
    require("clusters", cfg.clusters, ">= 1", lambda x: x >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per variant."""
    names = [name.removesuffix("/online") for name in results if name.endswith("/online")]
    results_table(results, names, COLUMNS, f"{cfg.dataset.name}, variants of the mixture")


def simulated(make: Callable[[], Learner], task: Task, seeds: range) -> dict[str, np.ndarray]:
    """Simulate one variant; return ``online [S]`` and ``final [S]``."""
    run = jr.simulate(make(), task, seeds=seeds)
    final = jr.evaluate(run, task, ["ndcg@10"])["ndcg@10"]
    return {"online": run.accuracy.values, "final": final.values}


def variants(task: Task, clusters: int) -> dict[str, Callable[[], Learner]]:
    """Return functions that make the variants, by name; the first is the unchanged mixture."""
    vectors, hybrid, centred, mapped, replayed = jr.default_experts()
    static, moving = [vectors, hybrid], [centred, mapped, replayed]
    made: dict[str, Callable[[], Learner]] = {"as it is": jr.mixture}
    settings = {
        "alpha": (0.0, 0.001, 0.1),
        "beta": (0.25, 2.0),
        "floor": (1e-4, 1e-2),
        "trust": (1.0, 100.0, UNCALIBRATED),
    }
    for name, values in settings.items():
        made |= {f"{name} {x:g}": partial(jr.mixture, **{name: x}) for x in values}
    experts = {
        "no offsets": jr.default_experts(offsets=False),
        "no words": changed(lexical=[0.0]),
        "no balance": changed(balance=[0.0]),
        "lexical 0.35": changed(lexical=[0.35]),
        "balance 1": changed(balance=[1.0]),
        "no static": moving,
        "no vectors alone": [hybrid, *moving],
        "no hybrid": [vectors, jr.grid(jr.hybrid, tau=[0.02], lexical=[0.6]), *moving],
        "no mostly words": [
            vectors,
            jr.grid(jr.hybrid, tau=[0.02], lexical=[0.25], balance=[0.5]),
            *moving,
        ],
        "no centred": [*static, mapped, replayed],
        "no mapped_replayed": [*static, centred, replayed],
        "no centred_replayed": [*static, centred, mapped],
        "no replay": [*static, centred, with_words(jr.mapped, tau=[0.02], eta=[6e-4], **MAP)],
        "rows alone too": [
            *jr.default_experts(),
            with_words(jr.greedy_replayed, tau=[0.02], eta=[6e-4]),
        ],
    }
    made |= {name: partial(jr.mixture, grids) for name, grids in experts.items()}
    groups = groups_of_rows(task.theta, min(clusters, len(task.theta)))
    return made | {
        "stacked": stacked,
        "thompson": thompson,
        "clusters": partial(clustered, groups),
        "own choice": own_choice,
        "equal": partial(jr.mixture, beta=1e-9, alpha=0.0),
    }


def with_words(preset: Callable[..., Learner], **settings: Any) -> LearnerGrid:
    """Make an expert with the weight of words and the strength of most of the others."""
    return jr.grid(informed, of=preset, **{"lexical": [0.25], "balance": [0.5]} | settings)


def changed(**offsets: Any) -> list[LearnerGrid]:
    """Return the default experts with other offsets in all that learn."""
    vectors, hybrid, *_ = jr.default_experts()
    replayed = MAP | {"tau": [0.02], "eta": [6e-4]} | offsets
    return [
        vectors,
        hybrid,
        with_words(jr.centred, tau=[0.04], eta=[4e-3], **MAP | {"balance": [1.0]} | offsets),
        with_words(jr.mapped_replayed, **replayed),
        with_words(jr.centred_replayed, **{"balance": [1.0]} | replayed),
    ]


def predicted(blend: Blend, state, query):
    """Return the calibrated prediction of each expert for each tool: logit P_g(a), [G, I]."""
    rows = []
    for g in range(len(blend.experts)):
        one, own = blend.expert(state, g)
        assert one.logits is not None
        u, v = state.extra.calibration.line[g]
        rows.append(u * logit(jax.nn.softmax(one.logits(own, query_for(one, query)))) + v)
    return jnp.where(state.available, jnp.stack(rows), -jnp.inf)


def unchanged() -> tuple[Learner, Blend]:
    """Return the mixture as it is, and its structure."""
    learner = jr.mixture()
    blend = blend_of(learner)
    assert blend is not None
    return learner, blend


def stacked() -> Learner:
    """Make a mixture that shows the best tool by the weighted mean of its experts' logits."""
    learner, blend = unchanged()

    def logits(state, query):
        return jnp.exp(state.extra.log_weights) @ predicted(blend, state, query)

    def act(state, query, key):
        return best(logits(state, query))

    def scores(state, queries):
        return jax.lax.map(partial(logits, state), queries)

    return learner._replace(act=act, logits=logits, scores=scores, probabilities=None)


def thompson() -> Learner:
    """Make a mixture in which one expert, drawn by its weight, chooses."""
    learner, blend = unchanged()

    def act(state, query, key):
        g = jax.random.categorical(key, state.extra.log_weights)
        return best(predicted(blend, state, query)[g])

    return learner._replace(act=act, probabilities=None)


def clustered(groups: np.ndarray) -> Learner:
    """Make a mixture with weights per cluster; a query belongs to the cluster of its best tool."""
    learner, whose = jr.mixture(), jnp.asarray(groups)

    def init(theta, available=None):
        state = learner.init(theta, available)
        weights = jnp.tile(state.extra.log_weights, (int(groups.max()) + 1, 1))
        return state._replace(extra=(state.extra, weights))

    def at(state, query):
        cluster = whose[jnp.argmax(state.theta @ vector_of(query))]
        mixed, weights = state.extra
        return cluster, state._replace(extra=mixed._replace(log_weights=weights[cluster]))

    def update(state, query, choice, feedback):
        cluster, own = at(state, query)
        new = learner.update(own, query, choice, feedback)
        weights = state.extra[1].at[cluster].set(new.extra.log_weights)
        return new._replace(extra=(new.extra, weights))

    def logits(state, query):
        assert learner.logits is not None
        return learner.logits(at(state, query)[1], query)

    def act(state, query, key):
        return learner.act(at(state, query)[1], query, key)

    def scores(state, queries):
        return jax.lax.map(partial(logits, state), queries)

    changed = {"init": init, "act": act, "update": update, "logits": logits, "scores": scores}
    return learner._replace(**changed, probabilities=None)


def own_choice() -> Learner:
    """Make a mixture whose experts learn only from the tools that they would have shown."""
    learner, blend = unchanged()
    ends = np.cumsum([len(kind.settings) for kind in blend.kinds])[:-1]

    def update(state, query, choice, feedback):
        new = learner.update(state, query, choice, feedback)
        mine = jnp.argmax(predicted(blend, state, query), axis=1) == choice.item  # [G]
        kinds = zip(jnp.split(mine, ends), new.extra.rows, state.extra.rows, strict=True)
        rows = tuple(_where(*kind) for kind in kinds)
        return new._replace(extra=new.extra._replace(rows=rows))

    return learner._replace(update=update)


@jax.vmap
def _where(mine, new, old):
    """Select the new rows of some experts of a kind, and the old rows of the others."""
    return jax.tree.map(partial(jnp.where, mine), new, old)


def best(scores) -> Slate:
    """Return a slate of the best tool alone."""
    return Slate(items=jnp.argmax(scores)[None], propensity=jnp.ones(1, scores.dtype))


if __name__ == "__main__":
    main.cli()
