"""How often does a guard lose more than its budget, against adversarial rewards?

    uv run python -m experiments.scenarios.guarantee

With probability 1 - delta, a learner in `jr.guarded` never loses more than the budget against
static retrieval, for any learner and any rewards. Here a learner that always shows the other of two
tools is guarded, in `ENVIRONMENTS` that try to break the guarantee. For each delta, epsilon and
budget:

    ENVIRONMENT/violated   share of the runs in which more than the budget was lost at some time,
                           which should be at most delta
    ENVIRONMENT/stopped    share of the runs in which the guard stopped the learner

A seed is ``runs`` runs side by side. 2 cores: 3 minutes, mostly compiling; 6 when they were shared.

Letters: R runs, T rounds, E environments.
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
    """Information of an adversary when it chooses the rewards of a round."""

    lots: Float[Array, " 2"]  # random numbers of the adversary in [0, 1)
    time: Float[Array, ""]  # the round, as a share of all rounds
    loss: Float[Array, ""]  # L_t
    bound: Float[Array, ""]  # U_t, the guard's bound of the loss


class Guarded(NamedTuple):
    """The settings of a guard."""

    delta: float  # probability with which more than the budget may be lost
    epsilon: float  # share of the rounds in which static retrieval is shown
    times: float  # the budget, as a multiple of the smallest one that is allowed

    @property
    def budget(self) -> float:
        """The budget in successes; slightly enlarged, so that rounding does not make it invalid."""
        return self.times * -np.log(self.delta) / (-LARGEST * np.log1p(-self.epsilon)) * (1 + 1e-9)

    def __str__(self) -> str:
        return f"delta {self.delta}, epsilon {self.epsilon}, budget {self.budget:.0f}"


def harms(past: Past):
    """Let the tool of static retrieval be always right, the learner's never."""
    return past.lots >= jnp.array([0.0, 1.0])


def worse(past: Past):
    """Let the tool of static retrieval be right in 0.4 of the rounds, the learner's in 0.2."""
    return past.lots < jnp.array([0.4, 0.2])


def equal(past: Past):
    """Let both tools be always right: nothing is lost, and the guard should rarely stop."""
    return past.lots >= 0


def drifts(past: Past):
    """Let the learner's tool be better by 0.4 for half of the rounds, and then worse by 0.4."""
    return past.lots < jnp.where(past.time < 0.5, jnp.array([0.2, 0.6]), jnp.array([0.6, 0.2]))


def turns(past: Past):
    """Let the learner's tool be better by 0.4, then worse by 0.4, ten times in turn."""
    late = (past.time * 20).astype(int) % 2
    return past.lots < jnp.where(late == 0, jnp.array([0.2, 0.6]), jnp.array([0.6, 0.2]))


def knows(past: Past):
    """Let both tools be right until the bound happens to be below the loss; then as in `harms`."""
    return jnp.stack([jnp.asarray(True), past.loss < past.bound])


#: Functions of the past: the rewards of static retrieval's tool and of the learner's.
ENVIRONMENTS: dict[str, Callable[[Past], Bool[Array, " 2"]]] = {
    f.__name__: f for f in (harms, worse, equal, drifts, turns, knows)
}


@experiment("scenarios_guarantee")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Simulate every guard in every environment."""
    results = {}
    for guard in (bar := Progress(list(guards(cfg)), unit="guard")):
        bar.set_postfix_str(str(guard))
        play = jax.jit(partial(played, guard, rounds=cfg.rounds, runs=cfg.runs))
        seeds = [play(jax.random.key(cfg.seed + seed)) for seed in range(cfg.seeds)]
        most, stopped = (np.stack(values) for values in zip(*seeds, strict=True))  # [seeds, E, R]
        for number, environment in enumerate(ENVIRONMENTS):
            violated = most[:, number] > guard.budget + 1e-3  # whole numbers, summed in float32
            results[f"{guard}/{environment}/violated"] = violated.mean(axis=1)
            results[f"{guard}/{environment}/stopped"] = stopped[:, number].mean(axis=1)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse guards whose settings are out of range."""
    for name in ("runs", "rounds"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)
    for guard in guards(cfg):
        require("times", guard.times, ">= 1", lambda x: x >= 1)
        jr.guarded(contrarian(), guard.budget, delta=guard.delta, epsilon=guard.epsilon)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print how often the guarantee was violated, and how often the learner was stopped."""
    rows = [str(guard) for guard in guards(cfg)]
    for kind in ("violated", "stopped"):
        columns = [f"{environment}/{kind}" for environment in ENVIRONMENTS]
        title = f"{kind}: of {cfg.seeds * cfg.runs:,} runs of {cfg.rounds:,} rounds"
        results_table(results, rows, columns, title)


def guards(cfg: DictConfig) -> Iterator[Guarded]:
    """Yield the guards of all settings."""
    for numbers in product(cfg.deltas, cfg.epsilons, cfg.times):
        yield Guarded(*numbers)


def contrarian() -> Learner:
    """Return a learner that shows the worst tool by the documents, and learns nothing."""
    inner = jr.frozen()
    start = lambda theta, available=None: inner.init(-theta, available)  # noqa: E731
    return inner._replace(name="contrarian", init=start)


def played(
    kind: Guarded, key: PRNGKey, *, rounds: int, runs: int
) -> tuple[Float[Array, "E R"], Bool[Array, "E R"]]:
    """Simulate many runs in each environment.

    The environment decides the rewards of both tools before the guard draws.

    Returns:
      the largest loss of each run [E, R], and whether the learner was stopped [E, R].
    """
    guard = jr.guarded(contrarian(), kind.budget, delta=kind.delta, epsilon=kind.epsilon)
    query = jnp.array([1.0, 0.0])  # tool 0 is static retrieval's, tool 1 the learner's

    def run(environment, key):
        def one(carry, t):
            state, loss, most = carry
            lots, draws = jax.random.split(jax.random.fold_in(key, t))
            past = Past(jax.random.uniform(lots, (2,)), t / rounds, loss, state.extra.bound)
            bits = jax.lax.switch(environment, [*ENVIRONMENTS.values()], past).astype(jnp.float32)
            slate = guard.act(state, query, draws)
            choice = Choice(slate.items[0], slate.propensity[0])
            state = guard.update(state, query, choice, Feedback(bits[choice.item]))
            loss = loss + bits[0] - bits[choice.item]
            return (state, loss, jnp.maximum(most, loss)), None

        start = (guard.init(jnp.eye(2)), jnp.zeros(()), jnp.zeros(()))
        (state, _, most), _ = jax.lax.scan(one, start, jnp.arange(rounds))
        return most, state.extra.stopped

    keys = jax.random.split(key, (len(ENVIRONMENTS), runs))
    return jax.vmap(jax.vmap(run, (None, 0)))(jnp.arange(len(ENVIRONMENTS)), keys)


if __name__ == "__main__":
    main.cli()
