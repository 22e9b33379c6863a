"""The language model of an experiment, or of each of its stages, from its config.

``llm`` in the config has the endpoint of all stages, ``stages.NAME`` the differences of one stage.
``llm.model``, if given, is the model of all stages, such as one server on this machine.
"""

from collections.abc import Mapping

from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from experiments.common.run_directory import RunDirectory
from jaxret.llm import Chat, Endpoint, Price, Prompt, Stage, replace_prompts


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


def prompt(cfg: DictConfig, name: str, ours: Prompt) -> Prompt:
    """Read the prompt that the config gives under ``prompts.NAME``, or return ours."""
    return replace_prompts({name: ours}, plain(cfg.prompts))[name]


def stages(cfg: DictConfig, run: RunDirectory, chats: Mapping[str, Chat]) -> dict[str, Stage]:
    """Make the stages of a pipeline from the models that they ask; each stops with the run."""

    def before():
        run.pause(sum(chat.counts["asked"] + chat.counts["cached"] for chat in chats.values()))

    return {n: Stage(chat, patience=cfg.patience, before=before) for n, chat in chats.items()}


def tokens(chat: Chat, side: str) -> int:
    """Count the tokens of prompts or completions (``side``) of all answers, new or stored."""
    return chat.counts[f"{side}_tokens"] + chat.counts[f"cached_{side}_tokens"]


def prices(cfg: DictConfig, stages: tuple[str, ...]) -> dict[str, Price]:
    """Return the prices of a million tokens, by stage."""
    return {name: Price(**plain(cfg.price[name])) for name in stages}
