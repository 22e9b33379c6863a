"""Writes a small Qwen3 with random weights, in the layout of the published ones.

    uv run python -m experiments.tiny_qwen3
    uv run python -m experiments.train_retriever dataset=deskbank document=terse \\
        encoder=qwen3_tiny recipe=[tool_embed_tiny]
    uv run python -m experiments.train_retriever dataset=deskbank document=terse \\
        encoder=qwen3_tiny recipe=[tool_embed_tiny,tool_rank] seeds=3

Its tokenizer is trained on the data set of the config. The network replaces the published encoders
and rerankers on machines that are too small for them, with the same code.

With the third command, on DeskBank's terse documents, Tool-Embed's loss falls from 5.4 to 2.0 in
528 steps and R@3 of 403 test queries is 0.170 ± 0.016 (3 seeds; chance is 0.018). Tool-Rank's loss
falls from 0.70 to 0.31 in 2,644 steps, and on Tool-Embed's 32 candidates it reaches R@3 0.156 ±
0.008, R@7 0.265 ± 0.014; a random order has 0.049 and 0.115, Tool-Embed's own order 0.170 and 0.256
± 0.015. (2 quiet cores: 1 and 3 minutes per seed.) Both need `jaxret.training.word_dropout`:
without it they memorise the training queries and hardly rank others.
"""

from pathlib import Path

from omegaconf import DictConfig

from experiments.common.experiment import command
from experiments.common.loading import read_dataset
from experiments.tiny_qwen3.network import write
from jaxret.data.templates import template


@command("tiny_qwen3")
def main(cfg: DictConfig) -> dict[str, float]:
    """Write the folder ``cfg.path``; return the sizes."""
    dataset, render = read_dataset(cfg), template(cfg.document)
    texts = [*map(render, dataset.documents), *dataset.queries]
    sizes = {name: cfg[name] for name in ("vocabulary", "width", "layers", "tied", "seed")}
    write(Path(cfg.path), texts, **sizes)
    print(f"wrote {cfg.path}")
    return {name: float(size) for name, size in sizes.items()}


if __name__ == "__main__":
    main.cli()
