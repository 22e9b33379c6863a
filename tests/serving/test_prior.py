"""Prior scores in a live index: the match of words, given scores, the files and the log."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.encoders.lexical import Lexicon
from jaxret.learners.learner import query_for
from jaxret.learners.mixture import mixture
from jaxret.learners.offsets import informed
from jaxret.offline.snapshots import with_probabilities
from jaxret.types import Choice, Feedback
from tests.serving.indices import SETTINGS, leaves, same

DOCUMENTS = [
    "book_train a seat on a train",
    "trainDelays of today",
    "weather in a city",
    "currency rates",
]
TEXTS = ["is my train late", "delays of trains", "what is the weather", "a seat please"]
LEARNER = jr.with_balance(jr.with_lexical(jr.centred_replayed(**SETTINGS), 0.5))
BALANCED = jr.with_balance(jr.greedy(**SETTINGS))
LEXICAL = jr.with_lexical(jr.greedy(**SETTINGS), 0.6)
EXPLORING = jr.with_exploration(LEXICAL, 0.3)


def vector(text):
    rng = np.random.default_rng(sum(map(ord, text)))
    return rng.normal(size=5) / 5**0.5


def encode(texts):
    return np.stack([vector(text) for text in texts]).astype(np.float32)


encode.cache_name = "letters"


@pytest.fixture(scope="module")
def texts():
    task = jr.Task.from_arrays(
        encode(DOCUMENTS), encode(TEXTS), [0, 1, 2, 0], texts=TEXTS, documents=DOCUMENTS
    )
    return replace(task, encoder=encode)


@pytest.mark.parametrize("learner", [jr.hybrid(), LEARNER], ids=lambda one: one.name)
def test_a_text_is_ranked_by_vectors_and_words_as_in_a_simulation(texts, learner):
    index = jr.Index(learner, texts)
    queries = query_for(learner, texts.queries, texts.prior)
    scores = np.asarray(jax.jit(learner.scores)(index.state, queries))
    for text, expected in zip(TEXTS, scores, strict=True):
        ticket = index.search(text, k=4)
        rows = [texts.ids.index(one) for one in ticket.ids]
        np.testing.assert_allclose(ticket.scores, expected[rows], rtol=1e-5)


def test_words_follow_what_is_added_and_redescribed(texts):
    index = jr.Index(jr.hybrid(lexical=0.9), texts)
    index.add(["mail"], ["send_mail, with stamps"])
    assert index.search("stamps please").ids == ["mail"]
    index.redescribe(["mail"], ["letters only"])
    index.redescribe(["3"], ["stamps and rates"])
    assert index.search("stamps please").ids == ["3"]
    index.redescribe(["3"], [encode(["stamps"])[0]])  # a vector has no words
    assert index.search("letters").ids == ["mail"]
    assert "stamps" not in " ".join(index.texts)


def test_removed_tools_have_no_scores(texts, tmp_path):
    index = jr.Index(jr.with_lexical(jr.frozen(), 0.9, width=2), texts, log=tmp_path / "log.jsonl")
    before = index.search(TEXTS[0], k=4)
    index.add(["a", "b"], ["is my train late", "my late train is"])
    index.remove(["a", "b"])
    after = index.search(TEXTS[0], k=4)
    assert (after.ids, after.scores) == (before.ids, before.scores)
    assert jr.load_log(tmp_path / "log.jsonl", index.ids).rounds == 2


def test_words_are_weighed_among_the_tools_that_remain(texts):
    index = jr.Index(jr.hybrid(lexical=0.9), texts)
    index.search(TEXTS[1])
    index.remove(["0"])
    vectors, rest = encode(DOCUMENTS[1:]), DOCUMENTS[1:]
    of_rest = jr.Task.from_arrays(vectors, vectors, [0, 1, 2], ids=["1", "2", "3"], documents=rest)
    fresh = jr.Index(jr.hybrid(lexical=0.9), replace(of_rest, encoder=encode))
    for text in TEXTS:
        found, expected = index.search(text, k=3), fresh.search(text, k=3)
        assert found.ids == expected.ids
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)


@pytest.mark.parametrize("how", ["keep", "carry", "reset"])
def test_usage_starts_again_for_a_tool_that_is_reset_and_only_for_this_tool(texts, how):
    index = jr.Index(BALANCED, texts)
    for text in TEXTS:
        index.feedback(index.search(text), worked=1.0)
    mean, count = (np.array(x) for x in index.state.extra[2])
    assert (np.abs(mean - 1) > 1e-3).all()
    index.redescribe(["2"], ["weather on a mountain"], how=how)
    if how == "reset":
        mean[2], count[2] = 1, 20
    np.testing.assert_array_equal(index.state.extra[2].mean, mean)
    np.testing.assert_array_equal(index.state.extra[2].count, count)
    index.remove(["0"])
    index.add(["0"], ["book_train again"])  # restored with a new description
    mean[0], count[0] = 1, 20
    np.testing.assert_array_equal(index.state.extra[2].mean, mean)
    np.testing.assert_array_equal(index.state.extra[2].count, count)


def test_words_of_a_task_without_lexical_scores_are_not_matched(texts):
    index = jr.Index(jr.hybrid(), replace(texts, lexical=False))
    with pytest.raises(ValueError, match="'hybrid' reads prior scores, which this query lacks"):
        index.search(TEXTS[0])


def test_given_scores_replace_words(texts):
    index = jr.Index(jr.hybrid(lexical=0.9), texts)
    for one in texts.ids:
        assert index.search(TEXTS[0], prior={one: 1.0}).ids == [one]
    assert index.search(texts.queries[0], prior={"2": 1.0}).ids == ["2"]
    for given, message in {
        "vector": "'hybrid' reads prior scores, which this query lacks: give prior=",
        "unknown": "no tool 'nine'",
        "nan": "prior must be finite numbers",
        "huge": "prior must be finite numbers",
        "list": "prior must be a mapping from ids to numbers",
        "none": "prior must be a mapping from ids to numbers",
    }.items():
        prior = {
            "vector": None,
            "unknown": {"nine": 1.0},
            "nan": {"1": float("nan")},
            "huge": {"1": 1e300},
            "list": [1.0],
            "none": {"1": None},
        }[given]
        with pytest.raises(ValueError, match=message):
            index.search(texts.queries[0], prior=prior)
    narrow = jr.Index(jr.with_lexical(jr.greedy(), width=1), texts)
    with pytest.raises(ValueError, match="prior must be at most 1 scores, got 2"):
        narrow.search(TEXTS[0], prior={"1": 1.0, "2": 0.5})


def test_an_empty_mapping_gives_every_tool_the_score_0(texts):
    index, static = jr.Index(jr.hybrid(lexical=0.9), texts), jr.Index(jr.frozen(), texts)
    for query in (TEXTS[0], texts.queries[0]):
        assert index.search(query, k=4, prior={}).ids == static.search(query, k=4).ids


def test_a_restored_index_has_texts_and_the_priors_of_open_tickets(texts, tmp_path):
    index = jr.Index(LEARNER, texts)
    for text in TEXTS:
        index.feedback(index.search(text, k=2), worked=text != TEXTS[1])
    ticket = index.search(TEXTS[0], k=2)
    index.save(tmp_path)
    again = jr.Index.load(tmp_path, LEARNER, encode)
    assert again.texts == index.texts == DOCUMENTS
    index.feedback(ticket, worked=True)
    again.feedback(ticket, worked=True)
    same(leaves(again), leaves(index))
    assert np.abs(index.state.theta - texts.theta).max() > 1e-3
    assert again.search(TEXTS[1], k=3) == index.search(TEXTS[1], k=3)


def test_late_feedback_is_learnt_with_the_prior_of_its_own_ticket(texts, tmp_path):
    learner, index = LEXICAL, jr.Index(LEXICAL, texts)
    tickets = [index.search(text) for text in TEXTS]
    index.save(tmp_path)
    state, update = index.state, jax.jit(learner.update)
    for row, ticket in [*enumerate(tickets)][::-1]:
        prior = jax.tree.map(lambda x, row=row: x[row], texts.prior)
        learner_query = query_for(learner, texts.queries[row], prior)
        choice = Choice(np.int32(ticket.ids[0]), np.float32(ticket.propensities[0]))
        state = update(state, learner_query, choice, Feedback(np.float32(1.0)))
    for one in (index, jr.Index.load(tmp_path, learner, encode)):
        for ticket in tickets[::-1]:
            one.feedback(ticket, worked=1.0)
        np.testing.assert_allclose(one.state.theta, state.theta, atol=1e-6)


def test_a_log_holds_the_priors_from_which_probabilities_are_restored(texts, tmp_path):
    index = jr.Index(EXPLORING, texts, log=tmp_path / "log.jsonl")
    for t in range(12):
        index.feedback(index.search(TEXTS[t % 4]), worked=t % 3 == 0)
    line = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[2])
    items, scores = Lexicon(DOCUMENTS).prior(TEXTS[:1])
    words = {str(i): float(x) for i, x in zip(items[0], scores[0], strict=True) if i >= 0}
    assert line["prior"] == pytest.approx(words)
    assert len(words) >= 1
    log = jr.load_log(tmp_path / "log.jsonl", texts)
    found = with_probabilities(log, EXPLORING)
    assert found.probabilities.shape == (12, 4)
    np.testing.assert_allclose(found.by_position, log.by_position, rtol=1e-5)


def test_a_log_of_queries_whose_words_are_in_no_document_has_priors_without_scores(texts, tmp_path):
    index = jr.Index(EXPLORING, texts, log=tmp_path / "log.jsonl")
    for text in 6 * ("zebra", "lion"):
        index.feedback(index.search(text), worked=True)
    log = jr.load_log(tmp_path / "log.jsonl", texts)
    found = with_probabilities(log, EXPLORING)
    np.testing.assert_allclose(found.by_position, log.by_position, rtol=1e-5)


def test_rounds_of_a_log_without_a_prior_have_no_scores(texts, tmp_path):
    for learner in (informed(of=jr.greedy, lexical=0.6), jr.greedy()):
        jr.Index(learner, texts, log=tmp_path / "log.jsonl").search(TEXTS[0])
    prior = jr.load_log(tmp_path / "log.jsonl", texts).prior
    assert prior.scores[0].any()
    assert not prior.scores[1].any()
    assert (prior.items[1] == -1).all()


def test_a_simulated_log_is_read_with_the_priors_of_its_task(texts, tmp_path):
    learner = jr.with_exploration(LEXICAL, 0.6)
    jr.simulate(learner, texts, exposures=192, log=tmp_path)  # three whole batches
    plain = jr.load_log(tmp_path / "seed_0.jsonl", replace(texts, lexical=False))
    assert plain.prior is None
    with pytest.raises(ValueError, match=r"reads prior scores, and the log has none: .*task"):
        with_probabilities(plain, learner)
    log = jr.load_log(tmp_path / "seed_0.jsonl", texts)
    np.testing.assert_allclose(
        with_probabilities(log, learner).by_position, log.by_position, rtol=1e-4
    )
    experts = [jr.grid(jr.hybrid, lexical=[0.9]), jr.grid(jr.frozen, tau=[0.1])]
    mixed = jr.with_exploration(mixture(experts), 0.5)
    known, unknown = (jr.off_policy(one, mixed)["DR"].estimate for one in (log, plain))
    assert known > unknown + 0.02  # words show more right tools
