"""LoRA on any tree of parameters: a low-rank change of chosen matrices.

    W' = W + (alpha / r) a b        a [in, r], b [r, out]      (Hu et al. 2021, Section 4.1)

The adapter is a tree of its own, so there is nothing to freeze: a loss that is a function of the
adapter has a gradient in the adapter alone. Networks know nothing of it.

    adapter = lora.init(key, params, r"blocks/.*/(query|value)/kernel", rank=8)
    loss = lambda adapter, batch: task(lora.merge(params, adapter, alpha=16), batch)

Once merged, the branch has no input of its own that could be dropped. `branched` computes it beside
the matrix, for training with dropout:

    x W + (alpha / r) drop(x) a b        each number of each token dropped for itself
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
    """An adapter that changes nothing yet: a from N(0, 1 / in), b zero.

    Args:
      key: consumed.
      params: arrays, or their shapes.
      pattern: a regular expression that matches the whole path of each matrix to adapt.
      rank: r, at least 1.

    Returns:
      ``{path: {'a': [in, r], 'b': [r, out]}}``, in the matrices' dtypes.

    Raises:
      ValueError: if the pattern matches nothing, or something that is no matrix.
    """
    require("rank", rank, ">= 1", lambda r: r >= 1)
    leaves = _by_path(params)
    chosen = {path: leaf for path, leaf in leaves.items() if re.fullmatch(pattern, path)}
    if not chosen:
        raise ValueError(f"no parameter's path matches {pattern!r}; there are {', '.join(leaves)}")
    if flat := {path: leaf.shape for path, leaf in chosen.items() if leaf.ndim != 2}:
        raise ValueError(f"{pattern!r} must match matrices alone, but it matches {flat}")

    def pair(key, leaf):
        inputs, outputs = leaf.shape
        a = jax.random.normal(key, (inputs, rank), leaf.dtype) / jnp.sqrt(inputs).astype(leaf.dtype)
        return {"a": a, "b": jnp.zeros((rank, outputs), leaf.dtype)}

    keys = jax.random.split(key, len(chosen))
    return {path: pair(keys[i], leaf) for i, (path, leaf) in enumerate(chosen.items())}


def merge(params: Params, adapter: Params, *, alpha: float) -> Params:
    """The parameters with the adapter in them, of the same shapes and dtypes.

    Args:
      params: the tree that the adapter was made for.
      adapter: as `init` gives it; its matrices say what r is.
      alpha: the scale of the change is ``alpha / r``.

    Raises:
      ValueError: naming paths of the adapter that the parameters do not have.
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
    """The network with the adapter's products beside its own: what is trained, unmerged.

    Args:
      network: the adapted matrices must belong to linear layers.
      alpha: as of `merge`.
      rate: of the dropout at the branches' inputs, in [0, 1). It differs from layer to layer.

    Returns:
      ``apply((adapter, params), *args, key=None, **kwargs)``. Without a key nothing is dropped,
      and the result is that of ``network.apply(merge(params, adapter, alpha=alpha), ..)`` but for
      rounding. With one, the network's own dropout draws from another.

    Raises:
      ValueError: when called, naming paths of the adapter that are no linear layer's matrix.
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
            raise ValueError(f"these are no matrices of linear layers: {', '.join(unknown)}")
        for number, path in enumerate(sorted(adapter)):
            own = fold(fold(key, 1), number)
            layers[path].dot_general = _beside(layers[path].dot_general, adapter[path], own)
        return module(*args, key=fold(key, 0), **kwargs)

    def _beside(dot, factors, key):
        a, b = factors["a"], factors["b"]

        def product(x, w, *rest, **options):  # both in the type of the layer's computation
            low = dropout(x, rate, key) @ a.astype(x.dtype) @ b.astype(x.dtype)
            return dot(x, w, *rest, **options) + alpha / a.shape[1] * low

        return product

    return apply


def _by_path(params):
    return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")
