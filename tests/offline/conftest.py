"""Logs made by hand, and all possible logs of a small problem with their probabilities."""

import itertools

import numpy as np

import jaxret as jr
from jaxret.logs import Log


def make_log(item, reward, propensity, *, slate=None, by_position=None, query=None, **more) -> Log:
    """Make a log from arrays, with one tool per round unless slates are given."""
    item, reward = np.asarray(item), np.asarray(reward, np.float64)
    propensity = np.asarray(propensity, np.float64)
    rounds = len(item)
    by_position = propensity[:, None] if by_position is None else by_position
    return Log(
        query=np.zeros((rounds, 1), np.float32) if query is None else np.float32(query),
        slate=item[:, None] if slate is None else np.asarray(slate),
        by_position=np.asarray(by_position, np.float64),
        item=item,
        propensity=propensity,
        reward=reward,
        version=np.zeros(rounds, int),
        round=np.arange(rounds),
        **more,
    )


def slates_of_two(task, tau, rounds):
    """Draw slates by softmax without replacement; the right tool is used if it is shown."""
    rng, row = np.random.default_rng(0), np.arange(rounds) % len(task)
    scores = np.float64(task.queries[row]) @ np.float64(task.theta).T / tau
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    slate = np.argsort(-(scores + rng.gumbel(size=scores.shape)), axis=1)[:, :2]
    first, second = np.take_along_axis(p, slate, 1).T
    chances = np.stack([first, second / (1 - first)], axis=1)
    right = slate == task.labels[row, :1]
    used = right.argmax(axis=1)[:, None]
    item, chance = (np.take_along_axis(x, used, 1)[:, 0] for x in (slate, chances))
    given = {"slate": slate, "by_position": chances, "query": task.queries[row]}
    return make_log(item, right.any(axis=1), chance, theta=task.theta, **given)


def logged(learner, task, folder, **options) -> Log:
    """Simulate a learner and read its log."""
    jr.simulate(learner, task, log=folder, **options)
    return jr.load_log(folder / "seed_0.jsonl", task)


def all_logs(logging, rewards):
    """Yield items [T], bits [T] and probability of every log of T rounds.

    ``logging`` [T, I] are the probabilities of the policy that serves, ``rewards`` [T, I] those
    that a tool works.
    """
    rounds, tools = logging.shape
    outcomes = [*itertools.product(range(tools), (0, 1))]
    t = np.arange(rounds)
    for line in itertools.product(outcomes, repeat=rounds):
        items, bits = np.array(line).T
        worked = rewards[t, items]
        chance = logging[t, items] * np.where(bits, worked, 1 - worked)
        yield items, bits.astype(np.float64), float(chance.prod())
