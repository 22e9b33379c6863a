"""Every method in a few lines of Python: fitting, saving, loading, and the same ranking again."""

from dataclasses import FrozenInstanceError, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tiny_qwen3.network import write as write_tiny_qwen3
from jaxret import methods
from jaxret.evaluation.metrics import evaluate_ranking
from jaxret.methods import (
    common,
    cross_encoder,
    encoder_tuning,
    files,
    mlc,
    nudge,
    refiner,
    refit,
    tool2vec,
    tool_rank,
)
from jaxret.methods.encoder_tuning import DPR, Query2Desc, Query2Query, ToolEmbed
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Reranker, refine, search
from jaxret.runtime.checkpoint import Interrupted
from jaxret.runtime.tracking import NoopTracker
from jaxret.task import Task
from jaxret.training.config import TrainingConfig
from jaxret.training.store import Hooks
from jaxret.training.trainable import Lora

QUIET = Hooks(progress=False)
FEW = {"epochs": 1, "validate": 0.5, "size": 12, "learning_rate": 3e-3}
LORA = Lora(rank=2, alpha=4, dropout=0.0, targets=".*blocks/.*/kernel")
CONFIGS = {
    "mlc": mlc.Config(**FEW),
    "query2query": Query2Query(**FEW, window=20),
    "query2desc": Query2Desc(**FEW),
    "dpr": DPR(**FEW),
    "tool_embed": ToolEmbed(**FEW, lora=LORA),
    "refiner": refiner.Config(**FEW, layers=1, candidates=8, prior=2.0),
    "cross_encoder": cross_encoder.Config(**FEW, layers=1, candidates=8, limit=12),
}
FITS = {
    "mlc": mlc.fit,
    "refiner": refiner.fit,
    "cross_encoder": cross_encoder.fit,
    **{name: partial(encoder_tuning.fit, objective=name) for name in encoder_tuning.CONFIGS},
}
QUICK = ("refiner", "query2desc")  # a reranker and a retriever
METHODS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONFIGS]


def options(method, train):
    """Return the first stage that DPR needs; BM25 ignores words of one letter."""
    return {"first": dense("documents", train.theta, train.encoder)} if method == "dpr" else {}


def ranked(model, task, validation):
    """Rank with a retriever, or with a reranker of Tool2Vec's candidates."""
    texts = list(validation.texts)
    if not isinstance(model, Reranker):
        return search(model, texts, 8, progress=False)
    first = tool2vec.fit(task, tool2vec.Config())
    return refine(model, texts, search(first, texts, 8, progress=False), progress=False)


def recall(ranking, task, k):
    return np.mean(evaluate_ranking(ranking.items, task.labels, (k,))[f"recall@{k}"])


def assert_the_same(one, other):
    np.testing.assert_array_equal(one.items, other.items)
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def trained_refiner(parts):
    train, validation = parts
    return refiner.fit(train, CONFIGS["refiner"], validation=validation, hooks=QUIET)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_ranks_the_same_after_saving_and_loading(method, parts, tmp_path, request):
    train, validation = parts
    if method == "refiner":
        fitted = request.getfixturevalue("trained_refiner")
    else:
        given = {"validation": validation, "hooks": QUIET} | options(method, train)
        fitted = FITS[method](train, CONFIGS[method], **given)
    methods.save(fitted, tmp_path)
    again = methods.load(tmp_path, train.encoder)
    assert (again.name, again.config) == (fitted.name, CONFIGS[method]) == (method, again.config)
    assert_the_same(ranked(again, train, validation), ranked(fitted, train, validation))
    turned = train.documents[::-1]
    if method in ("query2desc", "dpr", "tool_embed"):
        rows = encoder_tuning.with_documents(again, turned).params
        np.testing.assert_allclose(rows, fitted.params[::-1], atol=1e-6)
    if method == "cross_encoder":
        ids, mask = cross_encoder.with_documents(again, train.encoder, turned).params[1]
        np.testing.assert_array_equal(ids, fitted.params[1][0][::-1])
        np.testing.assert_array_equal(mask, fitted.params[1][1][::-1])


def test_only_models_that_read_documents_take_others(parts, trained_refiner):
    train, _ = parts
    with pytest.raises(ValueError, match="'means' are not documents"):
        encoder_tuning.with_documents(dense("means", train.theta, train.encoder), ["a"])
    with pytest.raises(ValueError, match="'refiner' is not a trained cross-encoder"):
        cross_encoder.with_documents(trained_refiner, train.encoder, ["a"])


