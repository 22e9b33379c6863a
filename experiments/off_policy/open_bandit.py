"""Real logs of two policies that served side by side: does each estimate the other's value?

    uv run python -m experiments.off_policy.open_bandit dataset.path=FOLDER

The Open Bandit Dataset (github.com/st-tech/zr-obp, ``obd/{random,bts}/{men,women}``; Saito, Aihara,
Matsutani and Narita 2021, arXiv 2008.07146; CC BY 4.0), here as ``{random,bts}_{men,women}.csv`` in
one folder, has 10,000 impressions of a random policy and of Bernoulli Thompson sampling in each of
two campaigns. A fashion shop showed items at three places of a page; each impression is a round.
There are no texts and so no task; the query is the place, and features of users are not used.

From the log of one policy the experiment estimates the value of the other, taken as the policy with
the item frequencies, by place, of the other log. The mean reward of the other log is the truth,
with its own standard error. Few impressions are clicked (46 to 69), so there is no pass or fail,
only a difference and its error. For CAMPAIGN/LOG/ESTIMATOR:

    estimate, error    with its standard error, from the deviation of its terms (for SNIPS, of the
                       ratio)
    difference, sigma  from the mean reward of the other log; divided by the standard error of both

Letters: T rounds, I items, P places.

5 seconds. Expect differences of at most 1.6 standard errors. Thompson sampling's log of women has
one weight in the thousands: 2 effective rounds, and an uninformative interval for IPS.
"""

import csv
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.experiment import Found, Results, experiment
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import markdown
from jaxret.logs import Log
from jaxret.offline import estimators
from jaxret.offline.off_policy import CLIP, TRUNCATION, go_through
from jaxret.offline.snapshots import target
from jaxret.runtime.files import existing
from jaxret.runtime.validate import require

HEAD = ("campaign", "log", "effective", "the other earned", "estimator", "estimate", "difference")
HEAD += ("in errors of both", "low", "high")
ESTIMATORS = ("IPS", "SNIPS", "clipped IPS", "DR", "Switch-DR", "DRos")
POLICIES = ("random", "bts")
FIELDS = ("item_id", "position", "click", "propensity_score")


class Impressions(NamedTuple):
    """A log, and the place of each round."""

    log: Log  # the query is the position as a unit vector [P]
    place: Int[np.ndarray, " T"]  # position, from 0
    items: int  # I

    @property
    def frequencies(self) -> Float[np.ndarray, "P I"]:
        """Compute how often each item was shown at each place, an estimate of the policy."""
        counts = np.zeros((self.log.query.shape[1], self.items))
        np.add.at(counts, (self.place, self.log.item), 1)
        return counts / counts.sum(axis=1, keepdims=True)


@experiment("off_policy_open_bandit")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Evaluate each policy by the other's log, in each campaign."""
    results = {}
    for campaign in cfg.campaigns:
        both = {name: load(cfg.dataset.path, name, campaign) for name in POLICIES}
        for name, other in (POLICIES, POLICIES[::-1]):
            found = compared(both[name], both[other], cfg.alpha)
            results |= {f"{campaign}/{name}/{key}": np.array([x]) for key, x in found.items()}
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check the folder and the campaigns."""
    require("dataset.path", cfg.dataset.path, "the folder of the logs", lambda x: x is not None)
    require("alpha", cfg.alpha, "in (0, 1)", lambda x: 0 < x < 1)
    for campaign in cfg.campaigns:
        require("campaigns", campaign, "men or women", ("men", "women").__contains__)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a row per estimator, in clicks per thousand impressions, and store the table."""
    pairs = [(campaign, log) for campaign in cfg.campaigns for log in POLICIES]
    rows = [row(f"{c}/{log}", name, results) for c, log in pairs for name in ESTIMATORS]
    text = markdown(HEAD, rows)
    (Path(cfg.directory) / "open_bandit.md").write_text(text + "\n")
    print(text)


