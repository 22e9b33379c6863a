"""A step of MLC and of ToolRefiner on one batch, against the same models in HuggingFace PyTorch.

Keys ``training/<model>/<form>/<precision>``, milliseconds a step of AdamW: ``jax``, ``torch`` and
on a GPU ``torch_compiled``; products in TF32 (float32 without a GPU) or in bfloat16, weights in
float32. Before times are compared a step is, in float32: logits, and where the weights go.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmarks.gpu import readers
from experiments.benchmarks.gpu.problem import usual
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import Settings
from experiments.benchmarks.gpu.simulation import precisely
from experiments.benchmarks.gpu.timing import Build, compare, within
from experiments.benchmarks.gpu.torch_here import device, here, tf32, wait
from jaxret.methods.mlc import classification
from jaxret.methods.refiner import refinement
from jaxret.nn.classifier import classifier
from jaxret.nn.functional import Module
from jaxret.nn.layers import Compute
from jaxret.nn.refiner import refiner
from jaxret.training import loop
from jaxret.types import Params

RATE, DECAY = 1e-4, 0.01


class Model(NamedTuple):
    """A network with its weights and one batch."""

    network: Module
    params: Params
    batch: dict[str, Any]
    loss: loop.Loss


def measure(settings: Settings, record: Record) -> None:
    """Both models in both precisions."""
    bert = None
    if here():
        bert = readers.twin("bert", settings.training.shape, device())
    for name in ("mlc", "refiner"):
        builds: dict[str, Build] = {}
        for precision in ("tf32", "bfloat16"):
            half = precision == "bfloat16"
            built = partial(_ours, settings, name, bert, half)
            builds[f"jax/{precision}"] = precisely(usual(), built)
            if bert is not None:
                theirs = partial(_theirs, settings, name, bert, half)
                forms = {"torch": partial(theirs, False)}
                if device() == "cuda":
                    forms["torch_compiled"] = partial(theirs, True)
                for form, build in forms.items():
                    builds[f"{form}/{precision}"] = within(partial(tf32, not half), build)
        if bert is not None:
            found = record.attempt(f"training/{name}/check", partial(_check, settings, name, bert))
            if found is None:
                continue
        group, repeats = f"training/{name}", settings.repeats
        compare(record, group, builds, unit="ms a step", scale=1e3, repeats=repeats)


def model(settings: Settings, name: str, bert: Any, dtype: str) -> Model:
    """One of the two, on the weights of PyTorch's backbone, or on drawn ones."""
    sizes, rng = settings.training, np.random.default_rng(0)
    backbone = readers.backbone("bert", sizes.shape)
    compute = Compute(dtype="bfloat16" if dtype == "bfloat16" else "float32")
    words, batch = sizes.shape["vocab_size"], sizes.batch
    lengths = rng.integers(sizes.tokens // 2, sizes.tokens + 1, batch)
    texts = [rng.integers(1, words, length).tolist() for length in lengths]
    labels = rng.integers(0, sizes.classes, (batch, 2)).astype(np.int32)
    if name == "mlc":
        network = classifier(backbone, sizes.classes, pool="mean", compute=compute)
        recipe = classification(network, texts, labels, size=batch)
    else:
        network = refiner(backbone, sizes.width, compute=compute)
        tools = rng.standard_normal((sizes.classes, sizes.width)).astype(np.float32)
        tools /= np.linalg.norm(tools, axis=1, keepdims=True)
        draws = rng.random((batch, sizes.classes)).argsort(axis=1)
        candidates = draws[:, : sizes.candidates].astype(np.int32)
        recipe = refinement(network, texts, labels, candidates, tools, size=batch)
    params = network.init(jax.random.key(0))
    if bert is not None:
        params = {**params, "backbone": readers.weights_of(bert, backbone)}
    return Model(network, params, jax.tree.map(jnp.asarray, recipe.batches(0)), recipe.loss)


def _ours(settings: Settings, name: str, bert: Any, half: bool):
    made = model(settings, name, bert, "bfloat16" if half else "float32")
    step, state = _step(made)
    held = [state]

    def run():
        held[0], _ = jax.block_until_ready(step(held[0], made.batch))

    return run, 1


def _step(made: Model):
    optimizer = optax.adamw(RATE, weight_decay=DECAY)
    step = jax.jit(loop.train_step(made.loss, optimizer), donate_argnums=0)
    return step, loop.start(made.params, optimizer, jax.random.key(0))


def _theirs(settings: Settings, name: str, bert: Any, half: bool, compiled: bool):
    made = model(settings, name, bert, "float32")
    other = _twin(made, bert, half=half, compiled=compiled)

    def run():
        other.training()
        wait(next(other.bert.parameters()))

    return run, 1


def _twin(made: Model, bert: Any, *, half: bool, compiled: bool):
    import copy

    from experiments.benchmarks.torch_twin import Twin

    settings = {"rate": RATE, "decay": DECAY, "compiled": compiled, "bfloat16": half}
    return Twin(copy.deepcopy(bert), made.params, made.batch, **settings)


def _check(settings: Settings, name: str, bert: Any) -> dict[str, float]:
    """How far apart logits and a step end; refuses to compare what computes something else."""
    made = model(settings, name, bert, "float32")
    with jax.default_matmul_precision("float32"), tf32(False):
        other = _twin(made, bert, half=False, compiled=False)
        ids, mask = made.batch["ids"], made.batch["mask"]
        more = () if name == "mlc" else (made.batch["tools"], made.batch["candidates"] >= 0)
        logits = np.asarray(jax.jit(made.network.apply)(made.params, ids, mask, *more))
        step, state = _step(made)
        state, _ = step(state, made.batch)
        ours = readers.backbone("bert", settings.training.shape)
        return other.check(ours, logits, made.params["backbone"], state.params["backbone"])
