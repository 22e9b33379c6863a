"""t-SNE, for which the extra ``tsne`` brings scikit-learn."""

from importlib.util import find_spec

import numpy as np
from jaxtyping import Float


def require_sklearn(left_out_by: str) -> None:
    """Raise ImportError without scikit-learn, naming the setting that avoids it."""
    if find_spec("sklearn") is None:
        raise ImportError(
            f"t-SNE needs scikit-learn: install jaxret[tsne], or leave it out by {left_out_by}"
        )


def project(vectors: Float[np.ndarray, "n d"], seed: int) -> Float[np.ndarray, "n 2"]:
    """Project vectors to a plane by t-SNE; deterministic for a seed."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(30, (len(vectors) - 1) / 3)
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    with threadpool_limits(1):  # idle threads spin, which slows a busy machine
        return tsne.fit_transform(vectors)
