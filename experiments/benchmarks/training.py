"""How fast are training and scoring, against PyTorch, and ToolRefiner against a cross-encoder?

    uv run python -m experiments.benchmarks.training again=true

MLC and ToolRefiner on MiniLM, in float32 without dropout, against HuggingFace's BertModel with the
same weights and the same padded batch of DeskBank queries. A training step is forward, backward and
AdamW over all parameters (PyTorch's fused one, its fastest here). Before anything is timed, logits
must agree to 1e-4, and so must the weights after one step. All forms run in one process, in turn,
so a ratio survives a noisy machine where a time does not. Keys of results.json (means over
repeats; ratios are larger where jaxret is faster):

    <model>/<training|inference>/jax_over_torch     time of PyTorch / time of jaxret, per batch
    refiner/<batch|alone>/over_cross_encoder        time of a cross-encoder of the same backbone
        for the N candidates of a query, as N sequences / time of ToolRefiner for a query, in a
        batch of B or alone
    cross_encoder/<n>/milliseconds_a_query          in batches of n tokens; the fastest is compared
    cross_encoder/tokens_a_pair                     mean, after cutting

PyTorch is left out where torch is not installed.
"""

import importlib.util
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from omegaconf import DictConfig

from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.data import deskbank
from jaxret.data.templates import full
from jaxret.encoders import TextEncoder, encode, load_encoder
from jaxret.encoders.padding import batches
from jaxret.methods.mlc import classification
from jaxret.methods.refiner_objective import refinement
from jaxret.nn.backbone import Backbone, shallow
from jaxret.nn.classifier import classifier
from jaxret.nn.refiner import refiner
from jaxret.training import loop
from jaxret.types import Params

RATE, DECAY = 1e-4, 0.01
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
    """Times everything."""
    return measure(cfg)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Prints training and inference, then a query by refiner and cross-encoder."""
    rows = [f"{model}/{kind}" for model in ("mlc", "refiner") for kind in PASSES]
    columns = ["jax_milliseconds", "torch_milliseconds", "jax_over_torch"]
    results_table(results, rows, columns, f"a batch of {cfg.batch} queries")
    rows = ["refiner/batch", "refiner/alone"]
    rows += [f"cross_encoder/{size}" for size in cfg.pair_batches]
    columns = ["milliseconds_a_query", "over_cross_encoder"]
    results_table(results, rows, columns, f"{cfg.candidates} candidates a query")


def measure(cfg: DictConfig) -> dict[str, np.ndarray]:
    """The results by name, each with one value a repeat."""
    encoder = load_encoder("minilm")
    backbone, weights = shallow(encoder.backbone, encoder.params, cfg.layers)
    models, pairs = _models(cfg, encoder, backbone, weights)
    forms: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        forms |= {f"{name}/{form}": call for form, call in _forms(cfg, encoder, model).items()}
    forms |= _cross_encoder(cfg, backbone, weights, pairs)
    times = _in_turn(forms, cfg.repeats, cfg.calls)

    results = {"cross_encoder/tokens_a_pair": np.array([np.mean([len(pair) for pair in pairs])])}
    for row in (f"{model}/{kind}" for model in models for kind in PASSES):
        results[f"{row}/jax_milliseconds"] = ours = times[f"{row}/jax"]
        if f"{row}/torch" in times:
            results[f"{row}/torch_milliseconds"] = theirs = times[f"{row}/torch"]
            results[f"{row}/jax_over_torch"] = theirs / ours
    pairwise = {name: times[name] for name in times if name.startswith("cross_encoder/")}
    refined = {
        "refiner/batch": times["refiner/inference/jax"] / cfg.batch,
        "refiner/alone": times["refiner/alone/jax"],
    }
    for name, each in (refined | pairwise).items():
        results[f"{name}/milliseconds_a_query"] = each
    for name, each in refined.items():
        results[f"{name}/over_cross_encoder"] = min(pairwise.values(), key=np.mean) / each
    return results


def _in_turn(
    forms: dict[str, Callable[[], object]], repeats: int, calls: int
) -> dict[str, Float[np.ndarray, " repeats"]]:
    """Milliseconds a call of each form; a first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for repeat in range(repeats + 1):
        for name, form in forms.items():
            begin = time.perf_counter()
            for _ in range(calls if repeat else 1):
                form()
            if repeat:
                times[name].append(1e3 * (time.perf_counter() - begin) / calls)
    return {name: np.array(values) for name, values in times.items()}


