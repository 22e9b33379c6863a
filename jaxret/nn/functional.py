"""Flax modules as pairs of pure functions over plain nested dicts.

This is the only file that sees Flax's object system. A network is written as an
``nnx.Module``; what leaves `functionalize` is ``init`` and ``apply`` over ``dict[str, ...]``,
which jit, grad, vmap, optax, orbax and rules on paths such as ``'blocks/0/query/kernel'`` all
take as they are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx

from jaxret.types import Params, PRNGKey


class Module(NamedTuple):
    """A network as two pure functions.

    ``init(key)`` consumes the key; ``apply(params, *args, **kwargs)`` calls the network.
    ``bind(params)`` is the network as an object, for what must reach inside: `jaxret.nn.lora`.
    """

    init: Callable[[PRNGKey], Params]
    apply: Callable[..., Any]
    bind: Callable[[Params], nnx.Module] | None = None

    def shapes(self) -> Params:
        """The parameters as ``jax.ShapeDtypeStruct`` leaves: nothing is allocated."""
        return jax.eval_shape(self.init, jax.random.key(0))


def functionalize(ctor: Callable[[nnx.Rngs], nnx.Module]) -> Module:
    """Turns a module's constructor into `Module`.

    Args:
      ctor: builds the network from its random streams. All it keeps must be ``nnx.Param``
        (dropout takes its streams when called), and sub-modules must be attributes with string
        names, so that every path is made of strings.

    Raises:
      ValueError: by Flax, at once, if the network keeps state that is no parameter.
    """
    graph, _ = nnx.split(nnx.eval_shape(lambda: ctor(nnx.Rngs(0))), nnx.Param)

    def init(key):
        return nnx.to_pure_dict(nnx.split(ctor(nnx.Rngs(params=key)), nnx.Param)[1])

    def bind(params):
        return nnx.merge(graph, params)

    def apply(params, *args, **kwargs):
        return bind(params)(*args, **kwargs)

    return Module(init, apply, bind)
