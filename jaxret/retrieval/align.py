"""From one encoder's space to another's: the rotation that brings the same texts closest.

    W = U V^T,   s = trace(S) / ||X||^2,   U S V^T the singular value decomposition of X^T Y

are the orthogonal matrix with the smallest ``||X W - Y||`` (Schönemann 1966) and the scale with
the smallest ``||s X W - Y||`` beside it (Schönemann and Carroll 1970), for X and Y the same texts
in both encoders. Rows learnt with the first then serve queries of the second, whole or by what
they have changed:

    Theta W        or        Theta_B + s (Theta - Theta_1) W

Centre X and Y first where an encoder's vectors share a large mean: it says nothing of one tool
against another, and the rotation would be spent on it.

Letters: n texts, a and b the widths of the two encoders.
"""

import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float


def procrustes(
    source: Float[Array, "n a"], target: Float[Array, "n b"]
) -> tuple[Float[Array, "a b"], Float[Array, ""]]:
    """Finds the rotation (or reflection) that brings ``source`` nearest to ``target``, with scale.

    Where the widths differ it is the one between the spaces padded with zeros to one width, cut to
    the axes that are there: no vector gets longer, and with a <= b none gets shorter.

    Args:
      source: the texts in the first encoder. Fewer than its width leave directions that no text
        has to chance.
      target: the same texts in the second.

    Returns:
      W [a, b] and s [].

    Raises:
      ValueError: if they are not equally many.
    """
    if len(source) != len(target):
        raise ValueError(
            f"source has {len(source)} rows and target {len(target)}: give the same texts in both"
        )
    product = jnp.matmul(source.T, target, precision=Precision.HIGHEST)
    u, s, vt = jnp.linalg.svd(product, full_matrices=False)
    return jnp.matmul(u, vt, precision=Precision.HIGHEST), s.sum() / jnp.sum(source**2)