@pytest.mark.parametrize("objective", ["query2desc", "dpr", "tool_embed"])
def test_documents_are_cut_to_a_limit_of_their_own(objective, parts, untrained):
    train, validation = parts
    longest = max(map(len, train.encoder.tokens(train.documents, kind="document")))
    for document_limit, expected in ((None, longest), (3, 3)):
        config = replace(CONFIGS[objective], limit=4, document_limit=document_limit, size=48)
        FITS[objective](train, config, validation=validation, **options(objective, train))
        lengths = untrained["objective"]().batches(0)["mask"].sum(axis=-1)
        assert (lengths[:, 0].max(), lengths[:, 1:].max()) == (4, expected)


@pytest.mark.parametrize("objective", encoder_tuning.CONFIGS)
def test_each_objective_trains_on_examples_of_its_own(objective, parts, untrained):
    train, validation = parts
    config, more = CONFIGS[objective], options(objective, train)
    FITS[objective](train, config, validation=validation, **more)
    batch = untrained["objective"]().batches(0)
    tokens, tools_of = train.encoder.tokens, {}
    for text, labels in zip(tokens(train.texts, kind="query"), train.labels, strict=True):
        tools_of.setdefault(tuple(text), set()).update(labels[labels >= 0].tolist())
    tool_of = {tuple(x): {i} for i, x in enumerate(tokens(train.documents, kind="document"))}
    rows = [
        [tuple(text[there].tolist()) for text, there in zip(ids, mask, strict=True)]
        for ids, mask in zip(batch["ids"], batch["mask"], strict=True)
    ]
    others = tools_of if objective == "query2query" else tool_of
    for query, right, *wrong in rows:
        assert tools_of[query] & others[right]
        assert not any(tools_of[query] & others[text] for text in wrong)
    assert {len(row) for row in rows} == {7 if objective == "tool_embed" else 3}
    if objective == "dpr":
        texts = map(tuple, tokens(train.texts, kind="query"))
        vectors = dict(zip(texts, train.queries, strict=True))
        for query, _, wrong in rows:
            best = np.argsort(-(train.theta @ vectors[query]))
            assert tool_of[wrong] == {next(i for i in best if i not in tools_of[query])}


@pytest.mark.slow
def test_a_trained_classifier_ranks_its_training_queries_right(parts):
    train, _ = parts
    config = mlc.Config(epochs=100, validate=25, size=12, learning_rate=3e-3, head="random")
    found = ranked(mlc.fit(train, config, validation=train, hooks=QUIET), train, train)
    assert recall(found, train, 2) > 0.8  # 0.25 by chance


@pytest.mark.slow
def test_tool_rank_is_fitted_saved_and_loaded_and_ranks_the_same(parts, tmp_path):
    train, validation = parts
    write_tiny_qwen3(tmp_path / "qwen3", train.texts, vocabulary=400, width=16, layers=1)
    few = FEW | {"limit": 24, "document_limit": 24, "candidates": 4, "redraws": 1}
    config = tool_rank.Config(path=str(tmp_path / "qwen3"), lora=LORA, **few)
    fitted = tool_rank.fit(train, config, validation=validation, hooks=QUIET)
    methods.save(fitted, tmp_path / "saved")
    again = methods.load(tmp_path / "saved")
    assert again.config == config
    assert_the_same(ranked(again, train, validation), ranked(fitted, train, validation))


@pytest.mark.parametrize("with_encoder", [True, False])
@pytest.mark.parametrize("method", [tool2vec, nudge])
def test_rows_are_saved_and_loaded_for_texts_and_for_vectors(method, with_encoder, parts, tmp_path):
    train, validation = parts
    if not with_encoder:
        arrays = (Task.from_arrays(one.theta, one.queries, one.labels) for one in parts)
        train, validation = arrays
    more = {"validation": validation} if method is nudge else {}
    fitted = method.fit(train, method.Config(), **more)
    methods.save(fitted, tmp_path)
    again = methods.load(tmp_path, train.encoder)
    queries = list(validation.texts) if with_encoder else validation.queries
    one, other = (search(model, queries, 8, progress=False) for model in (fitted, again))
    np.testing.assert_array_equal(one.items, other.items)
    np.testing.assert_array_equal(one.scores, other.scores)


def test_refit_takes_the_number_of_steps_that_validates_best(parts):
    """With a judge that knows the right tools, more steps find more of these tools."""
    train, validation = parts
    documents = dense("documents", train.theta, train.encoder)
    first = search(documents, list(validation.texts), 8, progress=False)
    right = (first.items[:, :, None] == validation.labels[:, None, :]).any(axis=2)
    judged = first._replace(scores=np.where(right, 20.0, 0.0).astype(np.float32))
    config = refit.Config(steps=(0, 300))
    second = refit.fit(train, config, validation=validation, judged=judged)
    assert second.steps == 300
    found = second(list(validation.texts), judged, progress=False)
    assert recall(found, validation, 3) > recall(first, validation, 3)


