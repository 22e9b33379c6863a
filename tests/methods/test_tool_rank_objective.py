"""What a batch of Tool-Rank's training holds, what its loss is, and that a judge learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxret.methods.tool_rank_objective import verdicts
from jaxret.training.loop import start, train_step
from jaxret.training.pairs import random_negatives

ITEMS = 5
LABELS = np.stack([np.arange(40) % ITEMS, np.full(40, -1)], axis=1)
LABELS[::4, 1] = (LABELS[::4, 0] + 2) % ITEMS
#: Each query is its own number and its first tool's word, each tool's document ends in its word.
HEADS = [[60 + query, 10 + LABELS[query, 0]] for query in range(40)]
TAILS = [[4] * item + [20 + item] for item in range(ITEMS)]
PAIRS = random_negatives(LABELS, ITEMS, count=2)


def test_a_batch_has_each_pair_once_with_its_answer():
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
    value, info = objective.loss(jnp.asarray(0.3), batch, None)
    yes = 0.3 * batch["mask"].sum(axis=1) - 1  # the difference of the two logits
    wrong = np.where(batch["answer"][:, 0] == 0, -yes, yes)
    np.testing.assert_allclose(value, np.log1p(np.exp(wrong)).mean(), rtol=1e-5)
    np.testing.assert_allclose(info["accuracy"], (wrong < 0).mean(), rtol=1e-6)


def test_a_judge_learns_which_words_go_with_which_tools():
    def answer(params, ids, mask, key=None):
        first = params["query"][ids[:, 1]]
        last = params["tool"][jnp.take_along_axis(ids, mask.sum(axis=1)[:, None] - 1, axis=1)[:, 0]]
        score = (first * last).sum(axis=1)
        return jnp.stack([score, -score], axis=1)

    objective = verdicts(answer, HEADS, TAILS, PAIRS, size=64)
    keys = jax.random.split(jax.random.key(0))
    params = {
        n: 0.3 * jax.random.normal(k, (100, 8))
        for n, k in zip(("query", "tool"), keys, strict=True)
    }
    optimizer = optax.adam(3e-2)
    state = start(params, optimizer, jax.random.key(1))
    step = jax.jit(train_step(objective.loss, optimizer))
    found = []
    for _ in range(60):
        state, info = step(state, objective.batches(int(state.position)))
        found.append((float(info["loss"]), float(info["accuracy"])))
    assert found[-1][0] < 0.5 * found[0][0]
    assert found[-1][1] > 0.85