def row(place: str, estimator: str, results: Found) -> list[str]:
    """Format the row of an estimator on a log; missing bounds are empty."""

    def per_thousand(name: str, form: str = ".2f") -> str:
        found = results.get(f"{place}/{name}")
        return "" if found is None else format(1e3 * found["mean"], form)

    return [
        *place.split("/"),
        f"{results[f'{place}/effective']['mean']:,.0f}",
        f"{per_thousand('truth')} ± {per_thousand('truth_error')}",
        estimator,
        f"{per_thousand(f'{estimator}/estimate')} ± {per_thousand(f'{estimator}/error')}",
        per_thousand(f"{estimator}/difference", "+.2f"),
        f"{results[f'{place}/{estimator}/sigma']['mean']:+.1f}",
        per_thousand(f"{estimator}/low"),
        per_thousand(f"{estimator}/high"),
    ]


def compared(mine: Impressions, other: Impressions, alpha: float) -> dict[str, float]:
    """Compare one log's estimates of another log's policy with that log's mean reward."""
    probabilities = other.frequencies[mine.place]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*effective rounds of .* are too few")
        found = jr.off_policy(mine.log, probabilities, alpha=alpha)
    clicks = other.log.reward
    truth, noise = clicks.mean(), clicks.std(ddof=1) / np.sqrt(len(clicks))
    results = {"truth": truth, "truth_error": noise, "earned": found.logged}
    results |= {"effective": found.effective, "mean_weight": found.mean_weight}
    results["warned"] = float(found.few)
    for name, error in errors(mine, probabilities).items():
        value = found[name]
        gap = value.estimate - truth
        numbers = {"estimate": value.estimate, "error": error, "difference": gap}
        numbers |= {"sigma": gap / np.hypot(error, noise), "low": value.low, "high": value.high}
        results |= {f"{name}/{key}": float(x) for key, x in numbers.items() if np.isfinite(x)}
    return results


def errors(mine: Impressions, probabilities: np.ndarray) -> dict[str, float]:
    """Compute the standard error of each estimate, with independent rounds given the model."""
    aim = target(mine.log, probabilities)
    w, y, m, e, *_ = go_through(mine.log, aim, truncation=TRUNCATION)
    ratio = (w * y).mean() / w.mean()
    terms = {
        "IPS": estimators.inverse_propensity(w, y),
        "SNIPS": w * (y - ratio) / w.mean(),
        "clipped IPS": estimators.clipped(w, y, CLIP),
        "DR": estimators.doubly_robust(w, y, m, e),
        "Switch-DR": estimators.tuned(estimators.switched, w, y, m, e),
        "DRos": estimators.tuned(estimators.shrunk, w, y, m, e),
    }
    return {name: float(x.std(ddof=1) / np.sqrt(len(x))) for name, x in terms.items()}


def load(folder: str | Path, policy: str, campaign: str) -> Impressions:
    """Read a log; for the random policy with the probabilities of all items."""
    path = existing(Path(folder) / f"{policy}_{campaign}.csv", "a log of the Open Bandit Dataset")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in FIELDS if name not in (reader.fieldnames or ())]:
            raise ValueError(f"{path} lacks the columns {missing}; expected {', '.join(FIELDS)}")
        rows = [[float(row[name]) for name in FIELDS] for row in reader]
    if not rows:
        raise ValueError(f"{path} has no impressions")
    item, place, click, propensity = np.array(rows).T
    item, place = item.astype(int), place.astype(int) - 1
    rounds, items = len(item), int(item.max()) + 1
    probabilities = None
    if policy == "random":
        if not np.allclose(propensity, 1 / items):
            raise ValueError(f"{path} is not uniform over its {items} items")
        probabilities = np.full((rounds, items), 1 / items)
    log = Log(
        query=np.eye(place.max() + 1, dtype=np.float32)[place],
        slate=item[:, None],
        by_position=propensity[:, None],
        item=item,
        propensity=propensity,
        reward=click,
        version=np.full(rounds, -1),
        round=np.arange(rounds),
        probabilities=probabilities,
    )
    return Impressions(log, place, items)


if __name__ == "__main__":
    main.cli()
