"""Products of float32 matrices in float32, on accelerators too.

XLA's default rounds the factors: to TF32, with 10 bits, on an NVIDIA GPU, and to bfloat16 on a TPU.
The blocked simulation, which multiplies matrices, would then choose other items than the scan,
which multiplies a matrix by a vector, and vectors of texts would differ from those of a CPU.
The first use of jaxret sets full precision, unless another one was configured. To round again:

    jax.config.update("jax_default_matmul_precision", "default")

Networks in bfloat16 are as fast as before.
"""

import jax


def keep_float32() -> None:
    """Sets full precision for products of matrices, unless a precision was configured before."""
    if jax.config.values["jax_default_matmul_precision"] is None:
        jax.config.update("jax_default_matmul_precision", "float32")