def test_the_first_stages_score_is_added_with_the_weight_that_validates_best(
    parts, trained_refiner, tmp_path
):
    """A first stage that knows the answer receives the largest weight."""
    train, validation = parts
    knowing = refiner.FirstStage(oracle, "oracle")
    mixed = refiner.with_first(trained_refiner, (0.0, 100.0), validation=validation, first=knowing)
    assert mixed.prior == 100.0
    methods.save(mixed, tmp_path)
    assert methods.load(tmp_path, train.encoder).prior == 100.0


def oracle(task, k):
    wrong = [[i not in row for i in range(8)] for row in task.labels]
    items = np.argsort(wrong, axis=1, kind="stable")
    scores = -np.arange(8.0, dtype=np.float32) * np.ones((len(items), 1), np.float32)
    return tool2vec.Ranking(items=items[:, :k].astype(np.int32), scores=scores[:, :k])


@pytest.mark.slow
def test_a_model_is_trained_once_for_its_settings_and_its_data(parts, tmp_path):
    train, validation = parts

    class Counting(NoopTracker):
        validations = 0

        def log(self, metrics, step):
            self.validations += 1

    tracker, config = Counting(), CONFIGS["mlc"]

    def fit(config, train=train, seed=0):
        hooks, before = Hooks(tracker=tracker, progress=False), tracker.validations
        given = {"validation": validation, "folder": tmp_path, "hooks": hooks, "seed": seed}
        return mlc.fit(train, config, **given), tracker.validations - before

    first, trained = fit(config)
    again, found = fit(mlc.Config(**FEW))
    assert (trained, found) == (2, 0)
    jax.tree.map(np.testing.assert_array_equal, first.params, again.params)
    texts = train.select(np.arange(len(train))[::-1])
    others = [fit(replace(config, limit=20)), fit(config, seed=1), fit(config, texts)]
    assert [count for _, count in others] == [2, 2, 2]
    assert len(list(tmp_path.glob("mlc-letters-*"))) == 4


@pytest.mark.slow
def test_training_that_is_stopped_resumes_to_the_same_bits(parts, tmp_path):
    train, validation = parts
    config = CONFIGS["mlc"]
    whole = mlc.fit(train, config, validation=validation, hooks=QUIET)
    options = {"validation": validation, "folder": tmp_path}
    stopping = Hooks(interrupted=lambda: True, progress=False)
    with pytest.raises(Interrupted):
        mlc.fit(train, config, **options, hooks=stopping)
    resumed = mlc.fit(train, config, **options, hooks=QUIET)
    jax.tree.map(np.testing.assert_array_equal, whole.params, resumed.params)


@pytest.mark.parametrize("method", CONFIGS)
def test_a_task_of_vectors_alone_is_refused_where_words_are_read(method, parts):
    train, validation = (Task.from_arrays(one.theta, one.queries, one.labels) for one in parts)
    needed = "texts of the queries, .*an encoder with weights"
    message = f"{method} needs {needed}; 'arrays' lacks {needed}: make the task with load_task"
    with pytest.raises(ValueError, match=message) as caught:
        FITS[method](train, CONFIGS[method], validation=validation)
    assert "\n" not in str(caught.value)


def test_a_missing_requirement_of_a_method_is_named(parts, tmp_path):
    train, validation = parts
    blind = replace(train, encoder=lambda texts: np.ones((len(texts), 2)))
    for method in ("mlc", "tool_embed"):
        with pytest.raises(ValueError, match=r"lacks an encoder with .*<lambda>' is a callable"):
            FITS[method](blind, CONFIGS[method], validation=validation)
    bare = Task.from_arrays(train.theta, train.queries, train.labels, texts=train.texts)
    with pytest.raises(ValueError, match=r"lacks documents of the tools: .*from_arrays\(\.\., te"):
        tool_rank.fit(bare, tool_rank.Config(), validation=validation)
    methods.save(tool2vec.fit(train, tool2vec.Config()), tmp_path)
    assert methods.load(tmp_path, blind.encoder).encoder is blind.encoder
    about = (tmp_path / files.MODEL).read_text().replace("tool2vec", "mlc")
    (tmp_path / files.MODEL).write_text(about)
    with pytest.raises(ValueError, match="'mlc', which needs the encoder that it was trained from"):
        methods.load(tmp_path, blind.encoder)


def test_texts_of_a_task_of_vectors_are_part_of_its_fingerprint(parts):
    arrays = (parts[0].theta, parts[0].queries, parts[0].labels)
    texts, others = list(parts[0].texts), ["a word", *parts[0].texts[1:]]
    tasks = [Task.from_arrays(*arrays, texts=one) for one in (None, texts, others)]
    assert len({common.fingerprint(task) for task in tasks}) == 3


