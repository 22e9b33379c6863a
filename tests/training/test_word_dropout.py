"""Word dropout: the tokens that may be removed, how many are, and the network's input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.encoders.padding import pad
from jaxret.methods.encoder_tuning import matching
from jaxret.methods.tool_rank import verdicts
from jaxret.nn.layers import last_pool
from jaxret.training.word_dropout import drop, droppable, frame
from tests.tiny import DECODER, weights

#: Two template tokens, the words, and a closing token.
QUERIES = [[1, 2, *range(10, 10 + n), 3] for n in (1, 4, 6)] + [[1, 2, 11, 10, 3]]
DOCUMENTS = [[7, 20], [8, 21, 22]]
PAIRS = np.array([[0, 0, 1], [1, 1, 0], [2, 0, 1], [3, 1, 0]])
LABELS = PAIRS[:, 1:2]


@pytest.mark.parametrize(
    ("texts", "want"),
    [
        (QUERIES, (2, 1)),
        ([[1, 5], [6, 2]], (0, 0)),
        ([[1, 5, 5], [1, 5]], (2, 0)),  # no token counts twice
        ([[1, 2, 3]], (3, 0)),  # a single text is all frame
        ([[4], [4, 4]], (1, 0)),
    ],
)
def test_the_frame_is_the_common_prefix_and_suffix_of_all_texts(texts, want):
    assert frame(texts) == want


def test_words_are_between_the_ends_of_the_frame():
    words = droppable([4, 7, 9], (2, 1), 10)
    assert [np.flatnonzero(row).tolist() for row in words] == [[2], [2, 3, 4, 5], [*range(2, 8)]]


@pytest.mark.parametrize("most", [0.0, 0.4, 1.0])
def test_at_most_the_given_share_of_words_is_dropped(most):
    rows = np.tile(np.arange(220) < 210, (500, 1))
    words = np.tile(droppable([210], (5, 5), 220), (500, 1))
    left = np.asarray(jax.jit(drop)(jax.random.key(0), rows, words, most))
    assert not (left & ~rows).any()
    assert left[:, :5].all()
    assert left[:, 205:210].all()
    gone = 1 - left[:, 5:205].mean(axis=1)
    assert gone.max() <= most + 0.15
    np.testing.assert_allclose(gone.mean(), most / 2, atol=0.03)
    np.testing.assert_allclose(gone.std(), most / 12**0.5, atol=0.03)  # of a uniform distribution
    if most:
        assert gone.min() < 0.05


def test_qwen3_reads_a_masked_query_as_the_shorter_one():
    network = DECODER.network()
    params = weights(network.shapes())
    ids, mask = pad([[5, 9, 7, 11, 4]])
    thinned = mask.copy()
    thinned[0, [1, 3]] = False
    pooled = jax.jit(lambda ids, mask: last_pool(network.apply(params, ids, mask), mask))
    np.testing.assert_allclose(pooled(ids, thinned), pooled(*pad([[5, 7, 4]])), atol=1e-5)


def heard(make, *data, size):
    """Return a batch of an objective, and what its network is given for it with 20 keys."""
    seen = []

    def network(params, ids, mask, key=None):
        seen.append((ids, mask))
        return jnp.ones((len(ids), 2)) * params

    objective = make(network, *data, drop_words=1.0, size=size)
    batch = objective.batches(0)

    @jax.jit
    @jax.vmap
    def given(seed):
        objective.loss(1.0, batch, jax.random.key(seed))
        return seen.pop()

    return batch, list(zip(*jax.device_get(given(np.arange(20))), strict=True))


def test_only_queries_lose_words_where_documents_are_matched():
    batch, seen = heard(matching, QUERIES, DOCUMENTS, LABELS, PAIRS, size=4)
    flat = [np.asarray(batch[x]).reshape(-1, batch[x].shape[-1]) for x in ("ids", "mask")]
    texts = [tuple(ids[mask].tolist()) for ids, mask in zip(*flat, strict=True)]
    lost = set()
    for ids, mask in seen:
        for text, row, there in zip(texts, ids, mask, strict=True):
            left = tuple(row[there].tolist())
            if text[0] == 1:
                assert left[:2] == (1, 2)
                assert left[-1] == 3
                assert set(left) <= set(text)
                lost.add(len(text) - len(left))
            else:
                assert left == text
    assert lost >= {0, 1, 2, 3}


def test_only_the_query_loses_words_where_a_pair_is_judged():
    batch, seen = heard(verdicts, QUERIES, DOCUMENTS, PAIRS, size=8)
    lost = set()
    for ids, mask in seen:
        for row, whole, there in zip(ids, batch["mask"], mask, strict=True):
            text, left = row[whole].tolist(), row[there].tolist()
            end = text.index(3)
            assert left[:2] == [1, 2]
            assert left[left.index(3) :] == text[end:]  # the end of the query, and the document
            lost.add(len(text) - len(left))
    assert lost >= {0, 1, 2, 3}


def test_without_word_dropout_no_key_is_needed():
    def embed(params, ids, mask, key=None):
        return params * jnp.stack([mask.sum(axis=1), ids.sum(axis=1)], axis=1)

    objective = matching(embed, QUERIES, DOCUMENTS, LABELS, PAIRS, size=4)
    loss = jax.jit(lambda batch: objective.loss(1.0, batch, None)[0])  # no key, no dropout
    assert loss(objective.batches(0)) > 0


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ValueError, match=r"drop_words must be in 0 .. 1"):
        matching(None, QUERIES, DOCUMENTS, LABELS, PAIRS, drop_words=share, size=4)
    with pytest.raises(ValueError, match=r"drop_words must be in 0 .. 1"):
        verdicts(None, QUERIES, DOCUMENTS, PAIRS, drop_words=share, size=4)
