"""Networks and an encoder that are small enough for tests of the methods on top of them."""

import jax
import numpy as np
import pytest
from flax import nnx
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from jaxret.encoders import EncoderSpec, TextEncoder, encode
from jaxret.nn import bert, deberta, mpnet, qwen3
from jaxret.nn.backbone import Backbone
from jaxret.nn.functional import functionalize
from jaxret.nn.layers import Compute
from jaxret.task import Task

SIZES = {"vocab_size": 24, "hidden": 12, "layers": 2, "heads": 3, "intermediate": 20}
BERT = bert.BertConfig(**SIZES, max_positions=48, type_vocab=2, eps=1e-12)
MPNET = mpnet.MPNetConfig(**SIZES, max_positions=48, eps=1e-5)
DEBERTA = deberta.DebertaConfig(**SIZES, buckets=16, max_distance=64)
BACKBONES = {
    "bert": Backbone(BERT, bert.Bert, bert.KEYS, "bert."),
    "mpnet": Backbone(MPNET, mpnet.MPNet, mpnet.KEYS, "mpnet."),
    "deberta": Backbone(DEBERTA, deberta.Deberta, deberta.KEYS, "deberta."),
}
#: Names for tests of modules on top: quick tests use two networks, or one if compiling takes
#: seconds.
NAMES = ["bert", "deberta", pytest.param("mpnet", marks=pytest.mark.slow)]
QUICK = ["bert", pytest.param("deberta", marks=pytest.mark.slow)]
#: A causal decoder, for tests of arbitrary backbones but not of heads on a first token.
QWEN3 = qwen3.Qwen3Config(**SIZES, kv_heads=1, head_width=6, tied=True)
DECODER = Backbone(QWEN3, qwen3.Qwen3, qwen3.KEYS, "model.")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrst"]


def weights(shapes, seed=0, scale=0.4):
    """Sample random weights, so that every bias and scale matters."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jax.device_put((scale * rng.standard_normal(leaf.shape)).astype(leaf.dtype)),
        shapes,
    )


def method(backbone, call):
    """Return ``call(module, *args)`` as a function of the backbone's parameters."""

    class Called(nnx.Module):
        def __init__(self, rngs):
            self.backbone = backbone.build(Compute(), rngs)

        def __call__(self, *args):
            return call(self.backbone, *args)

    apply = functionalize(Called).apply
    return jax.jit(lambda params, *args: apply({"backbone": params}, *args))


def tokenizer(words=WORDS):
    """Make a tokenizer with a token per word, between [CLS] (id 2) and [SEP] (id 3)."""
    numbers = {word: number for number, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def encoder(folder, name="bert"):
    """Make a `TextEncoder` with random weights and write its tokenizer to ``folder``."""
    backbone = BACKBONES[name]
    tokenizer().save(str(folder / "tokenizer.json"))
    return TextEncoder(
        spec=EncoderSpec(name="tiny", hub_id="nobody/tiny", max_tokens=32),
        backbone=backbone,
        directory=folder,
        sha256=None,
        weights=weights(backbone.network().shapes()),
    )


DOCUMENTS = tuple(f"{letter} {letter} q" for letter in "abcdefgh")


def letters(folder):
    """Make a task whose queries mix the letters of their one or two tools with random letters."""
    items, queries = len(DOCUMENTS), 48
    tiny = encoder(folder)
    rng = np.random.default_rng(0)
    labels = np.stack([np.arange(queries) % items, np.full(queries, -1)], axis=1).astype(np.int32)
    labels[::3, 1] = (labels[::3, 0] + 1) % items
    texts = tuple(
        " ".join([*("abcdefgh"[i] for i in row if i >= 0), *rng.choice(list("klmnop"), 3)])
        for row in labels
    )
    options = {"cache": None, "progress": False}
    return Task(
        name="letters",
        ids=tuple(f"tool {i}" for i in range(items)),
        theta=encode(tiny, list(DOCUMENTS), kind="document", **options),
        queries=encode(tiny, list(texts), kind="query", **options),
        labels=labels,
        groups=np.arange(queries),
        query_ids=tuple(map(str, range(queries))),
        documents=DOCUMENTS,
        texts=texts,
        encoder=tiny,
    )
