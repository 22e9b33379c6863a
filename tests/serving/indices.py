"""Learners that serve, and an index that has been used for some rounds."""

import jax
import numpy as np

import jaxret as jr

SETTINGS = {"tau": 0.3, "eta": 0.02}
LEARNERS = {
    "greedy": jr.greedy(**SETTINGS),
    "mapped": jr.mapped(**SETTINGS),
    "low_rank": jr.low_rank(**SETTINGS, rank=4),
    "row_steps": jr.row_steps(**SETTINGS),
    "replayed": jr.centred_replayed(**SETTINGS),
    "adamw": jr.paper_adamw(tau=0.3, eta=0.01, batch=4),
}


def leaves(index):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(index.state)]


def same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def lived(index, task, rounds=6):
    """Use an index for some rounds, after which every part of its state has changed."""
    for n in range(rounds):
        ticket = index.search(task.queries[n], k=3)
        index.feedback(ticket, worked=n % 2, item=ticket.ids[n % 3])
    return index
