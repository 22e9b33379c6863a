"""Runs all learners on the same streams, and compares the first with each other one."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import jaxret as jr
from jaxret.evaluation import plots

METRICS = ("online accuracy", "ndcg@10")


class Line(NamedTuple):
    """One learner on one data set."""

    task: str
    learner: str
    values: dict[str, jr.Estimate]  # values of each metric
    ahead: dict[str, jr.Estimate]  # lead of the file's first learner, seed by seed


def race(
    own: Sequence[jr.Learner],
    others: Sequence[jr.Learner],
    tasks: Sequence[jr.Task],
    *,
    seeds: int,
    exposures: int,
) -> list[Line]:
    """Runs all learners on the same streams.

    Args:
      own: learners of the file, of which the first is compared with all others.
      others: further learners to compare with.
      tasks: tasks, each split by question, with four fifths for learning.
      seeds: number of seeds of order and draws, at least 2.
      exposures: number of times that each query is streamed.
    """
    lines = []
    for task in tasks:
        train, test = task.split((0.8, 0.2), seed=0)
        measured = {}
        for learner in (*own, *others):
            run = jr.simulate(learner, train, exposures=exposures, seeds=seeds)
            print(run, file=sys.stderr)
            ranked = jr.evaluate(run, test, metrics=METRICS[1:])
            measured[learner.name] = {"online accuracy": run.accuracy, **ranked}
        first = measured[own[0].name]
        for name, values in measured.items():
            ahead = {metric: first[metric] - values[metric] for metric in METRICS}
            lines.append(Line(task.name, name, values, ahead))
    return lines


def interval(difference: jr.Estimate) -> tuple[float, float]:
    """Computes the 95 % interval for a mean of paired differences, by Student's t."""
    half = stats.t.ppf(0.975, difference.values.size - 1) * difference.error
    return difference.mean - half, difference.mean + half


def table(lines: Sequence[Line]) -> str:
    """Formats a line per learner and data set, with the first learner's lead for each metric."""
    first = lines[0].learner
    rows = [["data", "learner"]]
    for metric in METRICS:
        rows[0] += [metric, f"{first} is ahead by"]
    for line in lines:
        row = [line.task, line.learner]
        for metric in METRICS:
            low, high = interval(line.ahead[metric])
            lead = f"{line.ahead[metric].mean:+.3f} [{low:+.3f}, {high:+.3f}]"
            row += [str(line.values[metric]), "" if line.learner == first else lead]
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(padded)


def figure(lines: Sequence[Line]) -> Figure:
    """Draws the first learner's lead in online accuracy, with intervals, a colour per data set."""
    first = lines[0].learner
    names = [one.learner for one in lines if one.task == lines[0].task and one.learner != first]
    tasks = list(dict.fromkeys(line.task for line in lines))
    fig, ax = plots.new_figure(f"by how much {first} is ahead, online accuracy", "")
    fig.set_figheight(1.2 + 0.2 * len(names) * (1 + len(tasks)))
    heights_of = {name: -place for place, name in enumerate(names)}
    for number, task in enumerate(tasks):
        shift = 0.5 * ((len(tasks) - 1) / 2 - number) / len(tasks)
        of_task = [line for line in lines if line.task == task and line.learner in heights_of]
        leads = [line.ahead["online accuracy"] for line in of_task]
        ends = np.array([interval(lead) for lead in leads])
        heights = [heights_of[line.learner] + shift for line in of_task]
        (dots,) = ax.plot([lead.mean for lead in leads], heights, "o", label=task)
        ax.hlines(heights, ends[:, 0], ends[:, 1], color=dots.get_color(), linewidth=2)
    ax.axvline(0, color=plots.GREY, linewidth=1)
    ax.set_yticks(list(heights_of.values()), list(heights_of))
    ax.set_ylim(0.6 - len(names), 0.6)
    ax.margins(x=0.05)
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(tasks), frameon=False)
    return fig
