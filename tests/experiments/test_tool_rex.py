"""Tool-Embed and Tool-Rank end to end: a tiny Qwen3 is written, trained and evaluated."""

import numpy as np
import pytest

from experiments import evaluate_retrieval
from experiments.tiny_qwen3 import __main__ as tiny_qwen3
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import rows_of, step_of

LORA = "{rank: 2, alpha: 4, dropout: 0.1, targets: '.*blocks/.*/kernel'}"
EMBED = ("epochs=2", "validate=1", "learning_rate=1e-3", "limit=24")
RANK = ("epochs=3", "validate=0.5", "learning_rate=1e-2", "limit=24", "document_limit=24")
RANK += ("candidates=7", "validated=4", "negatives=3", "redraws=1", f"lora={LORA}")
SMALL = ["recipe=[tool_embed,tool_rank]", "document=terse"]
SMALL += [f"recipes.tool_embed.{setting}" for setting in EMBED]
SMALL += [f"recipes.tool_rank.{setting}" for setting in RANK]


def configure(world, directory, *more):
    given = [
        *SMALL,
        *in_world(world, directory),
        "encoder=qwen3_tiny",
        f"encoder.path={world / 'qwen3'}",
        f"recipes.tool_rank.path={world / 'qwen3'}",
        f"models={world / 'rex'}",
        "methods=[documents,tool_embed,tool_rank]",
    ]
    return config_of("train_retriever", *given, *more)


@pytest.fixture(scope="module")
def written(world):
    """Add a tiny Qwen3 to the folder."""
    where = ["dataset=jsonl", f"dataset.path={world / 'data'}", f"path={world / 'qwen3'}"]
    small = ["vocabulary=512", "width=16", "layers=1"]
    tiny_qwen3.main(config_of("tiny_qwen3", *where, f"directory={world}", *small))
    return world


def losses(world, name):
    (file,) = (world / "rex").glob(f"{name}-jsonl-*/metrics.jsonl")
    return [line[f"{name}-0/loss"] for line in rows_of(file)]


@pytest.mark.slow
def test_a_tiny_qwen3_serves_as_encoder_and_as_reranker(written, tmp_path):
    results = evaluate_retrieval.main(configure(written, tmp_path))
    assert {name.split("/")[0] for name in results} == {"documents", "tool_embed", "tool_rank"}
    for name in ("tool_embed", "tool_rank"):  # all parameters; a LoRA adapter
        found = losses(written, name)
        assert found[-1] < 0.97 * found[0], name
    (folder,) = (written / "rex").glob("tool_rank-*")
    size = sum(path.stat().st_size for path in (folder / "best").rglob("*") if path.is_file())
    assert size < 0.5 * (written / "qwen3" / "model.safetensors").stat().st_size  # adapter only
    first, second = (step_of(tmp_path, f"{x}-0-test") for x in ("tool_embed", "tool_rank"))
    np.testing.assert_array_equal(np.sort(first["items"][:, :7]), np.sort(second["items"]))
    assert (second["scores"] <= 0).all()  # log probabilities


def test_wrong_settings_are_refused_by_name(written, tmp_path):
    for override, message in {
        "recipes.tool_rank.weights=bert": "recipes.tool_rank: weights must be one of",
        "recipes.tool_rank.candidates=5": "recipes.tool_rank.candidates must be >= 7",
        "recipes.tool_rank.first=bm26": "recipes.tool_rank.first must be one of bm25, .*tool_embed",
        f"recipes.tool_rank.lora={LORA.replace('0.1', '1.0')}": "lora.dropout must",
        "encoder.width=17": r"width must be null or in 1 .. 16, got 17",
    }.items():
        cfg = configure(written, tmp_path, override, "methods=[tool_rank]")
        with pytest.raises(ValueError, match=message):
            evaluate_retrieval.main(cfg)
        began = (tmp_path / "settings.json").exists()
        assert began == override.startswith("encoder.")  # only the files say how wide an encoder is


@pytest.mark.parametrize("name", ["tool_embed", "tool_rank"])
def test_the_papers_recipes_have_the_same_settings(name):
    def recipe(which):
        return config_of("train_retriever", f"recipe=[{which}]").recipes[name]

    small, paper = recipe(name), recipe(f"{name}_paper")
    assert set(small) == set(paper)  # one function reads both
    if name == "tool_embed":
        assert (paper.negatives, paper.lora, paper.epochs) == (5, None, 1)
    else:
        lora = {"rank": 32, "alpha": 64, "dropout": 0.1}
        assert {key: paper.lora[key] for key in lora} == lora
        assert (list(paper.answers), paper.epochs) == (["true", "false"], 1)
