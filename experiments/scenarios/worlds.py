"""The scenarios by name: what each does to the world, and from when on.

Their settings stand in ``configs/scenarios.yaml``; times are shares of the stream in [0, 1].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import jaxret as jr
from experiments.scenarios.scenario import Scenario
from jaxret.data.templates import template
from jaxret.environments import availability, drift, feedback, interventions
from jaxret.environments.environment import Environment
from jaxret.environments.interventions import How
from jaxret.runtime.validate import from_registry, require


def swapped(*, share: float, at: float) -> Scenario:
    """Drift: a share of the tools take each other's queries."""
    require("share", share, "in (0, 1]", lambda x: 0 < x <= 1)
    require("at", at, "in [0, 1]", lambda x: 0 <= x <= 1)

    def world(place):
        labels = place.task.labels
        moved = drift.swapped(labels, share=share, at=place.at(at), seed=place.seed)
        return Environment(drift=moved)

    return Scenario(world=world, begins=at)


def turning(*, angle: float) -> Scenario:
    """Drift: all queries turn, by ``angle`` radians over the stream."""

    def world(place):
        queries, rounds = place.task.queries, place.rounds
        turned = drift.turning(queries, angle=angle, rounds=rounds, seed=place.seed)
        return Environment(rotation=turned)

    return Scenario(world=world)


def late(*, mean: float) -> Scenario:
    """Answers come late, by ``mean`` rounds, out of order."""
    part = interventions.geometric_delay(mean=mean)
    return Scenario(world=lambda place: Environment(delay=part))


def silent(*, after_success: float, after_failure: float) -> Scenario:
    """Nobody answers in these shares of the rounds."""
    shares = {"after_success": after_success, "after_failure": after_failure}
    part = feedback.censored_by_success(**shares)
    return Scenario(world=lambda place: Environment(censoring=part))


def noisy(*, most: float) -> Scenario:
    """Bits of each tool are turned round at a rate of its own, from 0 to ``most``."""
    require("most", most, "in [0, 0.5]", lambda x: 0 <= x <= 0.5)

    def world(place):
        rng, items = np.random.default_rng(place.seed), len(place.task.ids)
        return jr.label_noise(rng.uniform(0, most, items))

    return Scenario(world=world)


def praised(*, says: float) -> Scenario:
    """An attacker always says the same of the tool that the documents show wrongly most often."""
    require("says", says, "in [0, 1]", lambda x: 0 <= x <= 1)

    def world(place):
        task = place.task
        first = (task.queries @ task.theta.T).argmax(axis=1)
        wrong = ~(first[:, None] == task.labels).any(axis=1)
        tool = int(np.bincount(first[wrong], minlength=len(task.ids)).argmax())
        sizes = {"items": len(task.ids), "queries": len(task)}
        return Environment(poison=feedback.poisoned(**sizes, tool=tool, says=says))

    return Scenario(world=world)


def lying(*, share: float) -> Scenario:
    """A share of the users turn every bit round."""
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)

    def world(place):
        sizes = {"items": len(place.task.ids), "queries": len(place.task)}
        return Environment(poison=feedback.poisoned(**sizes, share=share, seed=place.seed))

    return Scenario(world=world)


def arriving(*, share: float, first: float, last: float) -> Scenario:
    """Cold start: a share of the tools come one by one."""
    require("share", share, "in [0, 1)", lambda x: 0 <= x < 1)
    require("first", first, f"in 0 .. last={last} <= 1", lambda x: 0 <= x <= last <= 1)

    def world(place):
        between = {"first": place.at(first), "last": place.at(last)}
        items = len(place.task.ids)
        return Environment(
            **availability.one_by_one(items, share, **between, seed=place.seed)._asdict()
        )

    return Scenario(world=world)


def doubling(*, at: float) -> Scenario:
    """Cold start: half of the catalogue comes at once."""
    require("at", at, "in [0, 1]", lambda x: 0 <= x <= 1)

    def world(place):
        items = len(place.task.ids)
        come = availability.later(items, 0.5, at=place.at(at), seed=place.seed)
        return Environment(**come._asdict())

    return Scenario(world=world, begins=at)


def rewritten(*, document: str, how: How, at: float) -> Scenario:
    """All documents are rewritten by another template."""
    template(document)  # refuses a name that is not known
    require("how", how, "keep, reset or carry", lambda x: x in ("keep", "reset", "carry"))
    require("at", at, "in (0, 1]", lambda x: 0 < x <= 1)

    def world(place):
        before, after = place.task.theta, place.documents(document)
        change = interventions.rewritten_documents(before, after, at=max(1, place.at(at)), how=how)
        return Environment(rewriting=change)

    return Scenario(world=world, begins=at)


def clicked(*, shown: int, bias: float, lure: float) -> Scenario:
    """Several are shown and one is clicked; in the calm world all places are looked at equally."""
    require("shown", shown, ">= 1", lambda n: n >= 1)
    user, fair = (feedback.position_biased_clicks(bias=x, lure=lure) for x in (bias, 0.0))
    calm = Environment(reranker=fair)
    return Scenario(world=lambda place: Environment(reranker=user), shown=shown, calm=calm)


def restarted(*, at: float, ago: float) -> Scenario:
    """The learner goes on from the snapshot of a while ago."""
    require("at", at, "in (0, 1]", lambda x: 0 < x <= 1)
    require("ago", ago, f"in (0, at={at}]", lambda x: 0 < x <= at)

    def world(place):
        now = max(1, place.at(at))
        saved = min(now - 1, place.at(at - ago))
        return Environment(restart=interventions.restart_from_snapshot(saved=saved, at=now))

    return Scenario(world=world, begins=at)


REGISTRY = {
    f.__name__: f
    for f in (
        swapped,
        turning,
        late,
        silent,
        noisy,
        praised,
        lying,
        arriving,
        doubling,
        rewritten,
        clicked,
        restarted,
    )
}


def scenario(name: str, spec: Mapping[str, Any]) -> Scenario:
    """Reads the settings of a scenario.

    Args:
      name: its own.
      spec: ``name``, which of `REGISTRY` it is, and its settings.

    Raises:
      ValueError: for anything that is unknown or out of range.
    """
    return from_registry(f"scenario {name!r}", "kind", REGISTRY, spec)


def of_static(environment: Environment) -> Environment:
    """The world of static retrieval, which always serves the documents of the moment."""
    if environment.rewriting is None:
        return environment
    return environment._replace(rewriting=environment.rewriting._replace(how="reset"))
