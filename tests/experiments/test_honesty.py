"""What is reported has chosen nothing, and what has chosen or is held out was never streamed.

Each experiment runs in full on a small world, but no round is run and no query is ranked: what
it streams is noted instead, seed by seed, and rankings are made up so that the last setting of a
grid serves the first seed's validation part best, and every other part worst; for a second seed,
with a validation part of its own, the first setting does.
"""

from collections.abc import Callable
from fnmatch import fnmatch
from typing import NamedTuple

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from experiments import evaluate_retrieval, orag, rerank
from experiments.common.config import CONFIGS
from experiments.common.experiment import Experiment
from experiments.common.loading import draw_parts, load_task
from experiments.common.run_directory import RunDirectory
from experiments.forgetting import __main__ as forgetting
from experiments.multihop import __main__ as multihop
from experiments.transfer import __main__ as transfer
from experiments.variance import __main__ as variance
from experiments.warm_start import __main__ as warm_start
from jaxret.data import near_duplicates
from jaxret.data.dataset import split_by_group
from jaxret.data.hops import by_evidence
from jaxret.data.split import own_split
from jaxret.online.choosing import tune
from jaxret.online.grids import LearnerGrid
from jaxret.online.ranker import METRICS, Ranker
from jaxret.online.simulation import Simulation
from jaxret.types import Trace

SMALL = ["dataset=jsonl", "tracking=files", "seeds=1"]
NOT_PLAYED = (
    "importance_weighted",
    "chosen_only",
    "clipped",
    "implicit_exploration",
    "bandit_likelihood",
    "debiased",
)
GREEDY = ["learners.greedy.tau=[0.03]", "learners.greedy.eta_over_tau=[0.01,0.1,0.3]"]


class Streams:
    """Stands where rounds are run and queries ranked; keeps what each unit asked for."""

    def __init__(self, patch, validation):
        self.streamed: dict[str, list[set[int]]] = {}  # unit -> of each of its seeds
        self.settings: dict[str, list[list[tuple]]] = {}  # all different, in order
        self.ranked: dict[str, list[set[int]]] = {}
        self._unit = ""
        streams, compute = self, RunDirectory._compute

        def unit(run, name, **given):
            streams._unit = name
            for kept, kind in ((streams.streamed, set), (streams.ranked, set)):
                kept.setdefault(name, [kind() for _ in validation])
            streams.settings.setdefault(name, [[] for _ in validation])
            found = compute(run, name, **given)
            streams._unit = ""
            return found

        def step(simulation, states, settings, order):
            for row, (queries, numbers) in enumerate(zip(order, np.float32(settings), strict=True)):
                streams.streamed[streams._unit][row] |= set(queries[queries >= 0].tolist())
                if (setting := tuple(numbers.tolist())) not in streams.settings[streams._unit][row]:
                    streams.settings[streams._unit][row].append(setting)
            kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
            return states, Trace._make(np.zeros(order.shape, kind) for kind in kinds.values())

        def each(ranker, states, part, scores=None):
            masks = np.broadcast_to(part, (len(states.theta), part.shape[-1]))
            values = np.full((len(masks), len(METRICS), masks.sum(axis=1).max()), np.nan)
            for row, mask in enumerate(masks):
                rows = set(np.flatnonzero(mask).tolist())
                rise = 0.0
                if streams._unit:
                    streams.ranked[streams._unit][row] |= rows
                    rise = 0.1 * len(streams.settings[streams._unit][row])
                serves = (rows <= validation[row]) == (row == 0)
                values[row, :, : len(rows)] = rise if serves else 1 - rise
            return values

        patch.setattr(RunDirectory, "_compute", unit)
        patch.setattr(RunDirectory, "save_figure", lambda *figure: None)
        patch.setattr(Simulation, "step", step)
        patch.setattr(Ranker, "each", each)


class Case(NamedTuple):
    """An experiment: its parts, made here once more, and what each unit may stream of them."""

    main: Experiment
    settings: list[str]
    parts: Callable  # (cfg, task, seed) -> name of a part -> its queries
    streams: dict[str, str]  # pattern of units -> parts of which they stream every query
    tuned: dict[str, str]  # unit that is reported -> unit that chooses its setting
    held: tuple[str, ...] = ()  # results that a unit has measured while it chose
    within: tuple[tuple[str, str], ...] = ()  # units, and the parts of which they stream some


def rows_of(parts):
    return {part: np.flatnonzero(mask) for part, mask in parts._asdict().items()}


def drawn(cfg, task, seed):
    return rows_of(draw_parts(task.groups, cfg.validation, cfg.heldout, seed))


def own(cfg, task, seed):
    parts = own_split(task.dataset, **cfg.split)
    return {"training": parts.train, "validation": parts.validation, "heldout": parts.test}


