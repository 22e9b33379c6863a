"""Training objectives: the content of a batch, the loss, and its decrease in training."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxret.methods.cross_encoder import judgement
from jaxret.methods.encoder_tuning import contrast, in_parts, matching
from jaxret.methods.mlc import classification
from jaxret.methods.refiner import refinement
from jaxret.methods.tool_rank import verdicts
from jaxret.nn.classifier import classifier
from jaxret.nn.functional import Module
from jaxret.nn.refiner import refiner
from jaxret.training.loop import start, train_step
from jaxret.training.negatives import random_negatives
from tests.tiny import BACKBONES

RNG = np.random.default_rng(0)
ITEMS, TEXTS = 6, 48
LABELS = np.stack([np.arange(TEXTS) % ITEMS, np.full(TEXTS, -1)], axis=1)
LABELS[::3, 1] = (LABELS[::3, 0] + 1) % ITEMS
#: One word for each label, and a few uninformative words.
TOKENS = [
    [2, *(10 + label for label in row if label >= 0), *RNG.integers(4, 10, 3), 3] for row in LABELS
]
TOOLS = RNG.standard_normal((ITEMS, 5)).astype(np.float32)
ONE_BLOCK = {
    name: backbone._replace(config=replace(backbone.config, layers=1))
    for name, backbone in BACKBONES.items()
}


def losses_of(objective, params, steps=40, rate=1e-2):
    """Return the losses of a short training run."""
    optimizer = optax.adam(rate)
    state = start(params, optimizer, jax.random.key(1))
    step, found = jax.jit(train_step(objective.loss, optimizer)), []
    for _ in range(steps):
        state, info = step(state, objective.batches(int(state.position)))
        found.append(float(info["loss"]))
    return found


def texts_of(batch):
    """Return the tokens of each text without padding, as tuples."""
    return [tuple(ids[mask]) for ids, mask in zip(batch["ids"], batch["mask"], strict=True)]


def test_a_classifier_learns_which_words_mean_which_tools():
    network = classifier(ONE_BLOCK["bert"], ITEMS, pool="mean")
    objective = classification(network, TOKENS, LABELS, size=TEXTS)
    found = losses_of(objective, jax.jit(network.init)(jax.random.key(0)))
    assert found[-1] < 0.5 * found[0]


def test_a_batch_of_classification_has_texts_and_their_labels():
    objective = classification(Module(None, None), TOKENS, LABELS, size=8, seed=3)
    batch = objective.batches(0)
    rows = {tuple(text): row for text, row in zip(TOKENS, LABELS.tolist(), strict=True)}
    assert [rows[text] for text in texts_of(batch)] == batch["labels"].tolist()
    assert batch["ids"].shape == (8, 16)


def bag_of_words(params, ids, mask, key=None):
    return (params["words"][ids] * mask[..., None]).sum(axis=1) / mask.sum(axis=1)[:, None]


def words():
    return {"words": 0.1 * np.random.default_rng(0).standard_normal((24, 5), np.float32)}


def triplets():
    """Return triplets: a query, a query with its first tool, and a query without that tool."""
    found = []
    for anchor, (tool, _) in enumerate(LABELS):
        without = ~np.isin(LABELS, tool).any(axis=1)
        found.append((anchor, (anchor + ITEMS) % TEXTS, int(without.argmax())))
    return np.array(found)


@pytest.mark.parametrize("unit", [True, False])
def test_an_encoder_learns_to_tell_positives_from_negatives(unit):
    objective = contrast(bag_of_words, TOKENS, TOKENS, triplets(), unit=unit, size=TEXTS)
    found = losses_of(objective, words())
    assert found[-1] < 0.7 * found[0]


def test_a_batch_of_triplets_has_the_three_texts_of_each_and_their_margin():
    others = [[2, *RNG.integers(4, 24, n), 3] for n in (30, 2, 7)]
    chosen = np.array([[0, 0, 1], [1, 2, 0], [2, 1, 2], [3, 2, 1]])
    objective = contrast(bag_of_words, TOKENS, others, chosen, margin=0.8, unit=False, size=4)
    batch = objective.batches(0)
    assert batch["ids"].shape == batch["mask"].shape == (4, 3, 32)
    by_anchor = {tuple(TOKENS[row[0]]): row for row in chosen}
    words = RNG.standard_normal((24, 5)).astype(np.float32)
    short = []
    for ids, mask in zip(batch["ids"], batch["mask"], strict=True):
        anchor, positive, negative = (tuple(i[m]) for i, m in zip(ids, mask, strict=True))
        row = by_anchor.pop(anchor)
        assert (list(positive), list(negative)) == (others[row[1]], others[row[2]])
        a, p, n = (words[list(text)].mean(axis=0) for text in (anchor, positive, negative))
        short.append(max(0, np.linalg.norm(a - p) - np.linalg.norm(a - n) + 0.8))
    assert not by_anchor
    value, _ = jax.jit(objective.loss)({"words": jnp.asarray(words)}, batch, None)
    np.testing.assert_allclose(value, np.mean(short), atol=1e-5)


CANDIDATES = np.stack([RNG.permutation(ITEMS)[:4] for _ in range(TEXTS)])
CANDIDATES[::4, 3] = -1


@pytest.mark.slow
def test_a_refiner_learns_which_candidates_are_right():
    network = refiner(ONE_BLOCK["deberta"], 5)
    given = (network, TOKENS, LABELS, CANDIDATES, TOOLS)
    objective = refinement(*given, inject_missing=True, size=TEXTS)
    found = losses_of(objective, jax.jit(network.init)(jax.random.key(0)), steps=90)
    assert found[-1] < 0.5 * found[0]


#: Scores that depend only on the tool, so that the loss has a closed form.
BY_TOOL = Module(None, lambda params, ids, mask, tools, there, key: tools @ params)
WEIGHTS = RNG.standard_normal(5).astype(np.float32)


def refined(*, size=16, **options):
    return refinement(BY_TOOL, TOKENS, LABELS, CANDIDATES, TOOLS, size=size, **options)


def test_the_loss_of_refinement_is_over_the_candidates_that_are_there():
    objective = refined()
    batch = objective.batches(0)
    assert (batch["candidates"] == -1).any()
    value, _ = jax.jit(objective.loss)(WEIGHTS, batch, None)
    np.testing.assert_allclose(value, loss_by_hand(batch, np.zeros(ITEMS)), rtol=1e-5)


def test_the_first_stages_centred_scores_are_added_to_the_logits():
    liked = RNG.standard_normal(ITEMS)  # equal for all queries
    prior = np.where(CANDIDATES < 0, -np.inf, liked[CANDIDATES])
    objective = refined(prior=prior)
    batch = objective.batches(0)
    value, _ = jax.jit(objective.loss)(WEIGHTS, batch, None)
    mean = liked[CANDIDATES[CANDIDATES >= 0]].mean()
    np.testing.assert_allclose(value, loss_by_hand(batch, liked - mean), rtol=1e-5)
    with pytest.raises(ValueError, match="has no prior score"):
        refined(prior=prior, inject_missing=True)


def test_a_query_can_be_shown_other_vectors_of_its_own_tools():
    own = RNG.standard_normal((TEXTS, LABELS.shape[1], 5)).astype(np.float32)
    batch = refined(own=lambda rows: own[rows], size=TEXTS).batches(0)
    replaced = 0
    given = (batch[name] for name in ("labels", "candidates", "tools"))
    for labels, candidates, tools in zip(*given, strict=True):
        same = (labels == LABELS).all(axis=1) & (candidates == CANDIDATES).all(axis=1)
        query = int(np.flatnonzero(same)[0])
        for item, vector in zip(candidates, tools, strict=True):
            mine = item >= 0 and item in labels
            expected = own[query, list(labels).index(item)] if mine else TOOLS[max(item, 0)]
            np.testing.assert_array_equal(vector, expected)
            replaced += mine
    assert replaced > 0


def loss_by_hand(batch, prior):
    rows = []
    for candidates, labels in zip(batch["candidates"], batch["labels"], strict=True):
        terms = []
        for item in candidates[candidates >= 0]:
            z = float(TOOLS[item] @ WEIGHTS) + prior[item]
            terms.append(np.log1p(np.exp(-z if item in labels else z)))
        rows.append(np.mean(terms))
    return np.mean(rows)


def test_labels_that_are_no_candidates_contribute_nothing():
    objective = refined()
    batch, loss = objective.batches(0), jax.jit(objective.loss)
    found = (batch["labels"][:, :, None] == batch["candidates"][:, None, :]).any(axis=2)
    assert (~found & (batch["labels"] >= 0)).any()
    without = {**batch, "labels": np.where(found, batch["labels"], -1)}
    assert loss(WEIGHTS, batch, None)[0] == loss(WEIGHTS, without, None)[0]


def shown(candidates, labels, **options):
    """Return the candidates of one query as used in the training of the refiner."""
    given = (BY_TOOL, [[2, 3]], np.array([labels]), np.array([candidates]), TOOLS)
    batch = refinement(*given, size=1, **options).batches(0)
    np.testing.assert_array_equal(batch["tools"], TOOLS[np.maximum(batch["candidates"], 0)])
    return batch["candidates"][0].tolist()


@pytest.mark.parametrize(
    ("candidates", "labels", "expected"),
    [
        ([0, 1, 2, 3], [5, -1], [0, 1, 2, 5]),  # replaces the last one
        ([0, 1, 2, 5], [4, 5], [0, 1, 4, 5]),  # right tools keep their positions
        ([0, 1, 2, 3], [4, 5], [0, 1, 5, 4]),
        ([0, 1, 2, 3], [0, 3], [0, 1, 2, 3]),  # nothing is missing
        ([0, 1, -1, -1], [5, -1], [0, 1, -1, 5]),  # empty positions first
        ([3, 1], [0, 4, 5], [4, 0]),  # more right tools than positions
    ],
)
def test_missing_tools_take_the_last_wrong_places(candidates, labels, expected):
    assert shown(candidates, labels, inject_missing=True) == expected


def test_by_default_candidates_stay_as_they_were_retrieved():
    candidates = np.array([[0, 1, 2, 3]])
    assert shown([0, 1, 2, 3], [5, -1]) == [0, 1, 2, 3]
    refinement(BY_TOOL, [[2, 3]], np.array([[5]]), candidates, TOOLS, size=1, inject_missing=True)
    assert candidates.tolist() == [[0, 1, 2, 3]]  # not modified


def same_word(params, features, candidates, key=None):
    """Score how well the words of a query fit each tool."""
    words = (params["words"][features["ids"]] * features["mask"][..., None]).sum(axis=1)
    return jnp.take_along_axis(words, jnp.maximum(candidates, 0), axis=1)


def test_a_judge_learns_to_pick_the_right_one():
    objective = judgement(same_word, TOKENS, LABELS, CANDIDATES, size=TEXTS)
    found = losses_of(objective, {"words": jnp.zeros((24, ITEMS))})
    assert found[-1] < 0.5 * found[0]
    assert found[0] < np.log(4) + 1e-5  # at most four candidates


def test_each_right_tool_is_an_example_among_wrong_ones():
    texts = [[2, 4 + row // 20, 4 + row % 20, 3] for row in range(TEXTS)]  # distinct texts
    objective = judgement(same_word, texts, LABELS, CANDIDATES, size=(LABELS >= 0).sum())
    batch = objective.batches(0)
    rows = {tuple(text): row for row, text in enumerate(texts)}
    seen = []
    for text, shown in zip(texts_of(batch), batch["candidates"], strict=True):
        row = rows[text]
        right = set(LABELS[row][LABELS[row] >= 0])
        wrong = [item for item in CANDIDATES[row] if item >= 0 and item not in right]
        assert shown[0] in right
        assert shown[1:][shown[1:] >= 0].tolist() == wrong[:3]
        seen.append((row, shown[0]))
    assert len(set(seen)) == len(seen) == (LABELS >= 0).sum()


PAIRS = random_negatives(LABELS, ITEMS, count=2)
DOCUMENTS = [[2, 10 + item, *RNG.integers(4, 10, item), 3] for item in range(ITEMS)]


@pytest.mark.parametrize("in_batch", [True, False])
def test_an_encoder_learns_to_find_a_tools_document(in_batch):
    given = (bag_of_words, TOKENS, DOCUMENTS, LABELS, PAIRS)
    found = losses_of(matching(*given, in_batch=in_batch, size=TEXTS), words())
    assert found[-1] < 0.5 * found[0]


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("mask_false", [True, False])
def test_the_loss_of_matching_is_the_cross_entropy_of_the_right_document(mask_false, count):
    given = (bag_of_words, TOKENS, DOCUMENTS, LABELS, random_negatives(LABELS, ITEMS, count=count))
    objective = matching(*given, temperature=0.5, mask_false=mask_false, size=6)
    batch = objective.batches(0)
    words = RNG.standard_normal((24, 5)).astype(np.float32)

    def unit(text):
        vector = words[list(text)].mean(axis=0)
        return vector / np.linalg.norm(vector)

    documents = np.stack([unit(text) for text in DOCUMENTS])
    rows = {tuple(text): row for row, text in enumerate(TOKENS)}
    values = []
    for ids, mask, tools in zip(batch["ids"], batch["mask"], batch["tools"], strict=True):
        text = tuple(ids[0][mask[0]])
        right = set(LABELS[rows[text]].tolist()) if mask_false else {int(tools[0])}
        others = [i for i in batch["tools"].ravel() if i >= 0 and i not in right]
        scores = documents @ unit(text) / 0.5
        values.append(-scores[tools[0]] + np.logaddexp.reduce(scores[[tools[0], *others]]))
    value, _ = jax.jit(objective.loss)({"words": jnp.asarray(words)}, batch, None)
    np.testing.assert_allclose(value, np.mean(values), rtol=1e-5)


#: Queries are their own number and their first tool's word; documents end with the tool's word.
HEADS = [[60 + query, 10 + LABELS[query, 0]] for query in range(TEXTS)]
TAILS = [[4] * item + [20 + item] for item in range(ITEMS)]


def test_a_batch_of_verdicts_has_each_pair_once_with_its_answer():
    count = int((PAIRS[:, 1:] >= 0).sum())
    batch = verdicts(None, HEADS, TAILS, PAIRS, size=count).batches(0)
    seen = []
    for ids, mask, (answer,) in zip(batch["ids"], batch["mask"], batch["answer"], strict=True):
        text = ids[mask].tolist()
        query, tool = text[0] - 60, text[-1] - 20
        assert text == HEADS[query] + TAILS[tool]
        assert answer == (0 if tool in LABELS[query] else 1)
        seen.append((query, tool, answer))
    want = [(row[0], row[1], 0) for row in PAIRS.tolist()]
    want += [(row[0], item, 1) for row in PAIRS.tolist() for item in row[2:] if item >= 0]
    assert sorted(seen) == sorted(want)


def test_the_loss_is_the_surprise_at_the_right_one_of_two_answers():
    def answer(params, ids, mask, key=None):
        return jnp.stack([mask.sum(axis=1) * params, jnp.ones(len(ids))], axis=1)

    objective = verdicts(answer, HEADS, TAILS, PAIRS, size=8)
    batch = objective.batches(0)
    value, info = jax.jit(objective.loss)(jnp.asarray(0.3), batch, None)
    yes = 0.3 * batch["mask"].sum(axis=1) - 1  # difference of the two logits
    wrong = np.where(batch["answer"][:, 0] == 0, -yes, yes)
    np.testing.assert_allclose(value, np.log1p(np.exp(wrong)).mean(), rtol=1e-5)
    np.testing.assert_allclose(info["accuracy"], (wrong < 0).mean(), rtol=1e-6)


def test_a_language_model_learns_which_words_go_with_which_tools():
    def answer(params, ids, mask, key=None):
        first = params["query"][ids[:, 1]]
        last = params["tool"][jnp.take_along_axis(ids, mask.sum(axis=1)[:, None] - 1, axis=1)[:, 0]]
        score = (first * last).sum(axis=1)
        return jnp.stack([score, -score], axis=1)

    objective = verdicts(answer, HEADS, TAILS, PAIRS, size=64)
    query, tool = 0.3 * RNG.standard_normal((2, 120, 8), np.float32)
    found = losses_of(objective, {"query": query, "tool": tool}, steps=60, rate=3e-2)
    assert found[-1] < 0.5 * found[0]


@pytest.mark.parametrize("parts", [2, 16])
def test_a_batch_that_is_encoded_in_parts_has_the_same_loss_and_gradient(parts):
    """Also in the other direction: `accumulate` would compare fewer texts."""
    pairs = random_negatives(LABELS, ITEMS, count=2, seed=0)
    tools = [[2, 10 + i, 3] for i in range(ITEMS)]

    def gradient(embed):
        objective = matching(embed, TOKENS, tools, LABELS, pairs, size=16)
        batch, key = objective.batches(0), jax.random.key(0)
        return jax.jit(jax.value_and_grad(lambda params: objective.loss(params, batch, key)[0]))

    found = gradient(in_parts(bag_of_words, parts))(words())
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
        found,
        gradient(bag_of_words)(words()),
    )
    assert np.abs(found[1]["words"]).max() > 1e-2


def test_the_parts_draw_dropout_of_their_own():
    def drawn(params, ids, mask, key=None):
        return jax.random.normal(key, (len(ids), 3))

    ids = np.zeros((6, 2), int)
    vectors = jax.jit(partial(in_parts(drawn, 3), None, ids, ids))(key=jax.random.key(0))
    assert len(np.unique(vectors)) == 18


def test_parts_must_divide_the_texts_of_a_batch():
    ids = np.zeros((6, 2), int)
    with pytest.raises(ValueError, match="parts=4 must divide the 6 texts of a batch"):
        in_parts(bag_of_words, 4)(words(), ids, ids)
