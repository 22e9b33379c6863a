"""Flax modules as pairs of pure functions over plain nested dicts.

Only this file uses Flax's object system. A network is written as an ``nnx.Module``; `functionalize`
returns ``init`` and ``apply`` over ``dict[str, ...]``, which work with jit, grad, vmap, optax,
orbax and rules on paths such as ``'blocks/0/query/kernel'``.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from flax import nnx

from jaxret.types import Params, PRNGKey


class Module(NamedTuple):
    """A network as two pure functions.

    ``init(key)`` consumes the key; ``apply(params, *args, **kwargs)`` calls the network.
    ``bind(params)`` returns the network as an object, whose layers `jaxret.nn.lora` changes.
    """

    init: Callable[[PRNGKey], Params]
    apply: Callable[..., Any]
    bind: Callable[[Params], nnx.Module] | None = None

    def shapes(self) -> Params:
        """Return the parameters as ``jax.ShapeDtypeStruct`` leaves, without allocating them."""
        return jax.tree.map(lambda leaf: leaf, _shapes(self.init))  # a copy, since dicts may change


@lru_cache(maxsize=32)
def _shapes(init: Callable[[PRNGKey], Params]) -> Params:
    return jax.eval_shape(init, jax.random.key(0))


def functionalize(ctor: Callable[[nnx.Rngs], nnx.Module]) -> Module:
    """Convert a module's constructor to a `Module`.

    Args:
      ctor: builds the network from its random streams. Its state must be ``nnx.Param`` (dropout
        gets its key when called), and sub-modules must be attributes with string names, so that
        every path is made of strings.

    Raises:
      ValueError: by Flax, if the network has state that is not a parameter.
    """
    graph, _ = nnx.split(nnx.eval_shape(lambda: ctor(nnx.Rngs(0))), nnx.Param)

    def init(key):
        return nnx.to_pure_dict(nnx.split(ctor(nnx.Rngs(params=key)), nnx.Param)[1])

    def bind(params):
        return nnx.merge(graph, params)

    def apply(params, *args, **kwargs):
        return bind(params)(*args, **kwargs)

    return Module(init, apply, bind)
