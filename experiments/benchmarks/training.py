"""How fast are training and scoring, against PyTorch, and ToolRefiner against a cross-encoder?

    uv run python -m experiments.benchmarks.training again=true

Times MLC and ToolRefiner on MiniLM, in float32 without dropout, against HuggingFace's BertModel
with the same weights and the same padded batch of DeskBank queries. A training step is forward,
backward and AdamW over all parameters (in PyTorch the fused one, its fastest here). Before anything
is timed, logits must agree to 1e-4, and weights after one step to a twentieth of its length. All
forms run in one process, in turn; XLA and PyTorch have one thread per core. Prints the machine,
then medians and quartiles: the time of each form, its ratio to the limit of its bytes or
operations, and which of the two limits it (`experiments.benchmarks.timing`; padding counts as
tokens, since both sides compute it). Keys of
results.json (one value per repeat; ratios are larger where jaxret is faster):

    <form>/milliseconds              per call: a batch of B queries, or one query where <form> is
                                     refiner/alone/jax or cross_encoder/<n>
    <form>/over_memory               that / what its bytes take, at machine/in_place: passes over an
                                     array of the size of the weights
    <form>/over_arithmetic           that / what its operations take, at machine/rate
    <model>/<training|inference>/jax_over_torch     time of PyTorch / time of jaxret, per batch
    refiner/<batch|alone>/over_cross_encoder        time of a cross-encoder of the same backbone
        for the N candidates of a query, as N sequences / time of ToolRefiner for a query, in a
        batch of B or alone; cross_encoder/<n> has batches of n tokens, and the fastest counts
    cross_encoder/tokens_a_pair      mean, after cutting

PyTorch is left out where torch is not installed.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from omegaconf import DictConfig

from experiments.benchmarks import machine, timing
from experiments.benchmarks.timing import Form, reading, step
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from jaxret.data import deskbank
from jaxret.data.templates import full
from jaxret.encoders import TextEncoder, encode, load_encoder
from jaxret.encoders.padding import batches
from jaxret.methods.mlc import classification
from jaxret.methods.refiner import refinement
from jaxret.nn.backbone import Backbone, shallow
from jaxret.nn.bert import BertConfig
from jaxret.nn.classifier import classifier
from jaxret.nn.refiner import refiner
from jaxret.training import loop
from jaxret.types import Params

PASSES = ("training", "inference")


class Model(NamedTuple):
    """A network with its weights, on one batch."""

    backbone: Backbone
    params: Params
    batch: dict[str, Array]
    logits: Callable[[Params, dict[str, Array]], Float[Array, "B N"]]
    loss: loop.Loss


@experiment("benchmark_training")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Time every form of every model."""
    with_torch = cfg.with_torch and machine.pin_torch()
    this = machine.measured()
    print(this, flush=True)
    encoder = load_encoder("minilm")
    backbone, weights = shallow(encoder.backbone, encoder.params, cfg.layers)
    bandwidth = machine.in_place(4 * _count(weights))
    models, pairs = _models(cfg, encoder, backbone, weights)
    forms: dict[str, Form] = {}
    for name, model in models.items():
        found = _forms(cfg, encoder, model, with_torch)
        forms |= {f"{name}/{form}": call for form, call in found.items()}
    forms |= _cross_encoder(cfg, backbone, weights, pairs)
    timed = timing.timed(forms, cfg.repeats, "milliseconds", bandwidth=bandwidth, rate=this.rate)
    return {
        "machine/bandwidth": np.array([this.bandwidth]),
        "machine/in_place": np.array([bandwidth]),
        "machine/rate": np.array([this.rate]),
        "cross_encoder/tokens_a_pair": np.array([np.mean([len(pair) for pair in pairs])]),
        **timed,
        **_ratios({name: timed[f"{name}/milliseconds"] for name in forms}, cfg.batch),
    }


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print one line per form, and one per ratio."""
    title = f"{cfg.batch} queries, {cfg.candidates} candidates each"
    timing.show(results, "milliseconds", title)


def _ratios(times: dict[str, np.ndarray], batch: int) -> dict[str, np.ndarray]:
    """Return the ratios, each [repeats]."""
    found = {}
    for row in (f"{model}/{kind}" for model in ("mlc", "refiner") for kind in PASSES):
        if f"{row}/torch" in times:
            found[f"{row}/jax_over_torch"] = times[f"{row}/torch"] / times[f"{row}/jax"]
    pairwise = [each for name, each in times.items() if name.startswith("cross_encoder/")]
    fastest = min(pairwise, key=np.median)
    found["refiner/batch/over_cross_encoder"] = fastest / (times["refiner/inference/jax"] / batch)
    found["refiner/alone/over_cross_encoder"] = fastest / times["refiner/alone/jax"]
    return found


def _models(
    cfg: DictConfig, encoder: TextEncoder, backbone: Backbone, weights: Params
) -> tuple[dict[str, Model], list[list[int]]]:
    """Return both models on the same queries, and the first query paired with its candidates."""
    dataset, key = deskbank.load(), jax.random.key(0)
    rows = np.linspace(0, len(dataset.queries) - 1, cfg.batch).astype(int)
    queries, labels = [dataset.queries[row] for row in rows], dataset.labels[rows]
    documents = [full(document) for document in dataset.documents]
    tools = encode(encoder, documents, kind="document", cache=None, progress=False)
    vectors = encode(encoder, queries, kind="query", cache=None, progress=False)
    candidates = np.argsort(-vectors @ tools.T, axis=1)[:, : cfg.candidates].astype(np.int32)
    tokens = encoder.tokens(queries, kind="query", limit=cfg.tokens)

    mlc = classifier(backbone, cfg.classes, pool="mean")
    network = refiner(backbone, tools.shape[1])
    fit_mlc = classification(mlc, tokens, labels, size=cfg.batch)
    fit_refiner = refinement(network, tokens, labels, candidates, tools, size=cfg.batch)

    def classify(params, batch):
        return mlc.apply(params, batch["ids"], batch["mask"])

    def refine(params, batch):
        present = batch["candidates"] >= 0
        return network.apply(params, batch["ids"], batch["mask"], batch["tools"], present)

    def model(network, logits, recipe):
        batch = jax.tree.map(jnp.asarray, recipe.batches(0))
        params = {**network.init(key), "backbone": weights}
        return Model(backbone, params, batch, logits, recipe.loss)

    first = [(queries[0], documents[tool]) for tool in candidates[0]]
    pairs = [pair.ids for pair in encoder.tokenizer.encode_batch(first)]
    cut = cfg.pair_tokens - 1  # leaves room for the closing token
    pairs = [pair if len(pair) <= cut else [*pair[:cut], pair[-1]] for pair in pairs]
    models = {"mlc": model(mlc, classify, fit_mlc), "refiner": model(network, refine, fit_refiner)}
    return models, pairs


def _forms(
    cfg: DictConfig, encoder: TextEncoder, model: Model, with_torch: bool
) -> dict[str, Form]:
    """Return the timed forms of one model."""
    training = timing.Training(model.loss, model.params, model.batch)
    logits = jax.jit(model.logits)
    alone = {name: x[:1] for name, x in model.batch.items()}
    config, (rows, length) = _bert(model.backbone), model.batch["ids"].shape
    if refines := "tools" in model.batch:
        length += model.batch["tools"].shape[1]
    inference = reading(config, [length] * rows)
    update = step(config, [length] * rows, _count(model.params))

    def infer(batch):
        return lambda: logits(model.params, batch).block_until_ready()

    forms = {
        "training/jax": Form(training, update),
        "inference/jax": Form(infer(model.batch), inference),
    }
    if refines:
        forms["alone/jax"] = Form(infer(alone), reading(config, [length]))
    if not with_torch:
        return forms
    from experiments.benchmarks.torch_twin import Twin, read_bert

    bert = read_bert(encoder.directory, cfg.layers)
    twin = Twin(bert, model.params, model.batch, compiled=cfg.compile)
    found = logits(model.params, model.batch)
    training()
    twin.check(model.backbone, found, model.params["backbone"], training.state.params["backbone"])
    return forms | {
        "training/torch": Form(twin.training, update),
        "inference/torch": Form(twin.inference, inference),
    }


def _cross_encoder(
    cfg: DictConfig, backbone: Backbone, weights: Params, pairs: list[list[int]]
) -> dict[str, Form]:
    """Return a form for each size of batch: all pairs of one query, sorted by length."""
    network = classifier(backbone, 1)
    params = {**network.init(jax.random.key(0)), "backbone": weights}
    compiled = jax.jit(network.apply)

    def form(size):
        inputs = [(jnp.asarray(ids), jnp.asarray(mask)) for _, ids, mask in batches(pairs, size)]
        lengths = [ids.shape[1] for ids, _ in inputs for _ in ids]
        return Form(
            lambda: jax.block_until_ready([compiled(params, *one) for one in inputs]),
            reading(_bert(backbone), lengths, batches=len(inputs)),
        )

    return {f"cross_encoder/{size}": form(size) for size in cfg.pair_batches}


def _bert(backbone: Backbone) -> BertConfig:
    assert isinstance(backbone.config, BertConfig)  # MiniLM is a BERT
    return backbone.config


def _count(params: Params) -> int:
    return sum(x.size for x in jax.tree.leaves(params))


if __name__ == "__main__":
    main.cli()
