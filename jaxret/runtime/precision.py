"""Products of float32 matrices in float32, on accelerators too.

By default XLA rounds the factors to TF32 (10 bits) on an NVIDIA GPU, and to bfloat16 on a TPU.
The blocked simulation, which multiplies matrices, would then choose other items than the scan,
which multiplies a matrix by a vector, and vectors of texts would differ from those of a CPU.
The first use of jaxret therefore sets jax's own option, which holds for the whole process, unless
it was set before. To round again:

    jax.config.update("jax_default_matmul_precision", "default")

Products of bfloat16 matrices are not affected.
"""

import jax


def keep_float32() -> None:
    """Set jax's precision of matrix products to float32, unless it was set before."""
    if jax.config.values["jax_default_matmul_precision"] is None:
        jax.config.update("jax_default_matmul_precision", "float32")
