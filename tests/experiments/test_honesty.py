"""What is reported has chosen nothing, and what has chosen or is held out was never streamed.

Each experiment runs in full on a small world, but no round is run and no query is ranked: what
it streams is noted instead, seed by seed, and rankings are made up so that the last setting of a
grid serves the first seed's validation part best, and every other part worst; for a second seed,
with a validation part of its own, the first setting does.
"""

from fnmatch import fnmatch

import numpy as np
import pytest

from experiments import orag
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from jaxret.data import near_duplicates
from jaxret.data.masks import draw_parts
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import METRICS, Ranker
from jaxret.types import Trace
from tests.experiments.honesty_cases import CASES, configure


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
