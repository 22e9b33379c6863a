"""Aligns one encoder's space with another's, by the same texts in both.

    W = U V^T,   s = trace(S) / ||X||^2,   U S V^T the singular value decomposition of X^T Y

are the orthogonal matrix with the smallest ``||X W - Y||`` (Schönemann 1966) and the scale with
the smallest ``||s X W - Y||`` (Schönemann and Carroll 1970), for X and Y the same texts in both
encoders. Rows learnt with the first encoder then serve queries of the second, either whole or by
their change:

    Theta W        or        Theta_B + s (Theta - Theta_1) W

Centre X and Y first if an encoder's vectors share a large mean, which does not distinguish tools
and would otherwise dominate the rotation.

Letters: n texts, a and b the widths of the two encoders.
"""

import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float


def procrustes(
    source: Float[Array, "n a"], target: Float[Array, "n b"]
) -> tuple[Float[Array, "a b"], Float[Array, ""]]:
    """Compute the rotation or reflection that maps ``source`` nearest to ``target``, with scale.

    For different widths the narrower space is padded with zeros and the rotation is cut to the real
    axes: no vector becomes longer, and with a <= b none becomes shorter.

    Returns:
      the rotation W [a, b] and the scale s [].
    """
    if len(source) != len(target):
        raise ValueError(
            f"source has {len(source)} rows and target {len(target)}: give the same texts in both"
        )
    product = jnp.matmul(source.T, target, precision=Precision.HIGHEST)
    u, s, vt = jnp.linalg.svd(product, full_matrices=False)
    return jnp.matmul(u, vt, precision=Precision.HIGHEST), s.sum() / jnp.sum(source**2)
