"""Rerankers on ToolRet's candidate lists, against each model's own scores of the same list."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from experiments import evaluate_toolret
from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret.data.toolret import benchmark
from jaxret.encoders import load_encoder
from jaxret.methods import cross_encoder, tool_rank
from jaxret.methods.tool_rank import verdict
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.retrieval.runs import load_run
from tests.experiments.conftest import WIDTH, step_of
from tests.experiments.toolret_copy import QUERIES, TASKS, configure


def first_list(directory, name):
    """Return the first-stage list that the reranker received in the same run."""
    step = step_of(directory, name)
    return Ranking(items=step["items"], scores=step["scores"])


@pytest.mark.slow
def test_a_cross_encoder_reads_instruction_and_query_and_sorts_the_list(world, copy, tmp_path):
    """Its weights are the encoder's with a random head; its own module gives expected scores."""
    folder, tensors = tmp_path / "model", load_file(world / "encoder" / "model.safetensors")
    shutil.copytree(world / "encoder", folder)
    random = np.random.default_rng(3)
    tensors = {f"bert.{name}": x for name, x in tensors.items()}
    for name, rows in {"bert.pooler.dense": WIDTH, "classifier": 1}.items():
        tensors[f"{name}.weight"] = random.standard_normal((rows, WIDTH)).astype(np.float32)
        tensors[f"{name}.bias"] = np.zeros(rows, np.float32)
    save_file(tensors, folder / "model.safetensors")
    chosen = ["methods=[cross_encoder]", f"models.cross_encoder.path={folder}"]
    evaluate_toolret.main(configure(world, copy, tmp_path / "run", *chosen))

    found = benchmark(copy, tasks=["mnms"])
    names, file = found.dataset.tool_ids, "mnms-with.run"
    first = first_list(tmp_path / "run", "minilm-mnms-with")
    got = load_run(tmp_path / "run" / "rankings" / "cross_encoder" / file, found.ids, names)
    reranker = cross_encoder.reranker(
        *cross_encoder.read_published(folder),
        load_encoder("minilm", folder),
        found.dataset.documents,
        query_limit=128,
    )
    texts = [f"{i} {q}" for i, q in zip(found.instructions, found.queries, strict=True)]
    expected = refine(reranker, texts, first, progress=False)
    np.testing.assert_allclose(got.scores, expected.scores, atol=1e-5)
    np.testing.assert_array_equal(np.sort(got.items, axis=1), np.sort(first.items, axis=1))
    assert (got.items != first.items).any()


@pytest.mark.slow
def test_a_language_model_is_asked_about_every_tool_on_the_list(world, copy, tmp_path):
    found = benchmark(copy, tasks=["mnms"])
    small = {"vocabulary": 400, "width": 16, "layers": 1}
    write_tiny_qwen3(tmp_path / "model", found.dataset.documents, **small)
    settings = [f"path={tmp_path / 'model'}", "first=bm25", "dtype=float32", "chunk=4"]
    (tmp_path / "mine.txt").write_text("Is it $yes or $no?\n---\n$query\n$document")
    settings += ["query_limit=64", "document_limit=32", f"prompt={tmp_path / 'mine.txt'}"]
    chosen = ["methods=[tool_rank]", "+dataset.options.tasks=[mnms]"]
    chosen += [f"models.tool_rank.{setting}" for setting in settings]
    evaluate_toolret.main(configure(world, copy, tmp_path / "run", *chosen))
    names, file = found.dataset.tool_ids, "mnms-with.run"
    first = first_list(tmp_path / "run", "bm25-mnms-with")
    got = load_run(tmp_path / "run" / "rankings" / "tool_rank" / file, found.ids, names)
    np.testing.assert_array_equal(np.sort(got.items, axis=1), np.sort(first.items, axis=1))
    model = tool_rank.load_language_model("tool_rank_4b", tmp_path / "model")
    options = {"query_limit": 64, "document_limit": 32, "prompt": tmp_path / "mine.txt"}
    asked = verdict(model.tokenizer, instruction="", **options)
    query = f"{found.instructions[1]} {found.queries[1]}"
    ids = asked.heads([query])[0] + asked.tails([found.dataset.documents[got.items[1, 0]]])[0]
    given = (model.params(asked), jnp.array([ids]), jnp.ones((1, len(ids)), bool))
    [[yes, no]] = np.asarray(model.network(asked).apply(*given))
    assert got.scores[1, 0] == pytest.approx(-np.log1p(np.exp(no - yes)), abs=1e-5)


@pytest.mark.slow
def test_candidates_with_equal_scores_are_ordered_by_id(world, copy, tmp_path, monkeypatch):
    """Saturated scores are common, and `refine` would keep the order of the first stage."""

    def indifferent(_, name):
        return Reranker(
            name=name,
            read=lambda texts: np.zeros(len(texts)),
            params=(),
            score=lambda params, features, items: jnp.ones(items.shape),
        )

    model = evaluate_toolret._reranked(indifferent)
    monkeypatch.setitem(evaluate_toolret.STAGES, "cross_encoder", model)
    chosen = ["methods=[cross_encoder]", "models.cross_encoder.path=x"]
    evaluate_toolret.main(configure(world, copy, tmp_path, *chosen))
    tool_ids = np.array(benchmark(copy).dataset.tool_ids)
    for task in TASKS:
        path = tmp_path / "rankings" / "cross_encoder" / f"{task}-without.run"
        tools = np.array([line.split()[2] for line in path.read_text().splitlines()])
        given = tool_ids[first_list(tmp_path, f"minilm-{task}-without").items].tolist()
        expected = [sorted(row, reverse=True) for row in given]
        assert tools.reshape(QUERIES, 20).tolist() == expected != given
