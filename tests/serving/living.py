"""A process that uses an index with a log, until it has done its steps or is killed.

    python -m tests.serving.living FOLDER STEPS [RESULT]

It begins or continues the index in FOLDER, and writes a line for everything that was acknowledged:

    begun t next_ticket        after loading
    search number              after a search
    answer t                   after an answer, with the number of answers so far
    done                       after STEPS answers, whose state is then in RESULT

A step does what is not done yet, so that an interrupted life has the same searches, answers and
changes of the catalogue as one that was not interrupted.
"""

import sys
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


def step(index, task):
    """Search unless a ticket is open, and answer it; give the number of the ticket."""
    t = int(index.state.t)
    change(index, task, t)
    if not index.tickets:
        allowed = [*task.ids[t % 5 :], *index.ids[12:]] if t % 3 == 0 else None
        ticket = index.search(task.queries[t % len(task)], k=3, allowed=allowed)
        print(f"search {ticket.number}", flush=True)
    ((_, kept),) = index.tickets.items()
    used = index.names[kept.rows[t % 3]]
    index.feedback(kept.key, worked=t % 4 == 0, item=used)
    print(f"answer {t + 1}", flush=True)


def main(folder: Path, steps: int, result: str | None = None) -> None:
    """Live until the given number of answers."""
    task = make_task()
    warm = jr.Index(LEARNER, task)  # compiles, so that a kill meets work
    for t in range(2 * CHANGE_EVERY):
        change(warm, task, t)
        warm.feedback(warm.search(task.queries[t], k=3), worked=True)
    index = begun(folder, task)
    print(f"begun {int(index.state.t)} {index.next_ticket}", flush=True)
    while (t := int(index.state.t)) < steps:
        step(index, task)
        if t % SAVE_EVERY == 0:
            index.save(folder / "index")
    if result is not None:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(index.state)]
        np.savez(result, *leaves, starts=index.starts, names=index.names, given=index.next_ticket)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
