"""A small world for experiments that train: some of DeskBank's tools and a tiny encoder."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from jaxret import data
from jaxret.encoders import encoding
from jaxret.runtime.files import write_json_lines
from jaxret.runtime.tracking import read_results
from tests.experiments.toolret_copy import write_copy

WIDTH, TOOLS = 16, 24


@pytest.hookimpl(tryfirst=True)  # before pytest evaluates marks
def pytest_collection_modifyitems(items):
    """Mark tests as slow if they use the fixture `finished`, which runs a whole experiment."""
    for item in items:
        here = item.path.parent == Path(__file__).parent
        if here and "finished" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def few_lengths():
    """Pad texts to few lengths, since encoders compile a program for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "LENGTHS", (64, 192, 512))
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Make a folder with a data set, an encoder and a place for models."""
    folder = tmp_path_factory.mktemp("world")
    bank = data.load("deskbank", part="all")
    rows = [i for i, right in enumerate(bank.labels) if (right < TOOLS).all() and right[0] >= 0]
    documents = zip(bank.tool_ids[:TOOLS], bank.documents[:TOOLS], strict=True)
    tools = [{"id": tool, "name": tool, "documentation": document} for tool, document in documents]
    queries = []
    for row in rows:
        labels = [bank.tool_ids[item] for item in bank.labels[row] if item >= 0]
        queries.append({"id": bank.query_ids[row], "query": bank.queries[row], "labels": labels})
    write_data(folder / "data", tools, queries)
    tiny_encoder(folder / "encoder", [bank.queries[row] for row in rows])
    return folder


@pytest.fixture(scope="session")
def copy(tmp_path_factory):
    """Make a small copy of ToolRet."""
    root = tmp_path_factory.mktemp("copy")
    write_copy(root)
    return root


@pytest.fixture
def key(monkeypatch):
    """Set the key that clients of language models read."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")


def write_data(folder, tools, queries):
    """Write a data set in the layout of ``dataset=jsonl``."""
    write_json_lines(folder / "tools.jsonl", tools)
    write_json_lines(folder / "queries.jsonl", queries)


def rows_of(path):
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def values_of(directory):
    """Read the results of a run, an array of one value a seed each."""
    return {name: np.array(x["values"]) for name, x in read_results(directory).items()}


def step_of(directory, name):
    """Read the arrays of a run's finished step."""
    with np.load(directory / "steps" / f"{name}.npz") as step:
        return dict(step)


def tiny_encoder(folder, texts):
    """Make a two-layer BERT with random weights whose vocabulary is the words of some texts."""
    folder.mkdir()
    split = pre_tokenizers.BertPreTokenizer()
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text.lower())}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(words)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
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
    tensors = {name: x.astype(np.float32) for name, x in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
