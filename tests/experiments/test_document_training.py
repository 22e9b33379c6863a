"""Training on one text of the documents and ranking another, on a small world."""

from itertools import product

import pytest

from experiments import document_training
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world, refused
from tests.experiments.conftest import rows_of, write_data

TEXTS = ("full", "expanded")
SMALL = [
    "documents=[full,expanded]",
    "cuts=[1,3,4]",
    "pool=4",
    "seeds=2",
    "recipes.tool_embed.epochs=0.5",
    "recipes.tool_embed.learning_rate=0.01",
    "recipes.cross_encoder.epochs=0.05",
    "recipes.cross_encoder.candidates=4",
    "recipes.cross_encoder.layers=1",
    "recipes.cross_encoder.limit=16",
    "recipes.cross_encoder.document_limit=256",
]


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    """Return the run's directory and its results, with a second data set without profiles."""
    directory = tmp_path_factory.mktemp("document_training")
    other = directory / "other"
    tools = rows_of(world / "data" / "tools.jsonl")[:9]
    lines = [{"id": t["id"], "documentation": t["documentation"]["terse"]} for t in tools]
    queries = [{"id": f"q{i}", "query": t["id"], "labels": [t["id"]]} for i, t in enumerate(tools)]
    write_data(other, lines, queries)
    more = [f"+others.other={other}", "queries=5", f"models={world / 'models_of_documents'}"]
    cfg = config_of("document_training", *SMALL, *more, *in_world(world, directory))
    document_training.main(cfg)
    return directory, read_results(directory)


def test_every_text_is_ranked_by_every_model(finished):
    """The pool has four tools, so a reranker's recall at 4 is the encoder's for the first text."""
    _, results = finished
    pool = results["encoder/jsonl/full/recall@4"]["mean"]
    for trained, text in product(TEXTS, TEXTS):
        for model in ("tool_embed", "cross_encoder"):
            found = results[f"{model}/trained on {trained}/jsonl/{text}/recall@3"]["values"]
            assert len(found) == 2
            assert all(0 <= x <= 1 for x in found)
        found = results[f"cross_encoder/trained on {trained}/jsonl/{text}/recall@4"]["values"]
        assert found == pytest.approx([pool, pool])
    assert results["encoder/jsonl/expanded/recall@4"]["mean"] != pool
    assert len(results["encoder/jsonl/expanded/ndcg@1"]["values"]) == 1


@pytest.mark.parametrize("model", ["tool_embed", "cross_encoder"])
def test_each_model_is_trained_on_its_own_text(finished, model):
    _, results = finished
    full, expanded = (
        [
            results[name]["values"]
            for name in sorted(results)
            if f"{model}/trained on {kind}/" in name
        ]
        for kind in TEXTS
    )
    assert full != expanded
    assert len(full) == len(expanded)
    ranked = f"{model}/trained on full/jsonl"
    full, expanded = (results[f"{ranked}/{x}/ndcg@4"]["values"] for x in TEXTS)
    assert full != expanded


def test_documents_without_a_profile_are_ranked_under_the_other_text_alone(finished):
    _, results = finished
    ranked = {name.rpartition("/")[0] for name in results if "/other/" in name}
    assert {one.rpartition("/")[2] for one in ranked} == {"full"}
    assert len(ranked) == 5  # the encoder, and two recipes trained on two texts
    fifths = 5 * results["encoder/other/full/recall@3"]["mean"]  # of nine queries five are drawn
    assert fifths == pytest.approx(round(fifths))


def test_data_without_any_of_the_texts_is_refused(world, tmp_path):
    folder = tmp_path / "mine"
    tools = [{"id": "a", "documentation": "A text."}]
    write_data(folder, tools, [{"id": "q", "query": "Which?", "labels": ["a"]}])
    more = ["documents=[terse]", f"+others.mine={folder}"]
    cfg = config_of("document_training", *SMALL, *in_world(world, tmp_path), *more)
    with pytest.raises(ValueError, match=r"others.mine: its documents have no terse"):
        document_training.others(cfg)


def test_wrong_settings_are_refused(world, tmp_path):
    for override, message in {
        "documents=[full,fulll]": "documents must be one of",
        "documents=[]": "documents must be one text or more",
        "cuts=[3,5,20]": r"cuts must be in 1 .. pool=4",
        "recipe=[tool_embed,cross_encoder,mlc]": "recipes.mlc.model must be one of query2desc, dpr",
        "seeds=0": "seeds must be >= 1",
    }.items():
        where = in_world(world, tmp_path / "run")
        cfg = config_of("document_training", *SMALL, *where, override)
        refused(document_training.main, cfg, message)
