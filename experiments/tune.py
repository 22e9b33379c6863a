"""Which settings serve a learner best, searched as the paper does?                  (ORAG C.2)

    uv run python -m experiments.tune learner=greedy
    uv run python -m experiments.tune learner=paper_adamw search.tau=[1.0] \\
        search.step.low=1e-8 search.step.high=1e-5 +search.batch=[5,10,20,30,40,50]

Bayesian optimisation (TPE, optuna) over temperature, step size, schedule and batch, on the tenth of
the queries that no other number is taken from: their nDCG by the final embeddings plus their
success in the stream, as `experiments.parts.tuning` has it for grids. The study is a journal in the
run's directory: a run that is stopped goes on with the trials that are left. The best grid setting
of the learner's config is tried too, so that the table says what the search was worth.

2 cores: DeskBank, 40 trials, a minute.
"""

import hashlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig
from tqdm import tqdm

from experiments.parts import learners, problem, show
from experiments.parts.config import CONFIGS, plain
from experiments.parts.learners import Rival
from experiments.parts.player import Player
from experiments.parts.run import Run, open_run
from experiments.parts.tuning import METRICS, Ranker, orders, tune
from jaxret import tracking
from jaxret.online.environment import Environment

NUMBERS, CHOICES = ("tau", "step"), ("schedule", "batch")
Setting = Mapping[str, Any]


@hydra.main(config_path=CONFIGS, config_name="tune", version_base="1.3")
def cli(cfg: DictConfig) -> dict[str, float]:
    return main(cfg)


def main(cfg: DictConfig) -> dict[str, float]:
    """Searches, or reads what was found before; returns the mean of every result."""
    if find_spec("optuna") is None:
        raise ImportError("the search needs optuna: install jaxret[tune]")
    [(name, spec)] = plain(cfg.learners).items()
    search = plain(cfg.search)
    check(search)
    rival = learners.build(name, spec)
    with open_run(cfg) as run:
        if run is not None:
            compute(cfg, name, spec, rival, search, run)
    results = tracking.read_results(cfg.directory)
    columns = ["score", *NUMBERS, "trials"]
    show.results_table(results, ["search", "grid"], columns, f"{cfg.dataset.name}, {name}")
    print(f"all trials: {cfg.directory}/trials.csv")
    return {name: value["mean"] for name, value in results.items()}


def check(search: Mapping[str, Any]) -> None:
    """Raises ValueError for what cannot be searched."""
    known = (*NUMBERS, *CHOICES)
    if unknown := sorted(set(search) - set(known)):
        raise ValueError(f"search: unknown {unknown}; known: {', '.join(known)}")
    for name, space in search.items():
        if isinstance(space, list) and space:
            continue
        if name in CHOICES or not isinstance(space, dict) or set(space) != {"low", "high"}:
            raise ValueError(f"search: {name} must be a list of values; numbers also low and high")
        if not 0 < space["low"] < space["high"]:
            raise ValueError(f"search: {name} needs 0 < low < high, got {space}")


def compute(
    cfg: DictConfig, name: str, spec: Setting, rival: Rival, search: Setting, run: Run
) -> None:
    """Runs the trials that are left; writes the best, and the table of all."""
    import optuna

    value = score_of(cfg, name, spec, run)
    study = open_study(cfg, run)

    def objective(trial):
        return value({key: suggest(trial, key, space) for key, space in search.items()})

    def left():
        return cfg.trials - len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))

    with tqdm(total=cfg.trials, initial=cfg.trials - left(), unit="trial") as bar:
        while left() > 0:
            run.pause(len(study.trials))
            study.optimize(objective, n_trials=1)
            bar.update()
            bar.set_postfix(best=f"{study.best_value:.3f}")
    run.tracker.curve("score", *_scores(study))
    _write_table(study, run)
    grid = [{"tau": float(tau), "step": float(step)} for tau, step in rival.steps]
    of_grid = [value(setting) for setting in grid]
    results = {"search/score": study.best_value, "grid/score": max(of_grid)}
    for row, best in {"search": study.best_params, "grid": grid[int(np.argmax(of_grid))]}.items():
        results |= {f"{row}/{key}": best[key] for key in NUMBERS if key in best}
    results |= {"search/trials": len(study.trials), "grid/trials": len(grid)}
    run.finish({key: np.array([x]) for key, x in results.items()})
    print("best:", study.best_params)


def score_of(cfg: DictConfig, name: str, spec: Setting, run: Run) -> Callable[[Setting], float]:
    """What a setting is worth; what was computed before is read."""
    task = problem.load(cfg)
    parts = problem.part(task.dataset, cfg.validation, cfg.heldout, cfg.seed)
    seeds, ranker = range(cfg.seed, cfg.seed + cfg.seeds), Ranker(task, cfg.k)
    stream = orders(np.ones(len(task.queries), bool), cfg.exposures, seeds)
    players: dict[str, Player] = {}  # one compiled program for all numbers

    def value(setting: Setting) -> float:
        made = {**spec, **{key: [setting[key]] for key in NUMBERS if key in setting}}
        if "batch" in setting:
            made["batch"] = setting["batch"]
        if "schedule" in setting:
            made["schedule"] = {"name": setting["schedule"]}
            if setting["schedule"] == "cosine":
                made["schedule"]["rounds"] = stream.shape[1] // made.get("batch", 1)
        rival = learners.build(name, made)
        structure = repr({key: setting.get(key) for key in CHOICES})
        if structure not in players:
            arrays = (task.theta_1, task.queries, task.labels, Environment())
            players[structure] = Player(run, rival.make, *arrays, seeds=seeds, chunk=cfg.chunk)
        unit = hashlib.sha256(repr(sorted(setting.items())).encode()).hexdigest()[:12]
        found = tune(f"trial-{unit}", rival, players[structure], ranker, stream, parts)
        ndcg = found["validation"][..., METRICS.index("ndcg@{k}")]
        return float((ndcg + found["online"]).mean(axis=1).max())

    return value


def open_study(cfg: DictConfig, run: Run):
    """The study in the run's directory: new, or as it was left."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run.directory.mkdir(parents=True, exist_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(run.directory / "study.log"))
    return optuna.create_study(
        study_name="study",
        direction="maximize",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.TPESampler(seed=cfg.seed),
        load_if_exists=True,
    )


def suggest(trial, name: str, space: Any) -> Any:
    """One of a list, or a number between low and high by its logarithm."""
    if isinstance(space, list):
        return trial.suggest_categorical(name, space)
    return trial.suggest_float(name, space["low"], space["high"], log=True)


def _scores(study) -> tuple[np.ndarray, np.ndarray]:
    """The best so far, by trial."""
    values = np.array([trial.value for trial in study.trials if trial.value is not None])
    return 1 + np.arange(len(values)), np.maximum.accumulate(values)


def _write_table(study, run: Run) -> None:
    names = sorted(study.best_params)
    lines = [",".join(["trial", "score", *names])]
    for trial in study.trials:
        row = [trial.number, trial.value, *(trial.params.get(name) for name in names)]
        lines.append(",".join(str(x) for x in row))
    (run.directory / "trials.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    cli()
