"""Cases of tests/experiments/test_honesty.py: experiments that choose settings, and their parts."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from experiments import (
    compare_encoders,
    evaluate_retrieval,
    forgetting,
    orag,
    rerank,
    rivals,
    variance,
    warm_start,
)
from experiments.common.experiment import Experiment
from experiments.multihop import __main__ as multihop
from experiments.transfer import __main__ as transfer
from jaxret.data.dataset import split_by_group
from jaxret.data.hops import by_evidence
from jaxret.data.split import own_split
from tests.experiments.configs import config_of, in_world

LEFT_OUT = (
    "importance_weighted",
    "chosen_only",
    "clipped",
    "implicit_exploration",
    "bandit_likelihood",
    "debiased",
)
GREEDY = ["learners.greedy.tau=[0.03]", "learners.greedy.eta_over_tau=[0.01,0.1,0.3]"]
SIDES = ("minilm", "minilm_1_layers")


class Case(NamedTuple):
    """An experiment, its independently computed parts, and the parts each simulation may stream.

    Simulations are named as in `test_honesty.Streams`.
    """

    main: Experiment
    settings: list[str]
    parts: Callable  # (cfg, task, seed) -> {part: its queries}
    streams: dict[str, str]  # pattern of names -> parts of which every query is streamed
    tuned: dict[str, str]  # pattern of reported simulations -> the one that chooses the setting
    held: tuple[str, ...] = ()  # results of a simulation that also chooses
    within: Mapping[str, str] = MappingProxyType({})  # pattern -> parts that are streamed in part


def rows_of(parts):
    return {part: np.flatnonzero(mask) for part, mask in parts._asdict().items()}


def drawn(cfg, task, seed):
    return rows_of(task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=[seed]))


def chosen_and_rest(cfg, task, seed):
    """Split off a validation part; the rest is streamed."""
    [validation] = task.parts(validation=cfg.validation, seeds=[seed]).validation
    return {"validation": np.flatnonzero(validation), "training": np.flatnonzero(~validation)}


def own(cfg, task, seed):
    parts = own_split(task.dataset, **cfg.split)
    return {"training": parts.train, "validation": parts.validation, "heldout": parts.test}


def by_question(cfg, task, seed):
    """Split hops by question into a validation part and a rest, which is streamed."""
    chosen, rest = split_by_group(
        by_evidence(task.dataset).groups, (cfg.validation, 1 - cfg.validation), seed
    )
    return {"validation": chosen, "training": rest}


def single_labels(cfg, task, seed):
    """Split the queries with one label into a validation part and a rest, which is streamed."""
    rows = (task.labels >= 0).sum(axis=1) == 1
    validation = task.parts(validation=cfg.validation, seeds=[seed]).validation[0][rows]
    return {"validation": np.flatnonzero(validation), "training": np.flatnonzero(~validation)}


CASES = {
    "orag": Case(
        orag.main,
        ["seeds=2", "learner=[frozen,greedy]", "exposures=1", *GREEDY],
        drawn,
        {
            "*/heldout": "training",
            "*/choice": "training validation heldout",
            "*/online": "training heldout",
        },
        {"greedy/online": "greedy/choice"},
        ("greedy/heldout/ndcg@10", "greedy/heldout/recall@10"),
    ),
    "orag, swept on validation": Case(
        orag.main,
        ["sweep_on=validation", "learner=[greedy]", "exposures=1", *GREEDY],
        drawn,
        {"*/choice": "validation", "*/online": "training heldout"},
        {"greedy/online": "greedy/choice"},
    ),
    "transfer": Case(
        transfer.main,
        ["seeds=2", "learner=[frozen,greedy]", "exposures=1", "projections=[sphere]", *GREEDY],
        drawn,
        {
            "*-unseen": "training",
            "*-relearnt": "training",
            "*-online/choice": "training validation heldout",
            "*-online/stream": "training heldout",
        },
        {
            "greedy-sphere-online/stream": "greedy-sphere-online/choice",
            "greedy-sphere-later-*": "greedy-sphere-unseen",
        },
        ("greedy/sphere/heldout/ndcg@10", "greedy/encoder/relearnt"),
        {"*-later-*": "training"},
    ),
    "compare_encoders": Case(
        compare_encoders.main,
        ["seeds=2", "learner=[greedy]", *GREEDY],
        chosen_and_rest,
        {"*-choice": "training validation", "*-by-*": "training"},
        {f"greedy/*-by-{side}": f"greedy/{side}-choice" for side in SIDES},
    ),
    "rivals": Case(
        rivals.main,
        ["seeds=2", "learner=[frozen,greedy]", "rivals=[]", "against=frozen", *GREEDY],
        drawn,
        {"*/choice": "validation", "*/online": "training"},
        {"greedy/online": "greedy/choice"},
    ),
    "baselines": Case(
        evaluate_retrieval.main,
        [
            "document=full",
            "methods=[greedy]",
            "learner=[greedy]",
            "online={exposures:1,seeds:1,k:10,chunk:2048}",
            *GREEDY,
        ],
        own,
        {"greedy-stream": "training"},
        {},
    ),
    "warm_start": Case(
        warm_start.main,
        ["learner=[greedy]", "exposures=1", "templates.jsonl=[full]", "mixes=[0.5]", *GREEDY],
        lambda cfg, task, seed: rows_of(warm_start.part(task.groups, cfg)[1]),
        {"*-choice": "training validation", "*-own": "training"},
        {f"greedy-{start}-own": f"greedy-{start}-choice" for start in ("tool2vec", "mixture")},
    ),
    "forgetting": Case(
        forgetting.main,
        ["learner=[frozen,greedy]", "points=2", "tsne.tools=5", "tsne.queries=9", *GREEDY],
        drawn,
        {
            "*/choice": "training validation",
            "*/[13]": "training",  # frozen, then greedy: on training, then on training and heldout
            "*/[24]": "training heldout",
        },
        {"greedy/[34]": "greedy/choice"},
    ),
    "multihop": Case(
        multihop.main,
        [
            "learner=[reranked_greedy]",
            "learners.reranked_greedy.tau=[0.01]",
            "learners.reranked_greedy.eta_over_tau=[0.01,0.03,0.1]",
        ],
        by_question,
        {"*/choice": "training validation", "*/online": "training"},
        {"reranked_greedy/online": "reranked_greedy/choice"},
    ),
    "rerank": Case(
        rerank.main,
        [
            "learner=[reranked]",
            "rerankers=[none,simulated]",
            "learners.reranked.tau=[0.04]",
            "learners.reranked.eta_over_tau=[0.03,0.1,0.3]",
            "~learners.frozen",
        ],
        own,
        {"*-choice": "validation", "*-none": "heldout", "*-simulated": "heldout"},
        {"reranked-none": "reranked-choice", "reranked-simulated": "reranked-choice"},
    ),
    "variance": Case(
        variance.main,
        [
            "sizes=[all]",
            "rates=[0.0]",
            "tau=[0.02]",
            "eta_over_tau=[0.01,0.1,0.3]",
            "moments={tau:0.1,queries:9}",
            *(f"~learners.{name}" for name in LEFT_OUT),
        ],
        single_labels,
        {"*/choice": "training validation", "*/online": "training"},
        {
            f"{name}-all-0/online": f"{name}-all-0/choice"
            for name in ("banditron", "full_information")
        },
    ),
}


def configure(name, world, directory):
    case = CASES[name]
    where = in_world(world, directory)
    if name in ("transfer", "compare_encoders"):
        where += ["other.name=minilm", f"other.path={world / 'encoder'}", "other.layers=1"]
    return config_of(name.partition(",")[0], "seeds=1", *case.settings, *where)
