"""What generating queries would cost, before anything is sent, and what went wrong, after."""

from collections import Counter
from collections.abc import Mapping

from omegaconf import DictConfig

from experiments.parts.asking import Estimate, announce, tokens
from jaxret.generation import judge
from jaxret.generation.pipeline import Settings, batch_questions
from jaxret.generation.questions import Draft, polish_question, seed_examples
from jaxret.llm import Price

STAGES = ("write", "polish", "judge")
ANSWER = {"write": 120, "polish": 60, "judge": 30}  # tokens, without thoughts


def plan(
    cfg: DictConfig, tools: Mapping[str, str], settings: Settings, prices: Mapping[str, Price]
) -> dict[str, float]:
    """Prints calls, tokens, cost and the first prompt: nothing is sent, and no key is needed.

    Of every stage one answer a question, and a query from every question: what is asked again
    comes on top, what is left out is not polished.
    """
    pool = seed_examples(cfg.dataset.name)
    first = [messages for _, messages in batch_questions(tools, settings, pool, [])]
    example = pool[0] if pool else Draft("a request", tuple(list(tools)[:2]), "why")
    wrote, instruction = settings.iterations * settings.batch, example.instruction
    asked = judge.PROMPT.messages(first=instruction, second=instruction)
    calls = {
        "write": (wrote, sum(map(tokens, first)) / len(first)),
        "polish": (wrote if cfg.polish else 0, tokens(polish_question(example))),
        "judge": (2 * min(cfg.judge.pairs, wrote), tokens(asked)),
    }
    estimates = {
        name: Estimate(calls=n, prompt=round(n * each), answer=n * ANSWER[name])
        for name, (n, each) in calls.items()
    }
    return announce(cfg, estimates, prices, first[0])


def shown(figures: Mapping[str, float], failures: Counter[str]) -> None:
    """Prints failures of every kind, tokens and cost."""
    wrong = ", ".join(f"{kind} {n:,}" for kind, n in failures.most_common())
    print(f"answers and queries that failed: {wrong or 'none'}")
    for kind in ("tokens", "cost"):
        said = {k.split("/", 1)[1]: v for k, v in figures.items() if k.startswith(f"{kind}/")}
        print(f"{kind}: {', '.join(f'{k} {v:,.6g}' for k, v in said.items()) or 'unknown'}")
