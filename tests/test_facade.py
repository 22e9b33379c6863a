"""`import jaxret as jr`: light, complete and typed, and a new user's first steps."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jaxret as jr

ROOT = Path(__file__).parents[2]
TEN_LINES = Path(os.environ.get("JAXRET_SHARED", ROOT.parent / "shared")) / "checks/ten_lines.py"
HEAVY = ("hydra", "wandb", "transformers", "orbax", "matplotlib")

LIGHT = f"""
import sys, time
import jax, jax.numpy
begin = time.perf_counter()
import jaxret as jr
seconds = time.perf_counter() - begin
import numpy as np
rng = np.random.default_rng(0)
theta, queries = rng.normal(size=(10, 4)), rng.normal(size=(20, 4))
jr.greedy()
task = jr.Task.from_arrays(theta, queries, rng.integers(10, size=20))
run = jr.simulate(jr.greedy(), task)
jr.evaluate(run, task)
index = jr.Index(jr.greedy(), task)
index.feedback(index.search(queries[0]), worked=True)
print(seconds, *(name for name in {HEAVY} if name in sys.modules))
"""

BEFORE_JOINING = """
import importlib, pkgutil
from jax._src.xla_bridge import backends_are_initialized
import jaxret

for module in pkgutil.walk_packages(jaxret.__path__, "jaxret."):
    if ".integrations." not in module.name:  # need the packages of extras
        importlib.import_module(module.name)
assert not backends_are_initialized(), module.name
"""

SCRIPT = """
from pathlib import Path

import matplotlib.figure
import numpy as np

import jaxret as jr

theta = np.eye(4, dtype=np.float32)
task: jr.Task = jr.Task.from_arrays(theta, theta, [0, 1, 2, 3], ids=["a", "b", "c", "d"])
train, test = task.split((0.5, 0.5), seed=0)
parts: jr.Split = task.own_split()


def half_sure(obs: jr.Observation):
    return obs.probs - obs.chosen * obs.reward / (obs.propensity + 0.5)


rule: jr.Learner = jr.rank_one(
    "half_sure",
    estimator=jr.Estimator("half_sure", half_sure, unbiased=False),
    policy=jr.policies.softmax(),
    projection=jr.sphere(),
    tau=0.05,
    eta=0.003,
)
jr.check_learner(jr.with_query_map(rule, rate=3.0))
explorer = jr.with_exploration(jr.orag(tau=0.1, projection=jr.ball()), epsilon=0.1)
replayed = jr.with_experience_replay(explorer, per_round=4)
run: jr.Run = jr.simulate(replayed, train, seeds=3, environment=jr.label_noise(0.1))
mean: float = run.accuracy.mean
error: float = jr.evaluate(run, test)["ndcg@10"].error
low: jr.Estimate = jr.evaluate(run, test, by=np.array([0, 0]))[0]["ndcg@10"]
figure: matplotlib.figure.Figure = run.plot()
figure.savefig("accuracy.png")
best: jr.Run = jr.sweep(jr.greedy, train, tau=[0.02, 0.05], eta=[0.001, 0.01]).best(on=test)
words: str = jr.table([run, best], on=test)
lines: list[str] = [f"{one.name}: {one.value:.1f}, {one.holds}" for one in jr.bounds(run)]
final: jr.Estimate = jr.regret(run).final
run.save(Path("learnt"), seed=0)
rows: jr.Embeddings = jr.load_embeddings("learnt")
index = jr.Index(jr.greedy(), task, seed=1)
ticket: jr.Ticket = index.search(theta[0], k=2)
index.feedback(ticket, worked=True, item=ticket.ids[1])
index.add(["e"], theta[:1])
index.redescribe(["e"], theta[1:2], how="carry")
index.remove(["e"])
index.save("index")
again: jr.Index = jr.Index.load("index")
names: dict[str, str] = jr.learners()
"""

WRONG = """
import jaxret as jr

task = jr.load_task("deskbank", encodr="minilm")
run = jr.simulate(jr.greedy(tau="hot"), 3)
best: int = jr.sweep(jr.greedy, run.task, tau=[0.1]).best(on=run.task)
"""


def test_no_module_starts_a_backend_when_it_is_imported():
    """Otherwise `jaxret.distributed.start` could not join other processes after an import."""
    subprocess.run([sys.executable, "-c", BEFORE_JOINING], check=True)


def test_importing_and_simulating_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seconds, *heavy = done.stdout.split()
    assert not heavy
    assert float(seconds) < 0.5


def test_every_name_is_there_and_is_its_own():
    assert len(set(jr.__all__)) == len(jr.__all__) > 60
    for name in jr.__all__:
        assert getattr(jr, name) is not None, name
    assert {"simulate", "evaluate", "sweep", "bounds", "Index", "Task"} <= {*dir(jr)}
    assert jr.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = jr.nothing_of_the_kind


def test_every_preset_is_listed_with_a_line_and_serves_without_arguments():
    listed = jr.learners()
    assert {"frozen", "orag", "greedy", "banditron", "mapped", "centred_replayed"} <= {*listed}
    for name, line in listed.items():
        assert getattr(jr, name)().name == name
        assert line.endswith(".")


def checked(script: Path) -> subprocess.CompletedProcess:
    ty = shutil.which("ty") or str(Path(sys.executable).with_name("ty"))
    command = [ty, "check", "--project", str(ROOT), "--output-format", "concise", str(script)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_users_script_is_typed_and_mistakes_are_noticed(tmp_path):
    script, wrong = tmp_path / "script.py", tmp_path / "wrong.py"
    script.write_text(SCRIPT)
    done = checked(script)
    assert done.returncode == 0, done.stdout
    wrong.write_text(WRONG)
    done = checked(wrong)
    assert done.returncode == 1
    found = {line.split(":")[1] for line in done.stdout.splitlines() if "error[" in line}
    assert found >= {"5", "6"}, done.stdout


@pytest.mark.skipif(not TEN_LINES.is_file(), reason=f"no {TEN_LINES}")
def test_the_ten_line_script_type_checks():
    done = checked(TEN_LINES)
    assert done.returncode == 0, done.stdout
