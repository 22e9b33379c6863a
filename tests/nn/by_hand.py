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


def block(x, weights, epsilon, logits):
    """Compute a block of three heads of width 4.

    ``logits(head, q, k)`` are the scores [n, n] of one head, of which q and k are the queries and
    keys.
    """
    q, k, v = (linear(x, weights[name]) for name in ("query", "key", "value"))
    mixed = np.zeros_like(x)
    for head in range(3):
        c = slice(4 * head, 4 * head + 4)
        shares = np.exp(logits(head, q[:, c], k[:, c]))
        mixed[:, c] = shares / shares.sum(1, keepdims=True) @ v[:, c]
    x = norm(x + linear(mixed, weights["out"]), weights["attention_norm"], epsilon)
    up = gelu(linear(x, weights["up"]))
    return norm(x + linear(up, weights["down"]), weights["mlp_norm"], epsilon)


def assert_equal(got, mask, want):
    """Compare each text without its padding with ``want(text)``."""
    for text, length in enumerate(mask.sum(1)):
        np.testing.assert_allclose(got[text, :length], want(text), atol=1e-5)
