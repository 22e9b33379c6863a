"""A small world for experiments that train: some of DeskBank's tools and a tiny encoder."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from jaxret import data

WIDTH, TOOLS = 16, 24


@pytest.hookimpl(tryfirst=True)  # before pytest evaluates marks
def pytest_collection_modifyitems(items):
    """Mark tests as slow if they use the fixture `finished`, which runs a whole experiment."""
    for item in items:
        here = item.path.parent == Path(__file__).parent
        if here and "finished" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Make a folder with a data set, an encoder and a place for models."""
    folder = tmp_path_factory.mktemp("world")
    bank = data.load("deskbank", part="all")
    rows = [i for i, right in enumerate(bank.labels) if (right < TOOLS).all() and right[0] >= 0]
    (folder / "data").mkdir()
    with (folder / "data" / "tools.jsonl").open("w") as file:
        for tool, document in zip(bank.tool_ids[:TOOLS], bank.documents[:TOOLS], strict=True):
            line = {"id": tool, "name": tool, "documentation": document}
            file.write(json.dumps(line) + "\n")
    with (folder / "data" / "queries.jsonl").open("w") as file:
        for row in rows:
            labels = [bank.tool_ids[item] for item in bank.labels[row] if item >= 0]
            line = {"id": bank.query_ids[row], "query": bank.queries[row], "labels": labels}
            file.write(json.dumps(line) + "\n")
    tiny_encoder(folder / "encoder", [bank.queries[row] for row in rows])
    return folder


def tiny_encoder(folder, texts):
    """Make a two-layer BERT with random weights whose vocabulary is the words of some texts."""
    folder.mkdir()
    split = pre_tokenizers.BertPreTokenizer()
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text.lower())}
    vocabulary = {
        word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(words)])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "vocab_size": len(vocabulary),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(0)
    tensors = {
        f"embeddings.{name}_embeddings.weight": random.standard_normal((rows, WIDTH))
        for name, rows in {"word": len(vocabulary), "position": 512, "token_type": 2}.items()
    }
    norms, linear = ["embeddings.LayerNorm"], {}
    for i in range(2):
        layer = f"encoder.layer.{i}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        linear |= {f"{layer}.attention.self.{x}": (WIDTH, WIDTH) for x in ("query", "key", "value")}
        linear |= {f"{layer}.attention.output.dense": (WIDTH, WIDTH)}
        linear |= {f"{layer}.intermediate.dense": (24, WIDTH), f"{layer}.output.dense": (WIDTH, 24)}
    for name, (outputs, inputs) in linear.items():
        tensors[f"{name}.weight"] = random.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        tensors[f"{name}.bias"] = np.zeros(outputs)
    for name in norms:
        tensors |= {f"{name}.weight": np.ones(WIDTH), f"{name}.bias": np.zeros(WIDTH)}
    save_file(
        {name: np.ascontiguousarray(x, np.float32) for name, x in tensors.items()},
        folder / "model.safetensors",
    )
