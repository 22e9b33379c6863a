"""Do better initial embeddings help, and for how long?   (ORAG Theorem 5.1, first term; Tool2Vec)

    uv run python -m experiments.warm_start                                    # DeskBank, built in
    uv run python -m experiments.warm_start dataset=ultratool dataset.path=FILE exposures=1
    uv run python -m experiments.warm_start dataset=toollens dataset.path=FOLDER exposures=1

Runs the same learners from several starts Theta_1, on the same streams:

    document/<template> embeddings of the documents; those of ``document=`` are the base, with
                        which the other starts are compared and usage is mixed
    tool2vec            means of the queries that used a tool, from a tenth of the queries; a tool
                        without usage keeps its document
    mixture             both, with the weight that ranks the validation part best

The queries are split once, by question: usage (never streamed), validation (chooses the weight
and, for each start, the setting, by the rule of `experiments.orag`), held-out (never streamed)
and the stream. Seeds differ in the order of the stream and in the draws.

Each start runs at its own setting (static, online, final, heldout):

    rounds_to_match
             rounds that the base must learn to become as accurate as the start is without
             learning (`leads`). Negative for a start worse than the base: the rounds that it
             must learn. Blank if the stream ends first.
    lead     success minus that of the base, both learning, in the first and the last quarter

and again at the setting of the base (shared), because regret depends on tau and eta too:

    regret   against one comparator for all, the proximal one of the base; ``saved`` is the
             difference from the base after a quarter, a half and the whole of the stream
    first_term   ||Theta_1 - U||^2 / (2 eta) of Theorem 5.1, U the start's own proximal
             comparator. The theorem assumes unbiased rules, convex sets and one label per query:
             if it is void (`describe` is printed) the term is a distance, not part of a bound.

2 cores: DeskBank and UltraTool 1 min 40 s each, ToolLens 5 min, where all texts are encoded.
Expect of greedy on DeskBank (5 seeds): online accuracy 0.389 from full documents, 0.467 from
expanded ones (1,600 rounds to match), 0.325 from tool2vec and 0.422 from the mixture, with regrets
in the order of their first terms: 2,453, 2,176, 2,781 and 2,343.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.learners import chosen
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import ranking_metrics
from experiments.common.tables import results_table
from jaxret.data.dataset import split_by_group
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.rank_one import rule_of
from jaxret.methods.tool2vec import tool2vec
from jaxret.runtime.progress import Progress
from jaxret.task import Parts, Task
from jaxret.theory import theorems
from jaxret.theory.assumptions import Evidence
from jaxret.theory.comparators import proximal_losses
from jaxret.theory.regret import cumulative_regret
from jaxret.types import Stream, Trace

LEVELS = ("static/accuracy", "online/accuracy", "static/ndcg@{k}", "final/ndcg@{k}")
LEVELS += ("heldout_static/ndcg@{k}", "heldout/ndcg@{k}")
LEADS = ("rounds_to_match", "lead/first", "lead/last")
REGRETS = ("shared/first_term", "shared/regret", "saved/quarter", "saved/half", "saved/whole")
Setting = tuple[float, float]  # tau, eta


@dataclass(frozen=True)
class Starts:
    """The task, parts and settings that all starts share."""

    cfg: DictConfig
    run: RunDirectory
    task: Task  # the base
    parts: Parts  # parts of its queries, masks [N]

    @property
    def stream(self) -> dict[str, Any]:
        """Arguments of `jr.simulate` and `jr.sweep`."""
        seeds = range(self.cfg.seed, self.cfg.seed + self.cfg.seeds)
        return {"exposures": self.cfg.exposures, "seeds": seeds, "chunk": self.cfg.chunk}


class FromStart(NamedTuple):
    """The results of a learner from one start."""

    setting: Setting  # the start's own setting
    success: Float[np.ndarray, "S T"]
    static: Float[np.ndarray, "S T"]  # success in the same rounds with constant Theta_1
    rankings: dict[str, Float[np.ndarray, "S 4"]]  # means of `ranking_metrics`
    loss: Float[np.ndarray, "S T"]  # from this line on: at the setting of the base
    order: Int[np.ndarray, "S T"]
    comparator: Float[np.ndarray, " N"]  # losses of the comparator
    bound: theorems.Bound


@experiment("warm_start")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Run every learner from every start; return the results, and write curves and figures."""
    grids, names = learner_grids(cfg), templates(cfg)
    tasks = {name: task_of(cfg, name) for name in names}
    documents = {f"document/{name}": task.theta for name, task in tasks.items()}
    task = tasks[cfg.document]
    usage, parts = part(task.groups, cfg)
    mix, from_usage = build(task, usage, parts, cfg)
    starts, base = documents | from_usage, f"document/{cfg.document}"
    shared_by_all = Starts(cfg, run, task, parts)
    rounds = cfg.exposures * int(parts.training.sum())
    tools = np.setdiff1d(task.labels[usage], [-1])
    facts = {"queries": usage.sum(), "tools": len(tools), "mix": mix, "rounds": rounds}
    results = {f"usage/{name}": np.array([value]) for name, value in facts.items()}
    curves: dict[str, np.ndarray] = {}
    bar = Progress(total=len(grids) * len(starts), unit="start")
    for grid in grids:
        learnt: dict[str, FromStart] = {}
        for start in sorted(starts, key=lambda start: start != base):  # the base first
            bar.set_postfix_str(f"{grid.name} from {start}")
            shared = learnt[base].setting if learnt else None
            learnt[start] = learn_from_start(shared_by_all, grid, start, starts[start], shared)
            bar.update()
        bar.write(f"{grid.name} from {base}: {theorems.describe(learnt[base].bound)}")
        regrets = {
            start: cumulative_regret(ours.loss, learnt[base].comparator, ours.order)
            for start, ours in learnt.items()
        }
        for start, ours in learnt.items():
            found = levels(ours, cfg.k) | {"shared/regret": regrets[start][:, -1]}
            if start != base:
                found |= leads(ours, learnt[base]) | saved(regrets[base] - regrets[start])
            results |= {f"{grid.name}/{start}/{key}": values for key, values in found.items()}
            curves[f"{grid.name}/{start}/success"] = ours.success
            curves[f"{grid.name}/{start}/regret"] = regrets[start]
        figures(run, grid.name, {start: learnt[start] for start in starts}, regrets)
    bar.close()
    run.save_curves(curves)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check that learners have the step size of Theorem 5.1, and that the base is a start."""
    for grid in learner_grids(cfg):
        stepped = grid.names == ("tau", "eta") and grid.settings.all()
        if rule_of(grid.learner(0)) is None or not stepped:
            raise ValueError(
                f"learner {grid.name!r} has no step size of Theorem 5.1: "
                "its update must be rank one, and each eta > 0"
            )
    if cfg.document not in templates(cfg):
        raise ValueError(
            f"the base document={cfg.document} must be one of templates.{cfg.dataset.name}: "
            f"{templates(cfg)}"
        )


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print levels, leads over the base, and regrets of every start."""
    starts = [*(f"document/{name}" for name in templates(cfg)), "tool2vec", "mixture"]
    rows = [f"{learner}/{start}" for learner in cfg.learners for start in starts]
    for title, columns in {
        f"{cfg.dataset.name}, exposures={cfg.exposures}": LEVELS,
        f"against document/{cfg.document}, each at its own setting": LEADS,
        f"at the setting of document/{cfg.document}": REGRETS,
    }.items():
        results_table(results, rows, [column.format(k=cfg.k) for column in columns], title)
    results_table(results, ["usage"], ["queries", "tools", "mix", "rounds"], "usage")


