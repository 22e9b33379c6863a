"""Tool-Rank: prompts against tokenising the whole text, and scores against single pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret.encoders.padding import pad
from jaxret.methods import common
from jaxret.methods import tool_rank as tr
from jaxret.methods.tool_rank import PLACES, verdict
from jaxret.nn.functional import Module
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import refine
from tests.problems import make_task

QUERIES = ["Book a table for two.", "what is the weather in Köln tomorrow, please?", "pay rent"]
DOCUMENTS = [
    "reserve_table: Books a table. Takes the number of guests.",
    '{"name": "forecast", "description": "The weather, 14 days ahead."}',
    "transfer",
    "Sends money. " * 12,
]
END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
FOUND = np.array([[3, 0, 2], [1, -1, -1], [2, 3, 1]], np.int32)
FIRST = Ranking(items=FOUND, scores=np.where(FOUND < 0, -np.inf, 0.0).astype(np.float32))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_qwen3(folder, [*QUERIES, *DOCUMENTS], vocabulary=400, width=16, layers=1)
    return tr.load_language_model("tool_rank_4b", folder)


@pytest.mark.parametrize("place", PLACES)
def test_the_two_parts_of_a_question_are_the_tokens_of_the_whole(model, place):
    asked = verdict(model.tokenizer, place=place, instruction="Find a tool.")
    heads, tails = asked.heads(QUERIES), asked.tails(DOCUMENTS)
    for query, head in zip(QUERIES, heads, strict=True):
        for document, tail in zip(DOCUMENTS, tails, strict=True):
            whole = asked.text(query, document)
            assert head + tail == model.tokenizer.encode(whole, add_special_tokens=False).ids
            assert whole.endswith(END)
            for part in (query, document.strip(), "Find a tool.", "true", "false"):
                assert part in whole
    with pytest.raises(TypeError, match="text 0 must be a string, got a vector"):
        asked.read(np.eye(2))


def test_an_instruction_comes_before_the_query_or_on_a_separate_line(model):
    def lines(**options):
        return verdict(model.tokenizer, **options).text("pay", "transfer").splitlines()

    assert "Find a tool. pay" in lines(instruction="Find a tool.")
    assert {"Find a tool.", "pay"} <= set(lines(instruction="Find a tool.", place="line"))
    without = lines(instruction="")
    assert "pay" in without
    assert len(without) == len(lines(instruction="Find a tool."))


def test_documents_and_queries_are_cut_and_the_end_of_the_question_is_not(model):
    asked = verdict(model.tokenizer, instruction="", query_limit=2, document_limit=5)
    (head,), (tail,) = asked.heads(QUERIES[:1]), asked.tails(DOCUMENTS[3:])
    of_document = model.tokenizer.encode(DOCUMENTS[3], add_special_tokens=False).ids
    end = model.tokenizer.encode(END, add_special_tokens=False).ids
    assert tail == [*of_document[:5], *end]
    text = model.tokenizer.decode(head, skip_special_tokens=False)
    assert "Bo" in text
    assert "table" not in text
    assert text.endswith("tool:\n")


@pytest.fixture(scope="module")
def one_by_one(model):
    """Return network, parameters, and each candidate's log probability from its whole text."""
    asked = verdict(model.tokenizer, instruction="Find a tool.")
    network = model.network(asked)
    params = jax.tree.map(lambda x: np.asarray(x) * 6 ** (x.ndim == 2), model.params(asked))
    pairs = [(row, item) for row in range(3) for item in FOUND[row] if item >= 0]
    texts = [asked.text(QUERIES[row], DOCUMENTS[item]) for row, item in pairs]
    ids, mask = pad([model.tokenizer.encode(text, add_special_tokens=False).ids for text in texts])
    yes, no = np.asarray(jax.jit(network.apply)(params, ids, mask), np.float64).T
    return asked, network, params, dict(zip(pairs, -np.log1p(np.exp(no - yes)), strict=True))


@pytest.mark.parametrize("pairs", [1, 4])
def test_candidates_are_sorted_by_the_probability_of_the_answer(one_by_one, pairs):
    asked, network, params, wanted = one_by_one
    reranker = tr.reranker(network, params, asked, DOCUMENTS, pairs=pairs)
    found = refine(reranker, QUERIES, FIRST, chunk=2, progress=False)
    for row in range(len(QUERIES)):
        items = FOUND[row][FOUND[row] >= 0]
        want = np.array([wanted[row, item] for item in items])
        order = np.argsort(-want)
        np.testing.assert_array_equal(found.items[row, : len(items)], items[order])
        np.testing.assert_allclose(found.scores[row, : len(items)], want[order], atol=2e-5)
    assert np.ptp(found.scores[0]) > 1e-3


def test_short_pairs_run_at_a_shorter_length(model):
    lengths = []

    def apply(params, ids, mask):
        jax.debug.callback(lambda: lengths.append(ids.shape[1]))
        return jnp.stack([mask.sum(axis=1), jnp.zeros(len(ids), int)], axis=1).astype(jnp.float32)

    asked = verdict(model.tokenizer, instruction="", query_limit=20)
    documents = ["a", "b", "c", "Sends money. " * 200]
    reranker = tr.reranker(Module(None, apply), None, asked, documents, pairs=2)
    features = reranker.read(["pay", "send"])
    score = jax.jit(reranker.score)
    for long in (1, 3):  # two groups of two pairs each
        score(reranker.params, features, np.array([[0, long], [2, 0]])).block_until_ready()
        jax.effects_barrier()
    longest = features["ids"].shape[1] + reranker.params[1][0].shape[1]
    assert lengths[:3] == [-(-longest // 2)] * 3
    assert lengths[3] > lengths[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"place": "end"}, r"place must be one of \['query', 'line'\], got end"),
        ({"place": "line", "instruction": ""}, "an empty instruction has no line"),
        ({"document_limit": 0}, "document_limit must be >= 1, got 0"),
        ({"answers": ("true", "true")}, "two words that are a token each"),
        ({"answers": ("true", "certainly not")}, "two words that are a token each"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        verdict(model.tokenizer, **options)


def test_a_prompt_whose_document_comes_first_is_refused(model, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("$document\nDoes it do this: $query? $yes or $no")
    with pytest.raises(ValueError, match="the document must come once, and after the query"):
        verdict(model.tokenizer, prompt=file)


def test_a_prompt_that_is_given_is_asked_and_may_state_its_own_answers(model, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("Reply true or false.\n---\n$query\n$document")
    text = verdict(model.tokenizer, instruction="", prompt=str(file)).text("a query", "a tool")
    assert "<|im_start|>system\nReply true or false.<|im_end|>" in text
    assert "<|im_start|>user\na query\na tool<|im_end|>" in text
    file.write_text("$query $tool")
    with pytest.raises(ValueError, match=r"mine.txt: .* lack .*'document'.* unknown \['tool'\]"):
        tr.Config(prompt=str(file))


def test_a_model_is_found_again_only_for_the_text_on_which_it_was_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "fitted", lambda *given, folder, **more: folder)
    file, task = tmp_path / "mine.txt", make_task(queries=2)
    unused: dict = dict.fromkeys(("start", "model", "objective", "hooks"))

    def place(text):
        file.write_text(text)
        given = (tr.Config(prompt=str(file)), task, task)
        return common.trained("tool_rank", *given, seed=0, folder=tmp_path, **unused)

    assert place("$query\n$document") == place("$query\n$document") != place("$query, $document")


def test_an_unknown_reranker_is_refused():
    with pytest.raises(ValueError, match=r"reranker must be one of .*'tool_rank_4b'.* got 'bert'"):
        tr.load_language_model("bert")
