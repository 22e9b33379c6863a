from . import (
    bert as bert,
    checkpoints as checkpoints,
    classifier as classifier,
    deberta as deberta,
    layers as layers,
    lora as lora,
    mpnet as mpnet,
    qwen3 as qwen3,
    refiner as refiner,
    token_classifier as token_classifier,
)
from .backbone import (
    Backbone as Backbone,
    read_backbone as read_backbone,
    shallow as shallow,
)
from .functional import (
    Module as Module,
    functionalize as functionalize,
)
from .network import Network as Network
from .placement import (
    memory_report as memory_report,
    placed as placed,
)