def templates(cfg: DictConfig) -> list[str]:
    """Return the templates of the documents' starts."""
    if cfg.dataset.name not in cfg.templates:
        known = ", ".join(map(str, cfg.templates))
        raise ValueError(f"templates has none for {cfg.dataset.name!r}, only for {known}")
    return list(cfg.templates[cfg.dataset.name])


def part(groups: Int[np.ndarray, " N"], cfg: DictConfig) -> tuple[Bool[np.ndarray, " N"], Parts]:
    """Draw the usage and, of the rest, the other parts, by question; mask [N]."""
    rest = 1 - cfg.usage - cfg.validation
    fractions = (cfg.usage, cfg.validation, rest * cfg.heldout, rest * (1 - cfg.heldout))
    masks = np.zeros((4, len(groups)), bool)
    for mask, positions in zip(masks, split_by_group(groups, fractions, cfg.seed), strict=True):
        mask[positions] = True
    usage, validation, heldout, training = masks
    return usage, Parts(training=training, validation=validation, heldout=heldout)


def build(
    task: Task, usage: Bool[np.ndarray, " N"], parts: Parts, cfg: DictConfig
) -> tuple[float, dict[str, Float[np.ndarray, "I d"]]]:
    """Return the weight of the mixture, and the starts from usage.

    Like a setting, the weight is chosen by nDCG + accuracy on the validation part.
    """
    metrics = ("accuracy", f"ndcg@{cfg.k}")

    def start(mix):
        arrays = (task.queries[usage], task.labels[usage], task.theta)
        return np.asarray(tool2vec(*map(jnp.asarray, arrays), mix=mix))

    def score(mix):
        found = jr.evaluate(start(mix), task, metrics, part=parts.validation)
        return sum(value.mean for value in found.values())

    mix = max(cfg.mixes, key=score)
    return mix, {"tool2vec": start(1.0), "mixture": start(mix)}


