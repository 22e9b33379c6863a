"""Who is asked, at the stages of experiments that ask language models.

``llm`` in the config says where all stages ask, ``stages.NAME`` what is otherwise for one of them.
``llm.model``, where it is said, is the model of all stages: one server on this machine, say.
"""

from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from jaxret.llm import Chat, Endpoint, Price


def endpoint(cfg: DictConfig, stage: str) -> Endpoint:
    """Who is asked at a stage."""
    everywhere, here = plain(cfg.llm), plain(cfg.stages[stage])
    model = everywhere["model"] or here["model"]
    return Endpoint(**(everywhere | here | {"model": model}))


def chat(cfg: DictConfig, stage: str) -> Chat:
    """A stage's model, with its memory under the cache."""
    return Chat(endpoint(cfg, stage), cache_folder(cfg) / "llm")


def prices(cfg: DictConfig, stages: tuple[str, ...]) -> dict[str, Price]:
    """What a million tokens cost, by stage."""
    return {name: Price(**plain(cfg.price[name])) for name in stages}
