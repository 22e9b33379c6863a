"""The training loop of every network.

    state, info = train_step(loss, optimizer)(state, batch)   pure; compiled once per batch shape
    fit(state, step, batches, ...)                            chunks of steps, with validation

`TrainState` holds everything that later steps depend on: parameters, the optimiser's state, the
random key and the position in the data. A run that is interrupted and resumed therefore ends with
the same bits.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from jaxret.runtime import distributed, sharding
from jaxret.runtime.progress import Progress
from jaxret.runtime.tracking import NoopTracker, Tracker
from jaxret.runtime.validate import require
from jaxret.training.batches import Batches
from jaxret.types import Params, PRNGKey

#: (params, batch, key) -> (mean loss, further metrics). Where a part of the network is frozen,
#: params are the pair (trained, frozen).
Loss: TypeAlias = Callable[[Params, Any, PRNGKey], tuple[Float[Array, ""], dict[str, Array]]]
T = TypeVar("T")


class Objective(NamedTuple):
    """A loss with its batches."""

    loss: Loss
    batches: Batches
    frozen: Params | None = None  # parameters that the loss needs and that are not trained


class TrainState(NamedTuple):
    """Everything that the next step depends on."""

    params: Params
    opt_state: optax.OptState
    key: PRNGKey  # step t draws from fold_in(key, t)
    step: Int[Array, ""]  # updates done
    position: Int[Array, ""]  # examples drawn


def start(params: Params, optimizer: optax.GradientTransformation, key: PRNGKey) -> TrainState:
    """Make the state before the first step.

    Args:
      params: the initial parameters.
      optimizer: from optax.
      key: key of all random draws in training.

    Returns:
      a state whose arrays are copies, since `fit` donates them.
    """
    state = TrainState(
        params=params,
        opt_state=optimizer.init(params),
        key=key,
        step=jnp.zeros((), jnp.int32),
        position=jnp.zeros((), jnp.int32),
    )
    return jax.tree.map(jnp.array, state)


def train_step(
    loss: Loss, optimizer: optax.GradientTransformation, *, accumulate: int = 1
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Build the function of one update, ``(state, batch, frozen=None) -> (state, info)``.

    Args:
      loss: the mean over the examples of a batch.
      optimizer: from optax.
      accumulate: parts that a batch is cut into, whose gradients are averaged, so that a batch may
        be larger than memory. It must divide the size of the batch.

    Returns:
      a pure function. ``info`` has ``loss``, ``gradient_norm`` and the metrics of the loss.
      ``frozen`` are the parameters without a gradient, passed as an argument so that the compiled
      program does not hold them as constants.

    Raises:
      ValueError: if ``accumulate`` is below 1, or, in the update, does not divide the batch.
    """
    require("accumulate", accumulate, "at least 1", lambda parts: parts >= 1)

    def joint(params, frozen, batch, key):
        return loss(params if frozen is None else (params, frozen), batch, key)

    gradient = jax.value_and_grad(joint, has_aux=True)

    @partial(jax.jit, inline=True)  # traced once for the shapes and the loop over parts
    def whole(params, frozen, batch, key):
        (value, info), slope = gradient(params, frozen, batch, key)
        return slope, {"loss": value, **info}

    def in_parts(params, frozen, batch, key):
        def part(i):
            return jax.tree.map(lambda x: _part(x, i, accumulate), batch)

        def add(total, i):
            new = whole(params, frozen, part(i), jax.random.fold_in(key, i))
            return jax.tree.map(jnp.add, total, new), None

        like = jax.eval_shape(whole, params, frozen, part(0), key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        total, _ = jax.lax.scan(add, zeros, jnp.arange(accumulate))
        return jax.tree.map(lambda x: x / accumulate, total)

    def step(state: TrainState, batch: Any, frozen: Params | None = None):
        key = jax.random.fold_in(state.key, state.step)
        slope, info = (whole if accumulate == 1 else in_parts)(state.params, frozen, batch, key)
        updates, opt_state = optimizer.update(slope, state.opt_state, state.params)
        new = TrainState(
            params=optax.apply_updates(state.params, updates),
            opt_state=opt_state,
            key=state.key,
            step=state.step + 1,
            position=state.position + len(jax.tree.leaves(batch)[0]),
        )
        return new, {"gradient_norm": optax.tree.norm(slope), **info}

    return step


class Fit(NamedTuple):
    """The state of a run, and the best parameters so far."""

    state: TrainState
    best: Params  # parameters of the highest validation score
    score: Float[np.ndarray, ""]
    best_step: Int[np.ndarray, ""]


def fit(
    state: TrainState,
    step: Callable[..., tuple[TrainState, dict[str, Array]]],
    batches: Batches,
    *,
    steps: int,
    validate: Callable[[Params], Mapping[str, float]],
    every: int,
    frozen: Params | None = None,
    resumable: Callable[..., Any] | None = None,
    tracker: Tracker | None = None,
    mesh: Mesh | None = None,
    rules: sharding.Rules = (),
    title: str = "training",
    progress: bool = True,
) -> Fit:
    """Train, and keep the parameters with the highest validation score.

    Args:
      state: from `start`; its arrays are donated.
      step: from `train_step`; it is compiled here.
      batches: from `jaxret.training.batches.shuffled`.
      steps: the number of updates.
      validate: maps parameters to metrics; the first metric is the score, higher is better.
      every: updates between two validations. A run can be interrupted after each validation.
      frozen: parameters that the loss needs and that are not trained, such as those under an
        adapter. Checkpoints leave them out.
      resumable: runs and saves the chunks: `jaxret.runtime.checkpoint.run_chunks` with its first
        two arguments bound. None saves nothing.
      tracker: receives losses and validation metrics.
      mesh: devices with an axis ``data``, over which each batch is split; the axis must divide the
        size of the batch. None uses one device.
      rules: PartitionSpecs by path of a parameter (`jaxret.runtime.sharding.by_path`); parameters
        without a rule are replicated.
      title: title of the progress bar and of errors.
      progress: whether to show the bar.

    Returns:
      the last state and the best parameters; of equal scores the earliest wins.

    Raises:
      ValueError: if ``steps`` or ``every`` is below 1.
      FloatingPointError: after the first chunk whose loss is not finite, naming its steps.
    """
    require("steps", steps, "at least 1", lambda n: n >= 1)
    require("every", every, "at least 1", lambda n: n >= 1)
    tracker = NoopTracker() if tracker is None else tracker
    placed, frozen = _place(state, mesh, rules), _place(frozen, mesh, rules)
    # Without the shardings of the outputs XLA chooses its own, and compiles again for them.
    where = None if mesh is None else jax.tree.map(lambda x: x.sharding, placed)
    compiled = jax.jit(step, donate_argnums=0, out_shardings=(where, None))
    chunks = -(-steps // every)
    bar = Progress(total=steps, desc=title, unit="step", disable=not progress)

    def chunk(now: Fit, number: int) -> Fit:
        inner, losses = now.state, []
        bar.update(number * every - bar.n)
        for _ in range(min(every, steps - number * every)):
            batch = batches(int(inner.position))
            inner, info = compiled(inner, _split(batch, mesh), frozen)
            losses.append(info)
            bar.update()
        means = {k: float(np.mean([float(one[k]) for one in losses])) for k in losses[0]}
        done = int(inner.step)
        if not np.isfinite(means["loss"]):
            raise FloatingPointError(
                f"{title}: the loss is {means['loss']} in steps {done - len(losses) + 1} .. "
                f"{done}: lower the learning rate, or look at the data"
            )
        numbers = validate(distributed.local(inner.params))
        numbers = {name: distributed.agreed(float(value)) for name, value in numbers.items()}
        score = next(iter(numbers.values()))
        tracker.log({f"{title}/{k}": v for k, v in (means | numbers).items()}, done)
        bar.set_postfix(loss=f"{means['loss']:.3f}", score=f"{score:.3f}")
        if not score > now.score:  # NaN is not an improvement
            return now._replace(state=inner)
        return Fit(
            state=inner,
            best=jax.tree.map(jnp.array, inner.params),
            score=np.asarray(score),
            best_step=np.asarray(done),
        )

    first = Fit(
        state=placed,
        best=jax.tree.map(jnp.array, placed.params),
        score=np.asarray(-np.inf),
        best_step=np.asarray(0),
    )
    with bar:
        if resumable is not None:
            return resumable(chunks=chunks, start=lambda: first, step=chunk)
        for number in range(chunks):
            first = chunk(first, number)
        return first


def _part(x: jax.Array, i: jax.Array, parts: int) -> jax.Array:
    """Return every ``parts``-th example from the i-th on, so that devices keep their examples."""
    if len(x) % parts:
        raise ValueError(f"accumulate={parts} must divide the batch of {len(x)} examples")
    return x.reshape(-1, parts, *x.shape[1:])[:, i]


def _split(batch: Any, mesh: Mesh | None) -> Any:
    if mesh is None:
        return jax.tree.map(jnp.asarray, batch)
    whole = NamedSharding(mesh, P("data"))
    return jax.tree.map(lambda x: distributed.put(x, whole), batch)


def _place(tree: T, mesh: Mesh | None, rules: sharding.Rules) -> T:
    if mesh is None or tree is None:
        return tree
    return sharding.place(tree, mesh, sharding.by_path(tree, rules))