def figures(
    run: RunDirectory,
    learner: str,
    learnt: Mapping[str, FromStart],
    regrets: Mapping[str, np.ndarray],
) -> None:
    """Draw regret with the first terms in brackets; success, with the static levels dotted."""
    rounds = 1 + np.arange(len(next(iter(regrets.values())).T))
    window = len(rounds) // 10
    of_regret, ax = plots.new_figure("round", "regret")
    ax.set_title("in brackets: first term of Theorem 5.1", fontsize=11, loc="left")
    of_success, bx = plots.new_figure("round", f"success, mean of {window} rounds")
    bx.set_title("dotted: without learning", fontsize=11, loc="left")
    for start, ours in learnt.items():
        name, term = start.removeprefix("document/"), ours.bound.terms["start"]
        plots.curve_with_band(ax, rounds, regrets[start], f"{name} [{term:,.0f}]")
        success = plots.running_mean(ours.success, window)
        line = plots.curve_with_band(bx, rounds[window:], success[:, window:], name)
        bx.axhline(ours.static.mean(), linestyle=":", color=line.get_color(), label="_static")
        run.tracker.curve(f"regret/{learner}/{start}", rounds, regrets[start].mean(axis=0))
        run.tracker.curve(f"accuracy/{learner}/{start}", rounds, success.mean(axis=0))
    for name, figure, axes in (("regret", of_regret, ax), ("accuracy", of_success, bx)):
        plots.label_curves(axes)
        run.save_figure(figure, f"{name}_{learner}", f"{name}/{learner}")


