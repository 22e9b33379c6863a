"""Parts of BERT, MPNet and DeBERTa for a single text in float64, as oracles of the networks."""

import math

import jax
import numpy as np


def exact(params):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)


def linear(x, weights):
    return x @ weights["kernel"] + weights["bias"]


def norm(x, weights, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return centred / deviation * weights["scale"] + weights["bias"]


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def after_attention(x, mixed, block, epsilon):
    """Compute the rest of a block: two sums, each with its norm."""
    x = norm(x + linear(mixed, block["out"]), block["attention_norm"], epsilon)
    up = gelu(linear(x, block["up"]))
    return norm(x + linear(up, block["down"]), block["mlp_norm"], epsilon)


def assert_equal(got, mask, want):
    """Compare each text without its padding with ``want(text)``."""
    for text, length in enumerate(mask.sum(1)):
        np.testing.assert_allclose(got[text, :length], want(text), atol=1e-5)
