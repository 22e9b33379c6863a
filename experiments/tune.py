"""Which settings are best for a learner, searched as in the paper?                  (ORAG C.2)

    uv run python -m experiments.tune learner=[greedy]
    uv run python -m experiments.tune learner=[paper_adamw] ~search \\
        '+search={tau:[1.0],eta:{low:1e-8,high:1e-5},batch:[5,10,20,30,40,50]}'

Bayesian optimisation (TPE, optuna) over temperature, step size, schedule and batch, on a tenth of
the queries that is not reported elsewhere: their nDCG by the final embeddings plus their success in
the stream, as in `jr.sweep(..).values`. The study is a journal in the run's directory, so a stopped
run continues with the remaining trials. The best grid setting of the learner's config is tried,
too, to show the gain of the search.

2 cores: DeskBank, 40 trials, a minute.
"""

import hashlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import learner_grid
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret.runtime.progress import Progress
from jaxret.runtime.validate import require

CHOICES = ("schedule", "batch")
Setting = Mapping[str, Any]


@experiment("tune")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run the remaining trials; return the best, and write the table of all."""
    import optuna

    (name, spec), search = chosen(cfg), plain(cfg.search)
    numbers = ("tau", rate_of(spec))
    value = score_of(cfg, name, spec, run)
    study = open_study(cfg, run)

    def objective(trial):
        return value({key: suggest(trial, key, space) for key, space in search.items()})

    def left():
        return cfg.trials - len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))

    with Progress(total=cfg.trials, initial=cfg.trials - left(), unit="trial") as bar:
        while left() > 0:
            run.pause(len(study.trials))
            study.optimize(objective, n_trials=1)
            bar.update()
            bar.set_postfix(best=f"{study.best_value:.3f}")
    run.tracker.curve("score", *_scores(study))
    _write_table(study, run)
    pairs = product(*(np.atleast_1d(spec[key]) for key in numbers))
    grid = [{key: float(x) for key, x in zip(numbers, pair, strict=True)} for pair in pairs]
    of_grid = [value(setting) for setting in grid]
    results = {"search/score": study.best_value, "grid/score": max(of_grid)}
    for row, best in {"search": study.best_params, "grid": grid[int(np.argmax(of_grid))]}.items():
        results |= {f"{row}/{key}": best[key] for key in numbers if key in best}
    results |= {"search/trials": len(study.trials), "grid/trials": len(grid)}
    print("best:", study.best_params)
    return {key: np.array([x]) for key, x in results.items()}


@main.check
def check(cfg: DictConfig) -> None:
    """Check the search space, before anything is loaded."""
    if find_spec("optuna") is None:
        raise ImportError("the search needs optuna: install jaxret[tune]")
    require("trials", cfg.trials, ">= 1", lambda n: n >= 1)
    name, spec = chosen(cfg)
    learner_grid(name, spec)
    check_search(plain(cfg.search), spec)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the best of the search beside the best of the grid."""
    name, spec = chosen(cfg)
    columns = ["score", "tau", rate_of(spec), "trials"]
    results_table(results, ["search", "grid"], columns, f"{cfg.dataset.name}, {name}")
    print(f"all trials: {cfg.directory}/trials.csv")


def chosen(cfg: DictConfig) -> tuple[str, dict[str, Any]]:
    """Return the learner whose settings are searched."""
    learners = plain(cfg.learners)
    require("learner", list(learners), "one learner", lambda names: len(names) == 1)
    return next(iter(learners.items()))


def rate_of(spec: Setting) -> str:
    """Return the name of the learner's step size setting."""
    return "eta" if "batch" in spec else "eta_over_tau"


def check_search(search: Mapping[str, Any], spec: Setting) -> None:
    """Raise ValueError if a search space is invalid."""
    known = ("tau", rate_of(spec), *CHOICES)
    if unknown := sorted(set(search) - set(known)):
        raise ValueError(f"search: unknown {unknown}; known: {', '.join(known)}")
    for name, space in search.items():
        if isinstance(space, list) and space:
            continue
        if name in CHOICES or not isinstance(space, dict) or set(space) != {"low", "high"}:
            raise ValueError(f"search: {name} must be a list of values; numbers also low and high")
        if not 0 < space["low"] < space["high"]:
            raise ValueError(f"search: {name} needs 0 < low < high, got {space}")


def score_of(
    cfg: DictConfig, name: str, spec: Setting, run: RunDirectory
) -> Callable[[Setting], float]:
    """Return a function from a setting to its score; stored scores are read."""
    task = task_of(cfg)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=[cfg.seed])
    seeds = range(cfg.seed, cfg.seed + cfg.seeds)
    stream: dict[str, Any] = {"exposures": cfg.exposures, "seeds": seeds, "chunk": cfg.chunk}

    def value(setting: Setting) -> float:
        made = {**spec, **{key: [setting[key]] for key in ("tau", rate_of(spec)) if key in setting}}
        if "batch" in setting:
            made["batch"] = setting["batch"]
        if "schedule" in setting:
            made["schedule"] = setting["schedule"]
            if setting["schedule"] == "cosine":
                rounds = cfg.exposures * len(task) // made.get("batch", 1)
                made["schedule"] = {"name": "cosine", "rounds": rounds}
        grid = learner_grid(name, made)
        step = f"trial-{hashlib.sha256(repr(sorted(setting.items())).encode()).hexdigest()[:12]}"

        def score():
            swept = jr.sweep(grid, task, resume=run.resume(step), **stream)
            values = swept.values(on=parts.validation[0], metric=f"ndcg@{cfg.k}")
            return {"score": values.mean(axis=1).max()}

        return float(run.result(step, score)["score"])

    return value


def open_study(cfg: DictConfig, run: RunDirectory):
    """Open the study in the run's directory, or create it."""
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
    """Suggest one of a list, or a number between low and high on a logarithmic scale."""
    if isinstance(space, list):
        return trial.suggest_categorical(name, space)
    return trial.suggest_float(name, space["low"], space["high"], log=True)


def _scores(study) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and the best score so far, by trial."""
    values = np.array([trial.value for trial in study.trials if trial.value is not None])
    return 1 + np.arange(len(values)), np.maximum.accumulate(values)


def _write_table(study, run: RunDirectory) -> None:
    names = sorted(study.best_params)
    lines = [",".join(["trial", "score", *names])]
    for trial in study.trials:
        row = [trial.number, trial.value, *(trial.params.get(name) for name in names)]
        lines.append(",".join(str(x) for x in row))
    (run.directory / "trials.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main.cli()
