"""Turns a function into a command, with settings from Hydra, one-line errors and a table.

    @experiment("orag")                       # configs/orag.yaml
    def main(cfg, run):                       # computes; returns name -> one value per seed
        ...

    @main.check
    def check(cfg):                           # refuses wrong settings, before anything is written
        ...

    @main.show
    def show(cfg, results):                   # prints the results, new or stored
        ...

    if __name__ == "__main__":
        main.cli()

``main(cfg)`` opens the run's directory, computes what is missing, shows the results, and returns
the mean of each. `command` is for functions without a run, which only take ``cfg``.
"""

import functools
import importlib
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.common.config import CONFIGS, NAMES, check_shared, plain, register_learner_files
from experiments.common.help import help_text
from experiments.common.run_directory import RunDirectory, open_run
from jaxret.llm import OutOfReach, Unanswered
from jaxret.runtime import distributed, tracking

Results: TypeAlias = Mapping[str, Any]  # name -> one value per seed
Means: TypeAlias = dict[str, float]
Found: TypeAlias = dict[str, dict[str, Any]]  # value of `tracking.read_results`
Hook = TypeVar("Hook", bound=Callable)

#: Errors of wrong input.
WRONG_INPUT = (ValueError, KeyError, TypeError, ImportError, OSError, OutOfReach, Unanswered)
WRONG_CONFIG = (HydraException, OmegaConfBaseException)


class Command:
    """A function of a config that is also a command."""

    def __init__(self, function: Callable[..., Any], config: str):
        functools.update_wrapper(self, function)
        self.function, self.config = function, config

    def __call__(self, cfg: DictConfig) -> Any:
        _join(cfg)
        check_shared(cfg)
        return self.function(cfg)

    def __reduce__(self) -> tuple[Callable, tuple[str, str]]:
        """Pickle the command by name, like a function; ``__main__`` by the module's name."""
        module, spec = vars(self)["__module__"], getattr(sys.modules["__main__"], "__spec__", None)
        if module == "__main__" and spec is not None:
            module = spec.name
        return _named, (module, vars(self)["__name__"])

    def cli(self, config: str | None = None) -> None:
        """Run as a command; wrong input gives one line on standard error and status 2.

        ``--help`` prints what the experiment does and what each setting means. ``-v`` or
        HYDRA_FULL_ERROR=1 gives the traceback instead of the line.
        """
        if {"--help", "-h"} & {*sys.argv}:
            return self._help(config)
        verbose = "-v" in sys.argv or os.environ.get("HYDRA_FULL_ERROR") == "1"
        sys.argv = [word for word in sys.argv if word != "-v"]
        os.environ["HYDRA_FULL_ERROR"] = "1"  # lets Hydra raise, so that errors are printed here

        def job(cfg: DictConfig) -> None:
            begun_by = os.getppid()
            try:
                self(cfg)
            except (*WRONG_INPUT, *WRONG_CONFIG) as error:
                _refuse(error, verbose)
            except SystemExit as stopped:
                if _ended(begun_by):  # the whole sweep was stopped
                    _leave(stopped)
                raise

        job.__module__ = _module()  # names the job
        run = hydra.main(config_path=CONFIGS, config_name=config or self.config, version_base="1.3")
        try:
            register_learner_files(sys.argv[1:])
            run(job)()
        except (*WRONG_INPUT, *WRONG_CONFIG) as error:
            _refuse(error, verbose)

    def _help(self, config: str | None) -> None:
        module = "__main__" if config else vars(self)["__module__"]
        about = sys.modules[module].__doc__ or ""
        try:
            print(help_text(about, _config_name(sys.argv) or config or self.config))
        except FileNotFoundError as error:
            _refuse(error, verbose=False)


class Experiment(Command):
    """A command with a run: ``function(cfg, run)`` computes its results."""

    def __init__(self, function: Callable[[DictConfig, RunDirectory], Results], config: str):
        super().__init__(function, config)
        self._check: Callable[[DictConfig], Means | None] = lambda cfg: None
        self._show: Callable[[DictConfig, Found], None] = lambda cfg, results: None

    def check(self, hook: Hook) -> Hook:
        """Register ``check(cfg)``, which checks settings; a returned value replaces the run."""
        self._check = hook
        return hook

    def show(self, hook: Hook) -> Hook:
        """Register ``show(cfg, results)``, which prints results of `tracking.read_results`."""
        self._show = hook
        return hook

    def __call__(self, cfg: DictConfig) -> Means:
        _join(cfg)
        check_shared(cfg)
        if (instead := self._check(cfg)) is not None:
            return instead
        with open_run(cfg) as run:
            if run is not None:
                run.finish(self.function(cfg, run))
        distributed.wait()  # wait until the results are written
        found = tracking.read_results(cfg.directory)
        if distributed.leads():
            self._show(cfg, found)
            print(f"results and figures: {cfg.directory}")
        return {name: value["mean"] for name, value in found.items()}


def command(config: str) -> Callable[[Callable], Command]:
    """Make ``main(cfg)`` a command, with the settings of ``configs/CONFIG.yaml``."""
    return lambda function: Command(function, config)


def experiment(config: str) -> Callable[[Callable], Experiment]:
    """Make ``main(cfg, run)`` an experiment, with the settings of ``configs/CONFIG.yaml``."""
    return lambda function: Experiment(function, config)


def _named(module: str, name: str) -> Command:
    return getattr(importlib.import_module(module), name)


def one_line(error: Exception) -> str:
    """Format an error as one line; Hydra's errors without the searched paths."""
    text = str(error)
    found = re.search(r"Could not (?:find|load) '(\w+)/(\w+)'", text)
    if found and found[1] in NAMES:
        return f"unknown {found[1]} {found[2]!r}; known: {', '.join(NAMES[found[1]])}"
    if isinstance(error, (KeyError, TypeError)):
        text = f"{type(error).__name__}: {text}"
    text = re.split(r"\n *full_key:|Config search path:", text)[0].strip()
    text = re.sub(r":\n\t", ": ", text).replace("\n\t", ", ")
    return ". ".join(line.strip().rstrip(".") for line in text.splitlines() if line.strip())


def _join(cfg: DictConfig) -> None:
    """Join the other processes, if there are any, before anything else."""
    setting = cfg.get("distributed")
    distributed.start_as(plain(setting) if isinstance(setting, DictConfig) else setting)


def _config_name(words: Sequence[str]) -> str | None:
    """Return the value of ``--config-name`` on a command line."""
    found = re.search(r"(?:^| )(?:--config-name|-cn)[ =](\S+)", " ".join(words))
    return None if found is None else found[1]


def _refuse(error: Exception, verbose: bool) -> NoReturn:
    if verbose:
        raise error  # ends all processes
    print(one_line(error), file=sys.stderr)
    distributed.end(2)
    raise SystemExit(2)


def _ended(parent: int) -> bool:
    """Return whether the parent of this process has ended; a worker of a sweep waits a second.

    A signal to all processes of a sweep can stop a worker before it has ended the parent.
    """
    until = time.monotonic() + (1.0 if multiprocessing.parent_process() else 0.0)
    while os.getppid() == parent:
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True


def _leave(stopped: SystemExit) -> NoReturn:
    """End the process of a stopped sweep, which would otherwise begin the next point."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(stopped.code if isinstance(stopped.code, int) else 1)


def _module() -> str:
    """Return the experiment's module, whose last part names the job."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return Path(sys.argv[0]).stem if spec is None else spec.name.removesuffix(".__main__")
