"""Separation of data in the experiments: reported results use no query that chose a setting.

Each experiment runs in full on a small world, except that no round is run and no query is ranked:
the tests record which queries are streamed for each seed and invent the rankings. For the first
seed, the last setting of a grid ranks that seed's validation part best and every other part worst.
The second seed has another validation part, for which the first setting is best.
"""

from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import forgetting, warm_start
from experiments.common import comparator
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import evaluate
from jaxret.simulation import simulate, sweep
from jaxret.simulation.engine import Simulation
from jaxret.simulation.sweep import Sweep
from jaxret.types import Trace
from tests.experiments.honesty_cases import CASES, configure


class Streams:
    """Replaces streaming and ranking, and records what each simulation requested.

    A simulation is named by its checkpoint folder relative to that of the run, ``STEP/NAME``. One
    without checkpoints is named by its learner and numbered from 1.
    """

    def __init__(self, patch, directory, validation):
        self.streamed = defaultdict(set)  # (simulation, seed) -> queries
        self.settings = defaultdict(list)  # (simulation, seed) -> distinct settings, in order
        self.ranked = defaultdict(set)  # (learner, seed) -> queries ranked for the report
        self.reported = defaultdict(set)  # (learner, seed) -> settings whose rankings are reported
        self.tried = defaultdict(list)  # (learner, seed) -> distinct settings, in order
        self._checkpoints = Path(directory) / "checkpoints"
        self._validation, self._nameless, self._chooses = validation, 0, False
        patch.setattr(simulate, "run_streams", self._of(simulate.run_streams, lambda path: path))
        patch.setattr(sweep, "run_streams", self._of(sweep.run_streams, lambda path: path.parent))
        patch.setattr(Simulation, "step", step)
        patch.setattr(Sweep, "best", self._choosing(Sweep.best))
        patch.setattr(evaluate, "_of_run", self._ranks)
        patch.setattr(RunDirectory, "save_figure", lambda *figure: None)
        patch.setattr(forgetting.tsne, "project", lambda vectors, seed: vectors[:, :2])
        without_comparator(patch)

    def of(self, pattern):
        """Return the (simulation, seed) pairs that match a pattern."""
        found = [key for key in self.streamed if fnmatch(key[0], pattern)]
        assert found, f"no simulation {pattern} in {list(self.streamed)}"
        return found

    def _of(self, run_streams, folder):
        def noted(simulation, settings, orders, *, name, resume=None, after=None):
            if resume is not None:
                name = str(folder(Path(resume)).relative_to(self._checkpoints))
            else:
                self._nameless += after is None
                name = f"{name}/{self._nameless}"
            learner = simulation._program.family(*settings[0]).name
            for seed, numbers, queries in zip(simulation.seeds, settings, orders, strict=True):
                self.streamed[name, seed] |= set(queries[queries >= 0].tolist())
                for kept in (self.settings[name, seed], self.tried[learner, seed]):
                    if (setting := tuple(np.float32(numbers).tolist())) not in kept:
                        kept.append(setting)
            return run_streams(simulation, settings, orders, name=name, resume=None, after=after)

        return noted

    def _choosing(self, best):
        def chosen(*arguments, **settings):
            self._chooses = True
            found = best(*arguments, **settings)
            self._chooses = False
            return found

        return chosen

    def _ranks(self, run, task, masks):
        def of_cut(k):
            values = np.full((len(run.seeds), len(task)), np.nan)
            for row, seed in enumerate(run.seeds):
                mask = np.broadcast_to(masks, values.shape)[row]
                queries = set(np.flatnonzero(mask).tolist())
                setting = tuple(np.float32(run.numbers[row]).tolist())
                rise = 0.1 * (1 + self.tried[run.name, seed].index(setting))
                serves = (queries <= self._validation[seed]) == (seed == 0)
                values[row, mask] = rise if serves else 1 - rise
                if not self._chooses:
                    self.ranked[run.name, seed] |= queries
                    self.reported[run.name, seed].add(setting)
            names = ("accuracy", f"recall@{k}", f"ndcg@{k}", f"completeness@{k}")
            return dict.fromkeys(names, values)

        return of_cut


def without_comparator(patch):
    """Let no comparator be solved for: the regret of rounds that are not run has no meaning."""

    def losses(theta, queries, *_, **__):
        return SimpleNamespace(theta=theta), 0 * queries[:, 0]

    for module in (comparator, warm_start):
        patch.setattr(module, "proximal_losses", losses)


def step(simulation, states, settings, order):
    """Return the state unchanged and a trace of zeros in place of rounds."""
    kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
    return states, Trace._make(np.zeros(order.shape, kind) for kind in kinds.values())


@pytest.fixture(scope="module", params=CASES)
def noted(request, world, tmp_path_factory):
    """Return a case, the positions of its parts, the recorded streams and the results."""
    case = CASES[request.param]
    cfg = configure(request.param, world, tmp_path_factory.mktemp("run"))
    task = task_of(cfg)
    parts = {
        seed: {part: set(rows.tolist()) for part, rows in case.parts(cfg, task, seed).items()}
        for seed in range(cfg.seed, cfg.seed + cfg.seeds)
    }
    validation = {seed: some["validation"] for seed, some in parts.items()}
    assert not any(some["validation"] & some["training"] for some in parts.values())
    assert len(set(map(frozenset, validation.values()))) == cfg.seeds
    with pytest.MonkeyPatch.context() as patch:
        streams = Streams(patch, cfg.directory, validation)
        results = case.main(cfg)
    return case, parts, streams, results


def test_a_simulation_streams_the_parts_that_it_may_and_no_other_query(noted):
    case, parts, found, _ = noted
    for pattern, allowed in (case.streams | case.within).items():
        for name, seed in found.of(pattern):
            expected = set().union(*(parts[seed][part] for part in allowed.split()))
            streamed = found.streamed[name, seed]
            if pattern in case.within:
                assert set() < streamed < expected, (name, seed)
            else:
                assert streamed == expected, (name, seed)


def test_reported_runs_have_the_setting_that_is_best_on_the_validation_part(noted):
    case, _, found, results = noted
    for reported, chooses in case.tuned.items():
        for name, seed in found.of(reported):
            tried = found.settings[chooses, seed]
            assert len(tried) == 3
            assert found.settings[name, seed] == [tried[0 if seed else -1]], (name, seed)
    for (name, seed), settings in found.reported.items():
        tried = found.tried[name, seed]
        assert settings == {tried[0 if seed else -1]}, (name, seed)
    for key in case.held:  # mean of the last of .9, .8, .7 and the first of .1, .2, .3
        assert results[key] == pytest.approx(0.4)


def test_no_query_that_chose_is_among_those_that_are_ranked_for_the_report(noted):
    _, parts, found, _ = noted
    assert found.ranked
    for (name, seed), ranked in found.ranked.items():
        assert not ranked & parts[seed]["validation"], (name, seed)
