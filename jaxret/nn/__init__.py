"""Networks in Flax: BERT, DeBERTa and Qwen3 with their published weights, and heads on them.

A network is a `Module`, two pure functions: ``init(key) -> params`` and ``apply(params, ...)``.
"""

from typing import TYPE_CHECKING

from jaxret.lazy import lazy

if TYPE_CHECKING:
    from jaxret.nn import (
        bert,
        checkpoints,
        classifier,
        deberta,
        layers,
        lora,
        qwen3,
        refiner,
        token_classifier,
    )
    from jaxret.nn.backbone import Backbone, read_backbone, shallow
    from jaxret.nn.functional import Module, functionalize
    from jaxret.nn.network import Network
    from jaxret.nn.placement import memory_report, placed

__all__ = [
    "Backbone",
    "Module",
    "Network",
    "bert",
    "checkpoints",
    "classifier",
    "deberta",
    "functionalize",
    "layers",
    "lora",
    "memory_report",
    "placed",
    "qwen3",
    "read_backbone",
    "refiner",
    "shallow",
    "token_classifier",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "backbone": ("Backbone", "read_backbone", "shallow"),
        "bert": (),
        "checkpoints": (),
        "classifier": (),
        "deberta": (),
        "functional": ("Module", "functionalize"),
        "layers": (),
        "lora": (),
        "network": ("Network",),
        "placement": ("memory_report", "placed"),
        "qwen3": (),
        "refiner": (),
        "token_classifier": (),
    },
)
