"""The scenarios by name: how each changes the environment, and from which round on.

Their settings are in ``configs/scenarios.yaml``. Times are shares of the stream in [0, 1], which a
`Place` turns into rounds.

Letters: I tools, d width.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

import jaxret as jr
from jaxret import encoders
from jaxret.data.templates import template
from jaxret.environments import availability, drift, feedback, interventions
from jaxret.environments.environment import Environment
from jaxret.environments.interventions import How
from jaxret.runtime.validate import from_registry, require
from jaxret.task import Task


@dataclass(frozen=True, kw_only=True)
class Place:
    """The task and the stream of a scenario."""

    task: Task  # its queries are streamed
    rounds: int  # rounds of the stream
    seed: int  # seed of what a scenario draws
    cache: Path  # folder of encoded texts

    def at(self, share: float) -> int:
        """Return the round at a share of the stream."""
        return round(share * self.rounds)

    def documents(self, name: str) -> Float[np.ndarray, "I d"]:
        """Encode the tools by another template."""
        assert self.task.dataset is not None
        assert self.task.encoder is not None
        texts = [template(name)(one) for one in self.task.dataset.documents]
        return encoders.encode(self.task.encoder, texts, kind="document", cache=self.cache)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario."""

    environment: Callable[[Place], Environment]
    begins: float = 0.0  # when the trouble begins, as a share of the stream
    shown: int = 1  # tools in a round
    calm: Environment = field(default_factory=Environment)  # the environment without the trouble


def swapped(*, share: float, at: float) -> Scenario:
    """Exchange the queries of a share of the tools (drift)."""
    require("share", share, "in (0, 1]", lambda x: 0 < x <= 1)
    require("at", at, "in [0, 1]", lambda x: 0 <= x <= 1)

    def environment(place):
        labels = place.task.labels
        moved = drift.swapped(labels, share=share, at=place.at(at), seed=place.seed)
        return Environment(drift=moved)

    return Scenario(environment=environment, begins=at)


def turning(*, angle: float) -> Scenario:
    """Rotate all queries, by ``angle`` radians over the stream (drift)."""

    def environment(place):
        queries, rounds = place.task.queries, place.rounds
        turned = drift.turning(queries, angle=angle, rounds=rounds, seed=place.seed)
        return Environment(rotation=turned)

    return Scenario(environment=environment)


def late(*, mean: float) -> Scenario:
    """Delay feedback by ``mean`` rounds on average, so that it comes out of order."""
    part = interventions.geometric_delay(mean=mean)
    return Scenario(environment=lambda place: Environment(delay=part))


def silent(*, after_success: float, after_failure: float) -> Scenario:
    """Observe no feedback in these shares of the rounds."""
    shares = {"after_success": after_success, "after_failure": after_failure}
    part = feedback.censored_by_success(**shares)
    return Scenario(environment=lambda place: Environment(censoring=part))


def noisy(*, most: float) -> Scenario:
    """Flip rewards, at a rate of each tool's own between 0 and ``most``."""
    require("most", most, "in [0, 0.5]", lambda x: 0 <= x <= 0.5)

    def environment(place):
        rng, items = np.random.default_rng(place.seed), len(place.task.ids)
        return jr.label_noise(rng.uniform(0, most, items))

    return Scenario(environment=environment)


def praised(*, false_reward: float) -> Scenario:
    """Attack: give one reward to the tool that static retrieval shows wrongly most often."""
    require("false_reward", false_reward, "in [0, 1]", lambda x: 0 <= x <= 1)

    def environment(place):
        task = place.task
        first = (task.queries @ task.theta.T).argmax(axis=1)
        wrong = ~(first[:, None] == task.labels).any(axis=1)
        tool = int(np.bincount(first[wrong], minlength=len(task.ids)).argmax())
        sizes = {"items": len(task.ids), "queries": len(task)}
        return Environment(poison=feedback.poisoned(**sizes, tool=tool, false_reward=false_reward))

    return Scenario(environment=environment)


def lying(*, share: float) -> Scenario:
    """Flip every reward of a share of the users."""
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)

    def environment(place):
        sizes = {"items": len(place.task.ids), "queries": len(place.task)}
        return Environment(poison=feedback.poisoned(**sizes, share=share, seed=place.seed))

    return Scenario(environment=environment)


def arriving(*, share: float, first: float, last: float) -> Scenario:
    """Add a share of the tools one by one (cold start)."""
    require("share", share, "in [0, 1)", lambda x: 0 <= x < 1)
    require("first", first, f"in 0 .. last={last} <= 1", lambda x: 0 <= x <= last <= 1)

    def environment(place):
        between = {"first": place.at(first), "last": place.at(last)}
        items = len(place.task.ids)
        return Environment(
            **availability.one_by_one(items, share, **between, seed=place.seed)._asdict()
        )

    return Scenario(environment=environment)


def doubling(*, at: float) -> Scenario:
    """Add half of the catalogue at once (cold start)."""
    require("at", at, "in [0, 1]", lambda x: 0 <= x <= 1)

    def environment(place):
        items = len(place.task.ids)
        come = availability.later(items, 0.5, at=place.at(at), seed=place.seed)
        return Environment(**come._asdict())

    return Scenario(environment=environment, begins=at)


def rewritten(*, document: str, how: How, at: float) -> Scenario:
    """Rewrite all documents with another template."""
    template(document)  # raises for an unknown name
    require("how", how, "keep, reset or carry", lambda x: x in ("keep", "reset", "carry"))
    require("at", at, "in (0, 1]", lambda x: 0 < x <= 1)

    def environment(place):
        before, after = place.task.theta, place.documents(document)
        change = interventions.rewritten_documents(before, after, at=max(1, place.at(at)), how=how)
        return Environment(rewriting=change)

    return Scenario(environment=environment, begins=at)


def clicked(*, shown: int, bias: float, lure: float) -> Scenario:
    """Show several tools, of which one is clicked; calm: without position bias."""
    require("shown", shown, ">= 1", lambda n: n >= 1)
    user, fair = (feedback.position_biased_clicks(bias=x, lure=lure) for x in (bias, 0.0))
    calm = Environment(reranker=fair)
    return Scenario(environment=lambda place: Environment(reranker=user), shown=shown, calm=calm)


def restarted(*, at: float, ago: float) -> Scenario:
    """Restart the learner from an older snapshot."""
    require("at", at, "in (0, 1]", lambda x: 0 < x <= 1)
    require("ago", ago, f"in (0, at={at}]", lambda x: 0 < x <= at)

    def environment(place):
        now = max(1, place.at(at))
        saved = min(now - 1, place.at(at - ago))
        return Environment(restart=interventions.restart_from_snapshot(saved=saved, at=now))

    return Scenario(environment=environment, begins=at)


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
    """Read the settings of a scenario."""
    return from_registry(f"scenario {name!r}", "kind", REGISTRY, spec)


def of_static(environment: Environment) -> Environment:
    """Return the environment of static retrieval, which ranks by the current documents."""
    if environment.rewriting is None:
        return environment
    return environment._replace(rewriting=environment.rewriting._replace(how="reset"))
