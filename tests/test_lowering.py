"""The hot programs lower for GPU and TPU; no program is run, so no such device is needed."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.evaluation.evaluate import _rank_by_rows
from jaxret.learners import presets
from jaxret.methods.mlc import classification
from jaxret.methods.refiner import refinement
from jaxret.nn import qwen3
from jaxret.nn.classifier import classifier
from jaxret.nn.layers import Compute, last_pool
from jaxret.nn.placement import placed
from jaxret.nn.refiner import refiner
from jaxret.nn.token_classifier import token_classifier
from jaxret.rules import projections
from jaxret.simulation.blocked.simulate import simulate_blocked, simulate_on_mesh
from jaxret.simulation.scan import scan_rounds
from jaxret.training import loop
from jaxret.types import State, Stream
from tests.meshes import abstract_mesh
from tests.nn.published import QWEN3
from tests.tiny import BACKBONES, DECODER

ACCELERATORS = ("cuda", "tpu")


def shallow(backbone):
    """Keep one layer, since all are alike."""
    return backbone._replace(config=replace(backbone.config, layers=1))


ITEMS, WIDTH, QUERIES = 64, 8, 16
RULE = presets.orag(tau=0.1, eta=0.01, k=3, projection=projections.sphere())


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


STATE = State(
    theta=shape(ITEMS, WIDTH), available=shape(ITEMS, dtype=bool), t=shape(dtype=jnp.int32)
)
ENVIRONMENT = Environment(arrives=shape(ITEMS, dtype=jnp.int32), noise_rate=shape())
STREAM = Stream(
    queries=shape(QUERIES, WIDTH),
    labels=shape(QUERIES, 2, dtype=jnp.int32),
    order=shape(40, dtype=jnp.int32),
)
MESH = abstract_mesh(run=1, item=8)
KEY = jax.eval_shape(lambda: jax.random.key(0))


def simulated(how):
    """Return the program of a simulation with a reranker, and the shapes of its inputs."""

    def run(state, environment, stream, key):
        environment = environment._replace(reranker=simulated_reranker(accuracy=0.8))
        return how(RULE, state, environment, stream, key)

    return run, (STATE, ENVIRONMENT, STREAM, KEY)


def evaluated():
    arrays = shape(ITEMS, WIDTH), STREAM.queries, STREAM.labels, shape(ITEMS, dtype=bool)
    return partial(_rank_by_rows, k=10), arrays


def trained(network, loss, batch):
    """Return a training step, as `jaxret.training.loop` makes it, and the shapes of its inputs."""
    optimizer = optax.adamw(1e-4)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), network.shapes())
    state = jax.eval_shape(lambda: loop.start(params, optimizer, jax.random.key(0)))
    return loop.train_step(loss, optimizer, accumulate=2), (state, batch)


COMPUTE = Compute(dtype="bfloat16", remat=True, dropout=0.1)
TEXT = {"ids": shape(8, 16, dtype=jnp.int32), "mask": shape(8, 16, dtype=bool)}


def trained_mlc(backbone):
    network = classifier(shallow(backbone), ITEMS, compute=COMPUTE)
    loss = classification(network, [[2]], np.zeros((1, 1), int), size=1).loss
    return trained(network, loss, TEXT | {"labels": shape(8, 2, dtype=jnp.int32)})


def trained_refiner(backbone):
    network = refiner(shallow(backbone), WIDTH, compute=COMPUTE)
    none = np.zeros((1, 1), int)
    loss = refinement(network, [[2]], none, none, np.zeros((1, WIDTH)), size=1).loss
    batch = {
        "labels": shape(8, 2, dtype=jnp.int32),
        "candidates": shape(8, 6, dtype=jnp.int32),
        "prior": shape(8, 6),
        "tools": shape(8, 6, WIDTH),
    }
    return trained(network, loss, TEXT | batch)


def trained_answers():
    network = token_classifier(shallow(DECODER), [3, 4], compute=COMPUTE)

    def loss(params, batch, key):
        logits = network.apply(params, batch["ids"], batch["mask"], key=key)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["right"]).mean(), {}

    return trained(network, loss, TEXT | {"right": shape(8, dtype=jnp.int32)})


def split_qwen3(size):
    """Return a program that encodes texts with a block of a Qwen3 over eight devices."""
    config = replace(QWEN3[size], layers=1)
    network, mesh = qwen3.Qwen3.functions(config, COMPUTE), abstract_mesh(model=8)
    rules = qwen3.tensor_parallel(config, mesh)
    params = placed(network.shapes(), dtype="bfloat16", mesh=mesh, rules=rules)

    def run(params, ids, mask):
        return last_pool(network.apply(params, ids, mask), mask)

    return run, (params, TEXT["ids"], TEXT["mask"])


PROGRAMS = {  # name -> function that returns a program and its input shapes
    "scan_rounds": partial(simulated, scan_rounds),
    "simulate_blocked": partial(simulated, simulate_blocked),
    "simulate_on_mesh": partial(simulated, partial(simulate_on_mesh, mesh=MESH)),
    "evaluate": evaluated,
    "train_step, MLC on mpnet": partial(trained_mlc, BACKBONES["mpnet"]),
    "train_step, MLC on deberta": partial(trained_mlc, BACKBONES["deberta"]),
    "train_step, refiner on bert": partial(trained_refiner, BACKBONES["bert"]),
    "train_step, answers of qwen3": trained_answers,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_lower_for_accelerators(program):
    run, shapes = PROGRAMS[program]()
    jax.jit(run).trace(*shapes).lower(lowering_platforms=ACCELERATORS)


@pytest.mark.parametrize("size", ["0.6B", "8B"])
def test_a_qwen3_lowers_as_eight_parts_with_none_of_its_matrices_whole(size):
    run, shapes = split_qwen3(size)
    traced = jax.jit(run).trace(*shapes)
    split = [path for path, leaf in jax.tree.leaves_with_path(shapes[0]) if leaf.ndim == 2]
    assert len(split) == 1 + 7
    text = traced.lower(lowering_platforms=ACCELERATORS).as_text()
    assert "mhlo.num_partitions = 8" in text
    signature = next(line for line in text.splitlines() if "func.func public @main" in line)
    assert signature.count('{"model"}') == len(split)


def test_an_operation_without_an_accelerator_form_is_noticed():
    schur = jax.jit(jax.lax.linalg.schur).trace(shape(2, 2))
    with pytest.raises(NotImplementedError, match=r"schur.*not found for platform"):
        schur.lower(lowering_platforms=ACCELERATORS)
