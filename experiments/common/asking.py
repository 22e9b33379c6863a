"""Who is asked, at the stages of experiments that ask language models.

``llm`` in the config says where all stages ask, ``stages.NAME`` what is otherwise for one of them.
"""

from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from jaxret.llm import Chat, Endpoint, Price


def endpoint(cfg: DictConfig, stage: str) -> Endpoint:
    """Who is asked at a stage."""
    return Endpoint(**(plain(cfg.llm) | plain(cfg.stages[stage])))


def chat(cfg: DictConfig, stage: str) -> Chat:
    """A stage's model, with its memory under the cache."""
    return Chat(endpoint(cfg, stage), cache_folder(cfg) / "llm")


def prices(cfg: DictConfig, stages: tuple[str, ...]) -> dict[str, Price]:
    """What a million tokens cost, by stage."""
    return {name: Price(**plain(cfg.price[name])) for name in stages}
