"""How fast does jaxret encode, against HuggingFace PyTorch on the same weights?

    uv run python -m experiments.benchmarks.encode                 # 2 idle cores: about 1 min

Both encode the same DeskBank texts (half of them full documents, half queries) with
all-MiniLM-L6-v2 in float32, in the same padded batches, sorted by length. Two threads each, in
one process, in turn, after one round that is not counted. Tokenising is not timed.

    encoder/jax_over_torch        time of PyTorch / time of jaxret, larger is better
    encoder/jax_texts_a_second
    encoder/torch_texts_a_second
    encoder/extra_padding         tokens in the batches / tokens if each batch were padded to its
                                  longest text, as PyTorch could have it, and XLA not: it would
                                  compile a program a length

Expect a ratio of 1.1 to 1.4: 1.37 (1.20 to 1.51 over 10 repeats) at 49 texts a second; before freed
memory was kept, 1.1 where nothing else ran (1.04 to 1.17 over 10 repeats, 150 against 130 texts
a second on 2 cores): both spend most of their time in the same matrix products, and jaxret computes
two batches side by side. Extra padding is 1.10.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np

from jaxret.data import deskbank
from jaxret.data.templates import full
from jaxret.encoders import TextEncoder, forward, load_encoder
from jaxret.encoders.padding import batches

THREADS = 2


def measure(*, n_texts: int = 320, repeats: int = 5) -> dict[str, list[float]]:
    """Times both; needs torch.

    Args:
      n_texts: how many texts, at most 336 (DeskBank has 168 documents).
      repeats: rounds that are counted.

    Returns:
      the names above, each with one value a repeat.
    """
    dataset = deskbank.load()
    half = n_texts // 2
    if not 0 < half <= len(dataset.documents):
        raise ValueError(f"n_texts must lie in [2, {2 * len(dataset.documents)}], got {n_texts}")
    spread = len(dataset.queries) // half
    texts = [full(document) for document in dataset.documents[:half]]
    texts += dataset.queries[::spread][:half]
    encoder = load_encoder("minilm")
    tokens = [text.ids for text in encoder.tokenizer.encode_batch(texts)]
    work = list(batches(tokens, batch_tokens=512))
    forms = {"jax": _jax(encoder, work), "torch": _torch(encoder, work)}
    vectors = {name: form() for name, form in forms.items()}  # the round that is not counted
    if (gap := np.abs(vectors["jax"] - vectors["torch"]).max()) > 1e-5:
        raise AssertionError(f"the two encoders differ by {gap:.1e}: no comparison of times")
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, form in forms.items():
            begin = perf_counter()
            form()
            times[name].append(perf_counter() - begin)
    padded = sum(ids.size for _, ids, _ in work)
    tight = sum(len(mask) * mask.sum(axis=1).max() for _, _, mask in work)
    return {
        "encoder/jax_over_torch": list(np.divide(times["torch"], times["jax"])),
        "encoder/jax_texts_a_second": list(np.divide(len(texts), times["jax"])),
        "encoder/torch_texts_a_second": list(np.divide(len(texts), times["torch"])),
        "encoder/extra_padding": [padded / tight],
    }


def _jax(encoder: TextEncoder, work: list) -> Callable[[], np.ndarray]:
    return lambda: np.concatenate([vectors for _, vectors in forward(encoder, work)])


def _torch(encoder: TextEncoder, work: list) -> Callable[[], np.ndarray]:
    import torch
    from transformers import BertModel

    torch.set_num_threads(THREADS)
    model = BertModel.from_pretrained(encoder.directory).eval()

    @torch.inference_mode()
    def run():
        found = []
        for rows, ids, mask in work:
            ids, mask = torch.tensor(ids).long(), torch.tensor(mask).long()
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            found.append(torch.nn.functional.normalize(pooled, dim=1).numpy()[: len(rows)])
        return np.concatenate(found)

    return run


def main() -> dict[str, float]:
    """Prints the median and the range of each number; returns the medians."""
    results = measure()
    for name, values in results.items():
        low, middle, high = np.quantile(values, [0, 0.5, 1])
        print(f"{name:30s} {middle:8.2f}   ({low:.2f} to {high:.2f})")
    return {name: float(np.median(values)) for name, values in results.items()}


if __name__ == "__main__":
    main()
