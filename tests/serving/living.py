"""A process that uses an index with a log, until it has done its steps or is killed.

`live` begins or continues the index in a folder, and sends what was acknowledged:

    ("begun", t, next_ticket)  after loading
    ("search", number)         after a search
    ("answer", t)              after an answer, with the number of answers so far
    ("done",)                  after all steps, once the state is saved as `result`

A step does what is not done yet, so that an interrupted life has the same searches, answers and
changes of the catalogue as one that was not interrupted.
"""

from multiprocessing.connection import Connection
from pathlib import Path

import jax
import numpy as np

import jaxret as jr
from tests.problems import make_task

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[2] / ".cache" / "living"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
LEARNER = jr.with_exploration(jr.greedy(tau=0.1, eta=0.05), 0.2)
SAVE_EVERY, CHANGE_EVERY = 5, 7


def begun(folder, task):
    """Begin an index, or continue the one in the folder."""
    if (folder / "index" / "index.json").exists():
        return jr.Index.load(folder / "index", learner=LEARNER)
    index = jr.Index(LEARNER, task, log=folder / "log.jsonl")
    index.save(folder / "index")
    return index


def change(index, task, t):
    """Add, describe anew and remove tools, each once."""
    round, kind = t // CHANGE_EVERY, t % CHANGE_EVERY
    name, vector = f"new_{round}", task.queries[round % len(task)]
    if kind == 1 and name not in index.names:
        index.add([name], [vector])
    elif kind == 3 and name in index.ids:
        index.redescribe([name], [-vector], how="reset")  # the same when it is done twice
    elif kind == 5 and name in index.ids:
        index.remove([name])


def step(index, task, report):
    """Search unless a ticket is open, and answer it; give the number of the ticket."""
    t = int(index.state.t)
    change(index, task, t)
    if not index.tickets:
        allowed = [*task.ids[t % 5 :], *index.ids[12:]] if t % 3 == 0 else None
        ticket = index.search(task.queries[t % len(task)], k=3, allowed=allowed)
        report.send(("search", ticket.number))
    ((_, kept),) = index.tickets.items()
    used = index.names[kept.rows[t % 3]]
    index.feedback(kept.key, worked=t % 4 == 0, item=used)
    report.send(("answer", t + 1))


def live(report: Connection, folder: Path, steps: int, result: Path | None = None) -> None:
    """Live until the given number of answers."""
    task = make_task()
    warm = jr.Index(LEARNER, task)  # compiles, so that a kill meets work
    for t in range(2 * CHANGE_EVERY):
        change(warm, task, t)
        warm.feedback(warm.search(task.queries[t], k=3), worked=True)
    index = begun(folder, task)
    report.send(("begun", int(index.state.t), index.next_ticket))
    while (t := int(index.state.t)) < steps:
        step(index, task, report)
        if t % SAVE_EVERY == 0:
            index.save(folder / "index")
    if result is not None:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(index.state)]
        np.savez(result, *leaves, starts=index.starts, names=index.names, given=index.next_ticket)
    report.send(("done",))