def by_task(cfg, task, seed):
    """Of the hops; all that is not validation is streamed."""
    chosen, rest = split_by_group(
        by_evidence(task.dataset).groups, (cfg.validation, 1 - cfg.validation), seed
    )
    return {"validation": chosen, "training": rest}


def single_labels(cfg, task, seed):
    """Of the queries with one label; what is not validation is streamed."""
    rows = (task.labels >= 0).sum(axis=1) == 1
    validation = draw_parts(task.groups, cfg.validation, 0.5, seed).validation[rows]
    return {"validation": np.flatnonzero(validation), "training": np.flatnonzero(~validation)}


CASES = {
    "orag": Case(
        orag.main,
        ["seeds=2", "learner=[frozen,greedy]", "exposures=1", *GREEDY],
        drawn,
        {
            "*-heldout": "training",
            "*-choice": "training validation heldout",
            "*-online": "training heldout",
        },
        {"greedy-online": "greedy-choice"},
        ("greedy/heldout/ndcg@10", "greedy/heldout/recall@10"),
    ),
    "orag, choosing on validation": Case(
        orag.main,
        ["choosing=validation", "learner=[greedy]", "exposures=1", *GREEDY],
        drawn,
        {"*-choice": "validation", "*-online": "training heldout"},
        {"greedy-online": "greedy-choice"},
    ),
    "transfer": Case(
        transfer.main,
        ["seeds=2", "learner=[frozen,greedy]", "exposures=1", "projections=[sphere]", *GREEDY],
        drawn,
        {
            "*-heldout": "training",
            "*-unseen": "training",
            "*-relearnt": "training",
            "*-choice": "training validation heldout",
            "*-online": "training heldout",
        },
        {
            "greedy-sphere-online": "greedy-sphere-choice",
            "greedy-sphere-unseen": "greedy-sphere-heldout",
            "greedy-sphere-later-0": "greedy-sphere-heldout",
            "greedy-sphere-later-1": "greedy-sphere-heldout",
        },
        ("greedy/encoder/relearnt",),
        (("*-later-*", "training"),),
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
        {"*-tuning": "training", "*-stream": "training"},
        {"greedy-stream": "greedy-tuning"},
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
            "*-choice": "training validation",
            "*-heldout": "training",
            "*-stream": "training heldout",
        },
        {"greedy-heldout": "greedy-choice", "greedy-stream": "greedy-choice"},
    ),
    "multihop": Case(
        multihop.main,
        [
            "learner=[reranked_greedy]",
            "learners.reranked_greedy.tau=[0.01]",
            "learners.reranked_greedy.eta_over_tau=[0.01,0.03,0.1]",
        ],
        by_task,
        {"*-choice": "training validation", "*-online": "training"},
        {"reranked_greedy-online": "reranked_greedy-choice"},
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
        {"*-tuning": "validation", "*-none": "heldout", "*-simulated": "heldout"},
        {"reranked-none": "reranked-tuning", "reranked-simulated": "reranked-tuning"},
    ),
    "variance": Case(
        variance.main,
        [
            "sizes=[all]",
            "rates=[0.0]",
            "tau=[0.02]",
            "eta_over_tau=[0.01,0.1,0.3]",
            "moments={tau:0.1,queries:9}",
            *(f"~learners.{name}" for name in NOT_PLAYED),
        ],
        single_labels,
        {"*-tuning": "training validation", "*-online": "training"},
        {
            f"{name}-all-0-online": f"{name}-all-0-tuning"
            for name in ("banditron", "full_information")
        },
    ),
}


def configure(name, world, directory):
    case = CASES[name]
    where = [
        f"dataset.path={world / 'data'}",
        f"encoder.path={world / 'encoder'}",
        f"cache={world / 'cache'}",
        f"directory={directory}",
    ]
    if name == "transfer":
        where += [f"other.path={world / 'encoder'}", "other.layers=1"]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(name.partition(",")[0], [*SMALL, *case.settings, *where])


@pytest.fixture(scope="module", params=CASES)
def noted(request, world, tmp_path_factory):
    """An experiment's case, the positions of its parts, and what its units asked for."""
    name = request.param
    cfg = configure(name, world, tmp_path_factory.mktemp("run"))
    task, seeds = load_task(cfg), range(cfg.seed, cfg.seed + cfg.seeds)
    each = [CASES[name].parts(cfg, task, seed) for seed in seeds]
    parts = [{part: set(rows.tolist()) for part, rows in some.items()} for some in each]
    assert not any(some["validation"] & some["training"] for some in parts)
    assert len({tuple(sorted(some["validation"])) for some in parts}) == len(seeds)
    with pytest.MonkeyPatch.context() as patch:
        streams = Streams(patch, [some["validation"] for some in parts])
        results = CASES[name].main(cfg)
    return CASES[name], parts, streams, results


