"""How fast does jaxret encode, against HuggingFace PyTorch on the same weights?

    uv run python -m experiments.benchmarks.encode                 # 2 idle cores: 2 min

All forms encode the same DeskBank texts (half of them full documents, half queries) with
all-MiniLM-L6-v2 in float32, in batches sorted by length, one thread per core, in one process and in
turn, after one round that is not counted. Tokenising is not timed.

    jax           in the batches of `jaxret.encoders.encode`
    jax_fine      in the batches that it makes of `MANY` texts or more: more lengths, less padding
    torch         in the batches of jax
    torch_tight   in the same batches, each cut to its longest text; XLA would compile one program
                  per length

    encoder/jax_over_torch          time of PyTorch / time of jaxret, larger is better; also of
                                    jax_fine, and over torch_tight
    encoder/<form>_texts_a_second
    encoder/<form>_share_of_rate    operations of the real tokens per second / the rate of a large
                                    matrix product, measured in the same turn
    encoder/<form>_padding          share of the tokens that are padding

The limit of every ratio is 1 / PyTorch's share: all forms spend most of their time in the same
products. Expect 1.35 for jax and 1.42 for jax_fine over torch, 1.22 and 1.29 over torch_tight, at
98, 104, 73 and 81 texts per second and shares of .80, .88, .63 and .69.
"""

import argparse
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import machine
from experiments.benchmarks.timing import Form, in_turn, quartiles, reading
from jaxret.data import deskbank
from jaxret.data.templates import full
from jaxret.encoders import TextEncoder, forward, load_encoder
from jaxret.encoders.padding import FINE, batches
from jaxret.nn.bert import BertConfig

EACH = 160  # number of documents, and of queries


def measure(repeats: int = 5) -> dict[str, np.ndarray]:
    """Time all forms; needs torch."""
    machine.pin_torch()
    encoder = load_encoder("minilm")
    tokens = [text.ids for text in encoder.tokenizer.encode_batch(_texts())]
    work = {
        "jax": list(batches(tokens, batch_tokens=512)),
        "jax_fine": list(batches(tokens, batch_tokens=512, lengths=FINE)),
    }
    work["torch"] = work["jax"]
    work["torch_tight"] = [_cut(*batch) for batch in work["jax"]]
    forms = {name: (_torch if "torch" in name else _jax)(encoder, work[name]) for name in work}
    vectors = {name: form() for name, form in forms.items()}
    for name, batched in work.items():
        order = np.argsort(np.concatenate([rows for rows, _, _ in batched]))
        vectors[name] = vectors[name][order]
        if (gap := np.abs(vectors[name] - vectors["jax"]).max()) > 1e-5:
            raise AssertionError(f"{name} differs from jax by {gap:.1e}: no comparison of times")
    wall = in_turn(
        {name: Form(form) for name, form in {"rate": _product, **forms}.items()}, repeats
    )
    config = encoder.backbone.config
    assert isinstance(config, BertConfig)  # MiniLM is a BERT
    needed = reading(config, [len(text) for text in tokens]).operations / _PRODUCT
    real = sum(map(len, tokens))
    found = {}
    for ours in ("jax", "jax_fine"):
        for theirs in ("torch", "torch_tight"):
            found[f"encoder/{ours}_over_{theirs}"] = wall[theirs] / wall[ours]
    for name, batched in work.items():
        found[f"encoder/{name}_texts_a_second"] = len(tokens) / wall[name]
        found[f"encoder/{name}_share_of_rate"] = needed * wall["rate"] / wall[name]
        found[f"encoder/{name}_padding"] = [1 - real / sum(ids.size for _, ids, _ in batched)]
    return {name: np.array(values) for name, values in found.items()}


def _texts() -> list[str]:
    dataset = deskbank.load()
    spread = len(dataset.queries) // EACH
    return [*map(full, dataset.documents[:EACH]), *dataset.queries[::spread][:EACH]]


_PRODUCT = 20 * 2 * 1024**3  # operations of `_product`


def _product() -> None:
    a = jnp.ones((1024, 1024), jnp.float32)
    for _ in range(20):
        jax.block_until_ready(a @ a)


def _cut(rows: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, ...]:
    """Drop the copies that fill up a batch, and cut it to its longest text."""
    longest = mask.sum(axis=1).max()
    return rows, ids[: len(rows), :longest], mask[: len(rows), :longest]


def _jax(encoder: TextEncoder, work: list) -> Callable[[], np.ndarray]:
    return lambda: np.concatenate([vectors for _, vectors in forward(encoder, work)])


def _torch(encoder: TextEncoder, work: list) -> Callable[[], np.ndarray]:
    import torch
    from transformers import BertModel

    from experiments.benchmarks.torch_twin import embed

    model = BertModel.from_pretrained(encoder.directory).eval()

    @torch.inference_mode()
    def run():
        found = []
        for rows, ids, mask in work:
            ids, mask = torch.tensor(ids).long(), torch.tensor(mask).long()
            found.append(embed(model, ids, mask).numpy()[: len(rows)])
        return np.concatenate(found)

    return run


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Print the machine and the quartiles of each number; return the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds of all forms (5)")
    given = parser.parse_args(arguments)
    if missing := [name for name in ("torch", "transformers") if find_spec(name) is None]:
        parser.error(f"it compares with PyTorch: install {' and '.join(missing)}")
    print(machine.measured(), flush=True)
    results = measure(given.repeats)
    for name, values in results.items():
        print(f"{name:40s} {quartiles(values)}")
    return {name: float(np.median(values)) for name, values in results.items()}


if __name__ == "__main__":
    main()
