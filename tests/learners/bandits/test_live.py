"""The field's learners behind an index: tools come, answers come late, and it is saved."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners import bandits
from jaxret.learners.names import REGISTRY

DOCUMENTS, NEW = np.eye(4, 6, dtype=np.float32), np.eye(6, dtype=np.float32)[4]


@pytest.mark.parametrize("name", bandits.__all__)
def test_an_index_learns_grows_and_goes_on_from_its_folder(name, tmp_path):
    task = jr.Task.from_arrays(DOCUMENTS, DOCUMENTS, np.arange(4))
    index = jr.Index(REGISTRY[name](), task)
    late = index.search(DOCUMENTS[0])
    for document in DOCUMENTS:
        ticket = index.search(document, k=2)
        index.feedback(ticket, worked=True)
    index.add(["new"], NEW[None])
    np.testing.assert_allclose(index.state.theta[index.names.index("new")], NEW)
    assert index.learner.scores(index.state, jnp.asarray(NEW[None]))[0].argmax() == 4
    index.remove([late.ids[0]])
    index.feedback(late, worked=True)  # of a tool that has gone: nothing to learn
    index.save(tmp_path)
    again = jr.Index.load(tmp_path)
    for query in (NEW, DOCUMENTS[2]):
        here, there = index.search(query), again.search(query)
        assert here.ids == there.ids != late.ids
        index.feedback(here, worked=False)
        again.feedback(there, worked=False)
    np.testing.assert_array_equal(index.state.theta, again.state.theta)
    assert np.isfinite(index.state.theta).all()
