"""The cross-encoder: pairs against the tokenizer's own, and scores against single pairs."""

import json

import jax
import numpy as np
import pytest

from jaxret.encoders.padding import pad
from jaxret.methods import cross_encoder as ce
from jaxret.nn.classifier import classifier
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine
from jaxret.retrieval.tokens import pair
from tests.tiny import QUICK, encoder, weights

TEXTS = ["a b c", "d", "e f g h i j k l m n"]
DOCUMENTS = ["b c", "d e f g h", "a", "o p q r s t a b c d e f g"]
FOUND = np.array([[3, 0, 2], [1, -1, -1], [2, 3, 1]], np.int32)
FIRST = Ranking(items=FOUND, scores=np.where(FOUND < 0, -np.inf, 0.0).astype(np.float32))


def test_a_pair_is_what_the_tokenizer_makes_of_it(tiny):
    network = classifier(tiny.backbone, 1)
    reranker = ce.reranker(network, None, tiny, DOCUMENTS)
    features, (_, (ids, mask)) = reranker.read(TEXTS), reranker.params
    paired = jax.jit(pair)
    for row, text in enumerate(TEXTS):
        for item, document in enumerate(DOCUMENTS):
            query = (features["ids"][row], features["mask"][row])
            got = jax.device_get(paired(*query, ids[item], mask[item]))
            expected = tiny.tokenizer.encode(text, document)
            length = len(expected.ids)
            np.testing.assert_array_equal(got[0][:length], expected.ids)
            np.testing.assert_array_equal(got[1], np.arange(len(got[1])) < length)
            np.testing.assert_array_equal(got[2][:length], expected.type_ids)


@pytest.mark.parametrize("name", QUICK)
def test_candidates_are_sorted_by_the_logits_of_their_pairs_alone(tmp_path, name):
    tiny = encoder(tmp_path, name)
    network = classifier(tiny.backbone, 1)
    params = weights(network.shapes(), seed=1)
    reranker = ce.reranker(network, params, tiny, DOCUMENTS)
    found = refine(reranker, TEXTS, FIRST, chunk=2, progress=False)
    pairs = [(row, item) for row in range(3) for item in FOUND[row] if item >= 0]
    whole = [tiny.tokenizer.encode(TEXTS[row], DOCUMENTS[item]) for row, item in pairs]
    (ids, mask), (types, _) = pad([one.ids for one in whole]), pad([one.type_ids for one in whole])
    every = np.asarray(jax.jit(network.apply)(params, ids, mask, types=types))[:, 0]
    for row in range(3):
        items = FOUND[row][FOUND[row] >= 0]
        logits = every[[one == row for one, _ in pairs]]
        order = np.argsort(-logits)
        np.testing.assert_array_equal(found.items[row, : len(items)], items[order])
        scores = found.scores[row, : len(items)]
        np.testing.assert_allclose(scores, logits[order], atol=1e-5)


def test_query_and_document_are_cut_each_to_its_limit(tiny):
    reranker = ce.reranker(None, None, tiny, DOCUMENTS, query_limit=4, document_limit=3)
    assert reranker.read(["a b c d"])["ids"][0, :5].tolist() == [2, 4, 5, 3, 0]
    ids, mask = reranker.params[1]
    assert ids[3, :4].tolist() == [18, 19, 3, 0]  # tokens o p [SEP]
    assert mask.sum(axis=1).tolist() == [3, 3, 2, 3]


def test_a_directory_of_another_kind_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(ValueError, match=r"model_type must be one of .*, got 'gpt2'"):
        ce.read_published(tmp_path)