def seeds_of(unit, found):
    """Positions of a unit's seeds, and what it did for each."""
    if "-later-" in unit:  # one seed's
        yield int(unit[-1]), found[unit][0]
    else:
        yield from enumerate(found[unit])


def test_a_unit_streams_the_parts_that_it_may_and_no_other_query(noted):
    case, parts, found, _ = noted
    for pattern, allowed in case.streams.items():
        units = [unit for unit in found.streamed if fnmatch(unit, pattern)]
        assert units, f"no unit {pattern} in {list(found.streamed)}"
        for unit in units:
            for seed, streamed in seeds_of(unit, found.streamed):
                expected = set().union(*(parts[seed][part] for part in allowed.split()))
                assert streamed == expected, (unit, seed)
    for pattern, allowed in case.within:
        units = [unit for unit in found.streamed if fnmatch(unit, pattern)]
        assert units, f"no unit {pattern} in {list(found.streamed)}"
        for unit in units:
            for seed, streamed in seeds_of(unit, found.streamed):
                assert streamed, unit
                assert streamed < set().union(*(parts[seed][part] for part in allowed.split()))


def test_what_is_reported_has_the_setting_that_validates_best_and_not_the_one_it_favours(noted):
    case, _, found, results = noted
    for reported, chooses in case.tuned.items():
        for seed, settings in seeds_of(reported, found.settings):
            tried = found.settings[chooses][seed]
            assert len(tried) == 3
            assert settings == [tried[0 if seed else -1]], (reported, seed)
    for key in case.held:  # mean of the last of .9, .8, .7 and of the first of .1, .2, .3
        assert results[key] == pytest.approx(0.4)


def test_no_query_that_chose_is_among_those_that_are_ranked_for_the_report(noted):
    case, parts, found, _ = noted
    for reported in case.tuned:
        for seed, ranked in seeds_of(reported, found.ranked):
            assert not ranked & parts[seed]["validation"], (reported, seed)


class Known:
    """A simulation of one round in which setting g of three is known by its rate."""

    chunk, scores = 4, None

    def setting(self, tau, eta):
        return np.array([[tau, eta]])

    def cut(self, orders):
        return [orders]

    def start(self, setting):
        return setting

    def step(self, states, setting, order):
        kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
        trace = Trace._make(np.zeros(order.shape, kind) for kind in kinds.values())
        online = ONLINE[int(setting[0, 1])]
        return setting, trace._replace(success=np.where(order == 0, online, 1 - online))


ONLINE = (0.0, 0.0, 0.6)  # success of the one validation query, by setting


def chosen(validation, streamed):
    """The setting that `tune` picks, where held-out queries favour the first one."""

    def ranker(states, part, scores):
        served = validation if part[0] else (1.0, 0.0, 0.0)
        return np.full((1, len(METRICS)), served[int(states[0, 1])])

    def unit(*, chunks, start, step, finish, **given):
        state = start()
        for number in range(chunks):
            state = step(state, number)
        return finish(state)

    grid = LearnerGrid("three", lambda tau, eta: None, np.array([[1.0, g] for g in range(3)]))
    first = np.array([True, False, False, False])
    order = np.array([[q for q in range(3) if streamed or q]])
    ranked = {"heldout": ~first}
    found = tune(unit, grid, Known(), ranker, order, validation=first, ranked=ranked)
    return found["best"]


def test_a_setting_is_chosen_by_the_validation_part_alone():
    assert chosen(validation=(0.1, 0.5, 0.2), streamed=False) == 1


def test_success_in_the_stream_counts_where_the_validation_part_is_streamed():
    assert chosen(validation=(0.1, 0.5, 0.2), streamed=True) == 2  # 0.2 + 0.6


def test_near_duplicates_and_new_queries_are_the_held_out_part_in_two(world, tmp_path):
    cfg = configure("orag", world, tmp_path)
    cfg.learners, cfg.seeds = {"frozen": cfg.learners.frozen}, 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_duplicates, "NEAR", 0.2)
        results = orag.main(cfg)
        task = load_task(cfg)
        parts = draw_parts(task.groups, cfg.validation, cfg.heldout, cfg.seed)
        near = near_duplicates.near(task.texts, parts.heldout, parts.training)
    share = near.sum() / parts.heldout.sum()  # of the one seed
    assert 0 < share < 1
    for metric in ("recall@10", "ndcg@10"):
        whole, old, new = (
            results[f"frozen/{part}/{metric}"]
            for part in ("heldout", "heldout_near", "heldout_new")
        )
        assert whole == pytest.approx(share * old + (1 - share) * new)
        assert old != new
