"""Sizes of published networks, of which the tests compute shapes but no weights."""

from jaxret.nn.deberta import DebertaConfig
from jaxret.nn.qwen3 import Qwen3Config


def deberta(hidden, layers):
    return DebertaConfig(hidden=hidden, layers=layers, heads=hidden // 64, intermediate=4 * hidden)


#: ``microsoft/deberta-v3-*``.
DEBERTA = {
    "xsmall": deberta(384, 12),
    "small": deberta(768, 6),
    "base": deberta(768, 12),
    "large": deberta(1024, 24),
}
#: ``Qwen/Qwen3-Embedding-*``. The 8B has a head of its own.
QWEN3 = {
    "0.6B": Qwen3Config(
        vocab_size=151669,
        hidden=1024,
        layers=28,
        heads=16,
        kv_heads=8,
        intermediate=3072,
        max_positions=32768,
    ),
    "4B": Qwen3Config(
        vocab_size=151665, hidden=2560, layers=36, heads=32, kv_heads=8, intermediate=9728
    ),
    "8B": Qwen3Config(
        vocab_size=151665,
        hidden=4096,
        layers=36,
        heads=32,
        kv_heads=8,
        intermediate=12288,
        tied=False,
    ),
}
