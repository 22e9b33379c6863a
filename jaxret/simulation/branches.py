"""Simulations of several learners by one program: which of them runs is a number.

    simulations = make_simulations(grids, task, seeds=seeds, rounds=900)      one for each grid

To compile a program takes a second or two, a short stream far less. Rank-one learners whose rows
alone move differ in four functions: where they start, what the policy shows, what the estimator
makes of the bit, and how the schedule shortens a step. A number that all runs of a simulation share
says which: of starts and policies `jax.lax.switch` runs one branch, under vmap too; of estimators
and schedules, which are cheap, all are computed and one is taken. That makes a round slower by a
tenth, so streams of more than a chunk, which pay for it, have a program for each learner; and so
has a learner of another form.

Letters: n numbers of a setting.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import jax.numpy as jnp
from jax import lax

from jaxret.environments.environment import Environment
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner, Rule
from jaxret.learners.rank_one import from_rule, scores_by_rows
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.simulation.engine import CHUNK, Simulation
from jaxret.task import Task


def make_simulations(
    grids: Sequence[LearnerGrid],
    task: Task,
    environment: Environment | Callable[..., Environment] | None = None,
    *,
    seeds: Sequence[int],
    rounds: int,
    chunk: int = CHUNK,
) -> list[Simulation]:
    """Makes the simulation of each grid; for short streams those of one form are one program.

    Args:
      grids: learners up to their numbers.
      task: as in `Simulation`, as is the rest.
      environment: the same.
      seeds: the same.
      rounds: of the longest stream.
      chunk: the same.

    Returns:
      the simulations, in the order of the grids.

    Raises:
      ValueError: as `Simulation`.
    """
    forms: dict[Hashable, list[LearnerGrid]] = {}
    for grid in grids:
        forms.setdefault(_form(grid) if rounds <= chunk else grid, []).append(grid)
    found: dict[LearnerGrid, Simulation] = {}
    for members in forms.values():
        makes = [grid.make for grid in members]
        make, first = (partial(_one_of, makes), (0,)) if len(makes) > 1 else (makes[0], ())
        whole = Simulation(
            *(make, task, environment),
            seeds=seeds,
            example=members[0].settings[0],
            chunk=chunk,
            first=first,
        )
        for which, grid in enumerate(members):
            found[grid] = whole.beginning_with(which) if first else whole
    return [found[grid] for grid in grids]


def _form(grid: LearnerGrid) -> Hashable:
    """Equal for learners that may share a program."""
    learner = grid.learner(0)
    if (rule := learner.rule) is None or not _rows_alone(learner, rule):
        return grid
    known = rule.policy.probabilities is not None
    return len(grid.names), known, rule.projection.name, rule.projection.radius


def _rows_alone(learner: Learner, rule: Rule) -> bool:
    """Whether it learns from bits, shows one tool, and its rows move by the rule alone."""
    plain = rule.rows_alone and rule.rounding is None and learner.scores is scores_by_rows
    return plain and rule.estimator.bandit and rule.policy.k == 1


def _one_of(makes: Sequence[Callable[..., Learner]], which, *numbers) -> Learner:
    """The learner at position ``which``; it may be traced, as the numbers of its setting may."""
    which = jnp.asarray(which, jnp.int32)
    learners = [make(*numbers) for make in makes]
    rules = [learner.rule for learner in learners if learner.rule is not None]

    def branch(functions):
        return lambda *args: lax.switch(which, [partial(function, *args) for function in functions])

    def number(values):
        return jnp.stack([jnp.asarray(value) for value in values])[which]

    def coefficients(obs):  # of all: elementwise, they cost less than a branch
        return lax.select_n(which, *[rule.estimator.coefficients(obs) for rule in rules])

    every = [rule.policy.probabilities for rule in rules]
    show = branch([rule.policy.show for rule in rules])
    rule = Rule(
        policy=Policy("one of several", show, 1, None if None in every else branch(every)),
        estimator=Estimator("one of several", coefficients, unbiased=False),
        projection=rules[0].projection,
        schedule=lambda t: number([rule.schedule(t) for rule in rules]),
        tau=number([rule.tau for rule in rules]),
        eta=number([rule.eta for rule in rules]),
    )
    init = branch([learner.init for learner in learners])
    return from_rule("one of several", rule)._replace(init=init)