@pytest.mark.parametrize(
    ("objective", "given", "message"),
    [
        ("best", {}, "objective must be one of query2query, query2desc, dpr, tool_embed"),
        ("dpr", {"config": ToolEmbed()}, r"dpr has the settings DPR\(\.\.\)"),
        ("tool_embed", {"first": "any"}, "tool_embed takes no first stage"),
    ],
)
def test_settings_of_another_objective_are_refused(parts, objective, given, message):
    train, validation = parts
    with pytest.raises(ValueError, match=message):
        encoder_tuning.fit(train, objective=objective, validation=validation, **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mlc.Config(epochs=0), "epochs must be > 0, got 0"),
        (lambda: mlc.Config(size=0), "size must be >= 1, got 0"),
        (lambda: mlc.Config(warmup=-1), "warmup must be >= 0, got -1"),
        (lambda: mlc.Config(clip=0), "clip must be None or > 0, got 0"),
        (lambda: mlc.Config(dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
        (lambda: mlc.Config(dtype="float16"), "dtype must be float32 or bfloat16, got float16"),
        (lambda: mlc.Config(schedule="flat"), "schedule must be one of warmup_cosine, reference"),
        (lambda: mlc.Config(head="best"), "head must be one of tool2vec, random, got 'best'"),
        (lambda: mlc.Config(pool="max"), "pool must be one of mean, context, got 'max'"),
        (lambda: mlc.Config(objective="mse"), "objective must be one of softmax_ce, bce"),
        (lambda: refiner.Config(tools="names"), "tools must be one of tool2vec, documents"),
        (lambda: refiner.Config(places="best"), "places must be one of shared, rank, reference"),
        (lambda: refiner.Config(projection="id"), "projection must be one of identity, normal"),
        (lambda: refiner.Config(candidates=0), "candidates must be >= 1, got 0"),
        (lambda: cross_encoder.Config(candidates=1), "candidates must be >= 2, got 1"),
        (lambda: cross_encoder.Config(validated=0), "validated must be >= 1, got 0"),
        (lambda: Query2Desc(negatives=0), "negatives must be >= 1, since there are no others"),
        (lambda: ToolEmbed(negatives=0, in_batch=False), "negatives must be >= 1, .*others, got 0"),
        (lambda: DPR(negatives=-1), "negatives must be >= 0, got -1"),
        (lambda: Query2Query(window=0), "window must be >= 1, got 0"),
        (lambda: Query2Query(per_anchor=0), "per_anchor must be None or >= 1, got 0"),
        (lambda: Query2Desc(margin=-1), "margin must be >= 0, got -1"),
        (lambda: DPR(temperature=0), "temperature must be > 0, got 0"),
        (lambda: ToolEmbed(drop_words=2), r"drop_words must be in 0 \.\. 1, got 2"),
        (lambda: tool_rank.Config(hard="worst"), "hard must be one of candidates, random"),
        (lambda: tool_rank.Config(place="end"), "place must be one of query, line"),
        (lambda: tool_rank.Config(redraws=0), "redraws must be >= 1, got 0"),
        (lambda: Lora(rank=0), "lora.rank must be >= 1, got 0"),
        (lambda: refit.Config(steps=()), "steps must be one or more numbers >= 0"),
        (lambda: refit.Config(tau=0), "tau must be > 0, got 0"),
        (lambda: nudge.Config(form="x"), "form must be one of m, n, got 'x'"),
        (lambda: tool2vec.Config(mix=2), r"mix must be in \[0, 1\], got 2"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_config_cannot_be_changed():
    config: TrainingConfig = mlc.Config()
    with pytest.raises(FrozenInstanceError):
        config.epochs = 3  # ty: ignore


def test_objects_that_are_no_models_are_neither_saved_nor_loaded(parts, tmp_path):
    train, _ = parts
    with pytest.raises(FileNotFoundError, match=r"it has no model\.json"):
        methods.load(tmp_path / "none", train.encoder)
    with pytest.raises(ValueError, match="'mine' has no config of a method: save what a fit"):
        methods.save(dense("mine", train.theta, train.encoder), tmp_path)
    methods.save(tool2vec.fit(train, tool2vec.Config()), tmp_path)
    model = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(model.replace('"tool2vec"', '"tool3vec"', 1))
    with pytest.raises(
        ValueError, match="holds a model of 'tool3vec', which is not a method of jaxret"
    ):
        methods.load(tmp_path, train.encoder)


def test_arrays_of_every_type_and_shape_of_tree_are_written_and_nested_again(parts, tmp_path):
    params = (
        {"a": {"0": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3).T, "c": jnp.array([True])}},
        (np.arange(3, dtype=np.int32), np.float32([2.0])),
    )
    model = tool2vec.fit(parts[0], tool2vec.Config())._replace(params=params)
    methods.save(model, tmp_path)
    stored = files.load_safetensors(tmp_path / "params.safetensors")
    found = files.nested(stored)["params"]
    assert jax.tree.structure(found) == jax.tree.structure(params)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(found), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