def _models(
    cfg: DictConfig, encoder: TextEncoder, backbone: Backbone, weights: Params
) -> tuple[dict[str, Model], list[list[int]]]:
    """Both models on the same queries, and the pairs of the first query with its candidates."""
    dataset, key = deskbank.load(), jax.random.key(0)
    rows = np.linspace(0, len(dataset.queries) - 1, cfg.batch).astype(int)
    queries, labels = [dataset.queries[row] for row in rows], dataset.labels[rows]
    documents = [full(document) for document in dataset.documents]
    tools = encode(encoder, documents, kind="document", cache=None, progress=False)
    asked = encode(encoder, queries, kind="query", cache=None, progress=False)
    candidates = np.argsort(-asked @ tools.T, axis=1)[:, : cfg.candidates].astype(np.int32)
    tokens = encoder.tokens(queries, kind="query", limit=cfg.tokens)

    mlc = classifier(backbone, cfg.classes, pool="mean")
    network = refiner(backbone, tools.shape[1])
    fit_mlc = classification(mlc, tokens, labels, size=cfg.batch)
    fit_refiner = refinement(network, tokens, labels, candidates, tools, size=cfg.batch)

    def classify(params, batch):
        return mlc.apply(params, batch["ids"], batch["mask"])

    def refine(params, batch):
        there = batch["candidates"] >= 0
        return network.apply(params, batch["ids"], batch["mask"], batch["tools"], there)

    def model(network, logits, recipe):
        batch = jax.tree.map(jnp.asarray, recipe.batches(0))
        params = {**network.init(key), "backbone": weights}
        return Model(backbone, params, batch, logits, recipe.loss)

    first = [(queries[0], documents[tool]) for tool in candidates[0]]
    pairs = [pair.ids for pair in encoder.tokenizer.encode_batch(first)]
    cut = cfg.pair_tokens - 1  # and the closing token
    pairs = [pair if len(pair) <= cut else [*pair[:cut], pair[-1]] for pair in pairs]
    models = {"mlc": model(mlc, classify, fit_mlc), "refiner": model(network, refine, fit_refiner)}
    return models, pairs


def _forms(cfg: DictConfig, encoder: TextEncoder, model: Model) -> dict[str, Callable[[], object]]:
    """What is timed of one model."""
    training, logits = Training(model), jax.jit(model.logits)
    forms = {
        "training/jax": training,
        "inference/jax": lambda: logits(model.params, model.batch).block_until_ready(),
        "alone/jax": lambda: logits(model.params, alone).block_until_ready(),
    }
    alone = {name: x[:1] for name, x in model.batch.items()}
    if not (cfg.with_torch and importlib.util.find_spec("torch")):
        return forms
    from experiments.benchmarks.torch_twin import Twin, read_bert

    twin = Twin(
        read_bert(encoder.directory, cfg.layers),
        model.params,
        model.batch,
        rate=RATE,
        decay=DECAY,
        compiled=cfg.compile,
    )
    found = logits(model.params, model.batch)
    training()
    twin.check(model.backbone, found, model.params["backbone"], training.state.params["backbone"])
    return forms | {"training/torch": twin.training, "inference/torch": twin.inference}


class Training:
    """Steps of `loop.train_step` on one batch, compiled, the state given away each time."""

    def __init__(self, model: Model):
        optimizer = optax.adamw(RATE, weight_decay=DECAY)
        self.step = jax.jit(loop.train_step(model.loss, optimizer), donate_argnums=0)
        self.state = loop.start(model.params, optimizer, jax.random.key(0))
        self.batch = model.batch

    def __call__(self) -> None:
        self.state, _ = jax.block_until_ready(self.step(self.state, self.batch))


def _cross_encoder(
    cfg: DictConfig, backbone: Backbone, weights: Params, pairs: list[list[int]]
) -> dict[str, Callable[[], object]]:
    """All pairs of one query, in batches of similar length, for each size of batch."""
    network = classifier(backbone, 1)
    params = {**network.init(jax.random.key(0)), "backbone": weights}
    compiled = jax.jit(network.apply)

    def form(size):
        work = [(jnp.asarray(ids), jnp.asarray(mask)) for _, ids, mask in batches(pairs, size)]
        return lambda: jax.block_until_ready([compiled(params, *one) for one in work])

    return {f"cross_encoder/{size}": form(size) for size in cfg.pair_batches}


if __name__ == "__main__":
    main.cli()
