"""LoRA on any tree of parameters: low-rank changes of selected matrices.

    W' = W + (alpha / r) a b        a [in, r], b [r, out]      (Hu et al. 2021, Section 4.1)

The adapter is a separate tree, so nothing needs to be frozen: a loss that is a function of the
adapter has a gradient only in the adapter. Networks are independent of adapters.

    adapter = lora.init(key, params, r"blocks/.*/(query|value)/kernel", rank=8)
    loss = lambda adapter, batch: task(lora.merge(params, adapter, alpha=16), batch)

A merged adapter has no separate input for dropout. `branched` computes the adapter's product beside
the matrix's, for training with dropout:

    x W + (alpha / r) drop(x) a b        independent dropout of each number of each token
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxret.nn.functional import Module
from jaxret.nn.layers import dropout, fold
from jaxret.runtime.validate import require
from jaxret.types import Params, PRNGKey


def init(key: PRNGKey, params: Params, pattern: str, *, rank: int) -> Params:
    """Make an adapter without effect: a from N(0, 1 / in), b zero.

    Args:
      key: consumed.
      params: arrays, or their shapes.
      pattern: regular expression that matches the whole path of each matrix to adapt.
      rank: r, at least 1.

    Returns:
      ``{path: {'a': [in, r], 'b': [r, out]}}``, in the dtypes of the matrices.

    Raises:
      ValueError: if the pattern matches nothing, or a leaf that is not a matrix.
    """
    require("rank", rank, ">= 1", lambda r: r >= 1)
    leaves = _by_path(params)
    chosen = {path: leaf for path, leaf in leaves.items() if re.fullmatch(pattern, path)}
    if not chosen:
        raise ValueError(f"no parameter's path matches {pattern!r}; there are {', '.join(leaves)}")
    if flat := {path: leaf.shape for path, leaf in chosen.items() if leaf.ndim != 2}:
        raise ValueError(f"{pattern!r} must match only matrices, but it matches {flat}")

    def pair(key, leaf):
        inputs, outputs = leaf.shape
        a = jax.random.normal(key, (inputs, rank), leaf.dtype) / jnp.sqrt(inputs).astype(leaf.dtype)
        return {"a": a, "b": jnp.zeros((rank, outputs), leaf.dtype)}

    keys = jax.random.split(key, len(chosen))
    return {path: pair(keys[i], leaf) for i, (path, leaf) in enumerate(chosen.items())}


def merge(params: Params, adapter: Params, *, alpha: float) -> Params:
    """Add an adapter to parameters, with the same shapes and dtypes.

    Args:
      params: tree for which the adapter was made.
      adapter: adapter from `init`, of rank r.
      alpha: numerator of the scale ``alpha / r`` of the change.

    Raises:
      ValueError: if the parameters lack a path of the adapter.
    """
    if unknown := sorted(set(adapter) - set(_by_path(params))):
        raise ValueError(f"the adapter is for other parameters: there are no {', '.join(unknown)}")

    def merged(path, leaf):
        if (name := _name(path)) not in adapter:
            return leaf
        a, b = adapter[name]["a"], adapter[name]["b"]
        return leaf + (alpha / a.shape[1] * (a @ b)).astype(leaf.dtype)

    return jax.tree.map_with_path(merged, params)


def branched(network: Module, *, alpha: float, rate: float = 0.0) -> Callable[..., Any]:
    """Build a network with the adapter's products beside its own, for training.

    Args:
      network: network whose adapted matrices belong to linear layers.
      alpha: numerator of the scale ``alpha / r`` of the change.
      rate: rate of the dropout at the adapter's inputs, in [0, 1), drawn per layer.

    Returns:
      ``apply((adapter, params), *args, key=None, **kwargs)``. Without a key there is no dropout,
      and the result equals ``network.apply(merge(params, adapter, alpha=alpha), ..)`` up to
      rounding. With a key, the network's own dropout uses another key.

    Raises:
      ValueError: when called, if a path of the adapter is not the matrix of a linear layer.
    """
    require("rate", rate, "in [0, 1)", lambda r: 0 <= r < 1)
    bind = network.bind
    if bind is None:
        raise ValueError("the network must come from `jaxret.nn.functional.functionalize`")

    def apply(pair, *args, key=None, **kwargs):
        adapter, params = pair
        module = bind(params)
        layers = {
            "/".join(map(str, path)) + "/kernel": node
            for path, node in nnx.iter_graph(module)
            if isinstance(node, nnx.Linear)
        }
        if unknown := sorted(set(adapter) - set(layers)):
            raise ValueError(f"these are not matrices of linear layers: {', '.join(unknown)}")
        for number, path in enumerate(sorted(adapter)):
            own = fold(fold(key, 1), number)
            layers[path].dot_general = _beside(layers[path].dot_general, adapter[path], own)
        return module(*args, key=fold(key, 0), **kwargs)

    def _beside(dot, factors, key):
        a, b = factors["a"], factors["b"]

        def product(x, w, *rest, **options):  # both in the dtype of the layer's computation
            low = dropout(x, rate, key) @ a.astype(x.dtype) @ b.astype(x.dtype)
            return dot(x, w, *rest, **options) + alpha / a.shape[1] * low

        return product

    return apply


def _by_path(params):
    return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")
