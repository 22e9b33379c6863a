"""Precision of the products of float32 matrices on accelerators."""

import jax
import jax.numpy as jnp

from jaxret.runtime.precision import keep_float32


def test_products_are_not_rounded_on_accelerators():
    square = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    product = jax.jit(jnp.matmul).trace(square, square)
    for platform in ("cuda", "tpu"):
        assert "[HIGHEST, HIGHEST]" in product.lower(lowering_platforms=(platform,)).as_text()


def test_a_precision_that_was_configured_is_kept():
    name = "jax_default_matmul_precision"
    ours = jax.config.values[name]
    try:
        for before, after in ((None, "float32"), ("tensorfloat32", "tensorfloat32")):
            jax.config.update(name, before)
            keep_float32()
            assert jax.config.values[name] == after
    finally:
        jax.config.update(name, ours)
