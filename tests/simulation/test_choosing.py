"""A setting is chosen by the validation part alone."""

import numpy as np

from jaxret.learners.grid import LearnerGrid
from jaxret.simulation.choosing import tune
from jaxret.simulation.ranker import METRICS
from jaxret.types import Trace


class Known:
    """A simulation of one round in which setting g of three is known by its rate."""

    chunk, scores = 4, None

    def setting(self, tau, eta):
        return np.array([[tau, eta]])

    def cut(self, orders):
        return [orders]

    def start(self, setting):
        return setting

    def step(self, states, setting, order):
        kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
        trace = Trace._make(np.zeros(order.shape, kind) for kind in kinds.values())
        online = ONLINE[int(setting[0, 1])]
        return setting, trace._replace(success=np.where(order == 0, online, 1 - online))


ONLINE = (0.0, 0.0, 0.6)  # success of the one validation query, by setting


def chosen(validation, streamed):
    """The setting that `tune` picks, where held-out queries favour the first one."""

    def ranker(states, part, scores):
        served = validation if part[0] else (1.0, 0.0, 0.0)
        return np.full((1, len(METRICS)), served[int(states[0, 1])])

    def unit(*, chunks, start, step, finish, **given):
        state = start()
        for number in range(chunks):
            state = step(state, number)
        return finish(state)

    grid = LearnerGrid("three", lambda tau, eta: None, np.array([[1.0, g] for g in range(3)]))
    first = np.array([True, False, False, False])
    order = np.array([[q for q in range(3) if streamed or q]])
    ranked = {"heldout": ~first}
    found = tune(unit, grid, Known(), ranker, order, validation=first, ranked=ranked)
    return found["best"]


def test_a_setting_is_chosen_by_the_validation_part_alone():
    assert chosen(validation=(0.1, 0.5, 0.2), streamed=False) == 1


def test_success_in_the_stream_counts_where_the_validation_part_is_streamed():
    assert chosen(validation=(0.1, 0.5, 0.2), streamed=True) == 2  # 0.2 + 0.6