def learn_from_start(
    starts: Starts,
    grid: LearnerGrid,
    start: str,
    theta_1: Float[np.ndarray, "I d"],
    shared: Setting | None,
) -> FromStart:
    """Stream at the start's own setting, and at the shared one; None: both are the same.

    The own setting gives success and rankings, the shared one regret, which depends on tau and eta
    as well as on Theta_1.
    """
    run, parts, stream = starts.run, starts.parts, starts.stream
    task, step = replace(starts.task, theta=theta_1), f"{grid.name}-{start}"
    metrics = ranking_metrics(starts.cfg.k)

    def rankings(ranked):
        return {
            name: np.stack(
                [x.values for x in jr.evaluate(ranked, task, metrics, part=part).values()], axis=1
            )
            for name, part in (("final", parts.training), ("heldout", parts.heldout))
        }

    def choice():
        part = parts.training | parts.validation
        by: dict[str, Any] = {"on": parts.validation, "metric": f"ndcg@{starts.cfg.k}"}
        best = chosen(grid, task, part=part, resume=run.resume(f"{step}-choice"), **by, **stream)
        return {"setting": best.settings[0]}

    def streamed(protocol, setting):
        at = grid._replace(settings=np.tile(np.array(setting), (len(stream["seeds"]), 1)))
        resume = run.resume(f"{step}-{protocol}")
        ran = jr.simulate(at, task, part=parts.training, resume=resume, **stream)
        return {**ran.trace._asdict(), "order": ran.order, **rankings(ran)}

    def of_stream(protocol, setting):
        return run.result(f"{step}-{protocol}", partial(streamed, protocol, setting))

    tau, eta = run.result(f"{step}-choice", choice)["setting"].tolist()
    own = of_stream("own", (tau, eta))
    shared = shared or (tau, eta)
    trace = own if shared == (tau, eta) else of_stream("shared", shared)
    rule, order = rule_of(grid.family(*shared)), own["order"]
    assert rule is not None
    arrays = (task.queries, task.labels)
    counts = np.bincount(order[0], minlength=len(task.queries))
    found, losses = proximal_losses(theta_1, *arrays, tau=shared[0], eta=shared[1], counts=counts)
    evidence = Evidence(
        rule=rule,
        theta_1=jnp.asarray(theta_1),
        stream=Stream._make((*map(jnp.asarray, (*arrays, order)), None)),
        trace=Trace._make(jnp.asarray(trace[field]) for field in Trace._fields),
        comparator=found.theta,
        always_available=jnp.ones(len(theta_1), bool),
    )
    unlearnt = rankings(theta_1)
    best = (task.queries @ theta_1.T).argmax(axis=1)
    return FromStart(
        setting=(tau, eta),
        success=own["success"],
        static=(task.labels == best[:, None]).any(axis=1).astype(np.float64)[order],
        rankings={
            "static": unlearnt["final"],
            "final": own["final"],
            "heldout_static": unlearnt["heldout"],
            "heldout": own["heldout"],
        },
        loss=trace["loss"],
        order=order,
        comparator=losses,
        bound=theorems.theorem_5_1(evidence),
    )


def levels(ours: FromStart, k: int) -> dict[str, np.ndarray]:
    """Name the accuracy and rankings from one start, as results."""
    found = {
        f"{protocol}/{metric}": values[:, i]
        for protocol, values in ours.rankings.items()
        for i, metric in enumerate(ranking_metrics(k))
    }
    found["online/accuracy"] = ours.success.mean(axis=1)
    found["online/tau"], found["online/eta"] = np.array(ours.setting)[:, None]
    found["shared/first_term"] = np.array([ours.bound.terms["start"]])
    if ours.bound.holds:
        found["shared/theorem_5_1"] = np.array([ours.bound.value])
    return found


def leads(ours: FromStart, base: FromStart) -> dict[str, np.ndarray]:
    """Compute the lead of a start over the base, in rounds and in success, as results.

    The lead in rounds is the number of rounds that the statically worse of the two must learn until
    its success is never again below that of the other without learning (`rounds_until`; same
    queries, running means over a tenth of the stream). It is negative if the start is worse.
    """
    gain = ours.success - base.success
    quarter = gain.shape[1] // 4
    found = {
        "lead/first": gain[:, :quarter].mean(axis=1),
        "lead/last": gain[:, -quarter:].mean(axis=1),
    }
    ahead = ours.static.mean() >= base.static.mean()
    better, worse = (ours, base) if ahead else (base, ours)
    rounds = rounds_until(worse.success - better.static, window=gain.shape[1] // 10)
    if rounds is not None:
        found["rounds_to_match"] = np.array([rounds if ahead else -rounds])
    return found


def rounds_until(difference: Float[np.ndarray, "S T"], window: int) -> int | None:
    """Return the rounds after which a difference is never negative again; None if it ends so.

    The difference is averaged over the seeds and the last ``window`` rounds.
    """
    negative = plots.running_mean(difference, window).mean(axis=0) < 0
    if negative[-1]:
        return None
    return int(np.flatnonzero(negative)[-1]) + 1 if negative.any() else 0


def saved(less: Float[np.ndarray, "S T"]) -> dict[str, np.ndarray]:
    """Compute the base's regret minus a start's, at three points of the stream, as results."""
    rounds = less.shape[1]
    points = {"quarter": rounds // 4, "half": rounds // 2, "whole": rounds}
    return {f"saved/{name}": less[:, point - 1] for name, point in points.items()}


if __name__ == "__main__":
    main.cli()
