"""The language model of an experiment, or of each of its stages, from its config.

``llm`` in the config has the endpoint of all stages, ``stages.NAME`` the differences of one stage.
``llm.model``, if given, is the model of all stages, such as one server on this machine.
"""

from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from jaxret.llm import Chat, Endpoint, Price


def endpoint(cfg: DictConfig, stage: str | None = None) -> Endpoint:
    """Return the endpoint of a stage; None: of an experiment without stages."""
    everywhere = plain(cfg.llm)
    if stage is None:
        return Endpoint(**everywhere)
    own = plain(cfg.stages[stage])
    model = everywhere["model"] or own["model"]
    return Endpoint(**(everywhere | own | {"model": model}))


def chat(cfg: DictConfig, stage: str | None = None) -> Chat:
    """Connect to the model of `endpoint`, with its answers stored under the cache."""
    return Chat(endpoint(cfg, stage), cache_folder(cfg) / "llm")


def prices(cfg: DictConfig, stages: tuple[str, ...]) -> dict[str, Price]:
    """Return the prices of a million tokens, by stage."""
    return {name: Price(**plain(cfg.price[name])) for name in stages}
