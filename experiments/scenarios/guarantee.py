"""How often does a guard lose more than its budget, if the world wants it to?

    uv run python -m experiments.scenarios.guarantee

`jr.guarded` promises that with probability 1 - delta no more than the budget is ever lost against
static retrieval, whatever the learner does and whatever the bits are. Here a learner that always
shows the other of two tools is guarded in `WORLDS` that were made to break the promise. Of each
delta, epsilon and budget:

    WORLD/violated     share of the runs in which more than the budget was lost at some time;
                       to be held against delta
    WORLD/stopped      in which the learner had to go

A seed is ``runs`` runs side by side. 2 cores: 3 minutes, mostly compiling; 6 when they were shared.

Letters: R runs, T rounds, W worlds.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.learners.guarded import LARGEST
from jaxret.learners.learner import Learner
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require
from jaxret.types import Choice, Feedback, PRNGKey


class Past(NamedTuple):
    """What an adversary knows when it settles the bits of a round."""

    lots: Float[Array, " 2"]  # its own, in [0, 1)
    time: Float[Array, ""]  # the round, as a share of all
    loss: Float[Array, ""]  # L_t
    bound: Float[Array, ""]  # U_t, what the guard believes


class Guarded(NamedTuple):
    """One kind of guard."""

    delta: float
    epsilon: float
    times: float  # the budget, as a multiple of the smallest

    @property
    def budget(self) -> float:
        """In successes; the smallest is a hair larger, not to be refused for its rounding."""
        return self.times * -np.log(self.delta) / (-LARGEST * np.log1p(-self.epsilon)) * (1 + 1e-9)

    def __str__(self) -> str:
        return f"delta {self.delta}, epsilon {self.epsilon}, budget {self.budget:.0f}"


def harms(past: Past):
    """Static retrieval's tool is always right, the learner's never."""
    return past.lots >= jnp.array([0.0, 1.0])


def worse(past: Past):
    """Right in .4 of the rounds, and in .2."""
    return past.lots < jnp.array([0.4, 0.2])


def equal(past: Past):
    """Both are always right: nothing is lost, and the guard must not think so too often."""
    return past.lots >= 0


def drifts(past: Past):
    """The learner is better by .4 for half of the rounds, and then worse by .4."""
    return past.lots < jnp.where(past.time < 0.5, jnp.array([0.2, 0.6]), jnp.array([0.6, 0.2]))


def turns(past: Past):
    """The same, to and fro, ten times."""
    late = (past.time * 20).astype(int) % 2
    return past.lots < jnp.where(late == 0, jnp.array([0.2, 0.6]), jnp.array([0.6, 0.2]))


def knows(past: Past):
    """Lies in wait: both are right until luck has put the bound below the loss, then it harms."""
    return jnp.stack([jnp.asarray(True), past.loss < past.bound])


#: What each says of the past: the bits of static retrieval's tool and of the learner's.
WORLDS: dict[str, Callable[[Past], Bool[Array, " 2"]]] = {
    f.__name__: f for f in (harms, worse, equal, drifts, turns, knows)
}


@experiment("scenarios_guarantee")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Plays every guard in every world."""
    results = {}
    for guard in (bar := Progress(list(guards(cfg)), unit="guard")):
        bar.set_postfix_str(str(guard))
        play = jax.jit(partial(played, guard, rounds=cfg.rounds, runs=cfg.runs))
        seeds = [play(jax.random.key(cfg.seed + seed)) for seed in range(cfg.seeds)]
        most, stopped = (np.stack(values) for values in zip(*seeds, strict=True))  # [seeds, W, R]
        for number, world in enumerate(WORLDS):
            violated = most[:, number] > guard.budget + 1e-3  # whole numbers, summed in float32
            results[f"{guard}/{world}/violated"] = violated.mean(axis=1)
            results[f"{guard}/{world}/stopped"] = stopped[:, number].mean(axis=1)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuses guards that cannot be."""
    for name in ("seeds", "runs", "rounds"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    for guard in guards(cfg):
        require("times", guard.times, ">= 1", lambda x: x >= 1)
        jr.guarded(contrarian(), guard.budget, delta=guard.delta, epsilon=guard.epsilon)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints what was violated, and where the learner had to go."""
    rows = [str(guard) for guard in guards(cfg)]
    for kind in ("violated", "stopped"):
        columns = [f"{world}/{kind}" for world in WORLDS]
        title = f"{kind}: of {cfg.seeds * cfg.runs:,} runs of {cfg.rounds:,} rounds"
        results_table(results, rows, columns, title)


def guards(cfg: DictConfig) -> Iterator[Guarded]:
    """All that are asked for."""
    for numbers in product(cfg.deltas, cfg.epsilons, cfg.times):
        yield Guarded(*numbers)


def contrarian() -> Learner:
    """Shows the worst tool of all, by the documents, and learns nothing."""
    inner = jr.frozen()
    start = lambda theta, available=None: inner.init(-theta, available)  # noqa: E731
    return inner._replace(name="contrarian", init=start)


def played(
    kind: Guarded, key: PRNGKey, *, rounds: int, runs: int
) -> tuple[Float[Array, "W R"], Bool[Array, "W R"]]:
    """Many runs in each world: the largest loss, and whether the learner had to go.

    The world settles the bits of both tools before the guard draws.
    """
    guard = jr.guarded(contrarian(), kind.budget, delta=kind.delta, epsilon=kind.epsilon)
    query = jnp.array([1.0, 0.0])  # tool 0 is static retrieval's, tool 1 the learner's

    def run(world, key):
        def one(carry, t):
            state, loss, most = carry
            lots, draws = jax.random.split(jax.random.fold_in(key, t))
            past = Past(jax.random.uniform(lots, (2,)), t / rounds, loss, state.extra.bound)
            bits = jax.lax.switch(world, [*WORLDS.values()], past).astype(jnp.float32)
            slate = guard.act(state, query, draws)
            choice = Choice(slate.items[0], slate.propensity[0])
            state = guard.update(state, query, choice, Feedback(bits[choice.item]))
            loss = loss + bits[0] - bits[choice.item]
            return (state, loss, jnp.maximum(most, loss)), None

        start = (guard.init(jnp.eye(2)), jnp.zeros(()), jnp.zeros(()))
        (state, _, most), _ = jax.lax.scan(one, start, jnp.arange(rounds))
        return most, state.extra.stopped

    keys = jax.random.split(key, (len(WORLDS), runs))
    return jax.vmap(jax.vmap(run, (None, 0)))(jnp.arange(len(WORLDS)), keys)


if __name__ == "__main__":
    main.cli()
