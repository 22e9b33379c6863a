"""PyTorch's side of the GPU benchmark, on tiny sizes: all of it is there, and computes the same."""

import json
from functools import partial

import jax
import numpy as np
import pytest

from experiments.benchmarks.gpu import torch_here, torch_simulation
from experiments.benchmarks.gpu.__main__ import main
from experiments.benchmarks.gpu.figures import compared
from experiments.benchmarks.gpu.problem import algorithm_1, problem, start
from experiments.benchmarks.gpu.settings import SMALL
from experiments.benchmarks.gpu.simulation import scan
from jaxret.simulation.scan import round_keys

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

SIZE = SMALL.sizes[0]
ROUNDS = 200
READERS = [f"encoders/{reader.name}" for reader in SMALL.readers]
MODELS = ["training/mlc", "training/refiner"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    parts = "simulation,encoders,training,agreement,precisions"
    path = main(["--out", str(folder), "--small", "--parts", parts, "--minutes", "30"])
    return json.loads(path.read_text())


def test_pytorch_is_timed_wherever_it_is_wanted(kept):
    assert kept["missing"] == {}
    kinds = [f"simulation/{SIZE.name}/{{}}/float32", f"simulation/{SIZE.name}/{{}}/bfloat16"]
    timed = [kind.format(form) for kind in kinds for form in ("torch_eager", "mesh")]
    timed += [f"{group}/torch" for group in READERS]
    timed += [f"{group}/torch/{kind}" for group in MODELS for kind in ("tf32", "bfloat16")]
    assert [name for name in timed if not kept["results"].get(name, {"median": 0})["median"]] == []
    wanted = {kind.format("").replace("//", "/") for kind in kinds} | set(READERS)
    wanted |= {f"{group}/{kind}" for group in MODELS for kind in ("tf32", "bfloat16")}
    assert set(compared(kept["results"])) == wanted


def test_its_accuracy_is_kept_beside_ours(kept):
    for precision in ("float32", "bfloat16"):
        group = f"agreement/{SIZE.name}/orag"
        accuracies = [kept["results"][f"{group}/{who}"] for who in ("cpu", f"torch/{precision}")]
        ours, served = (one["accuracy"] for one in accuracies)
        assert served == pytest.approx(ours, abs=0.3)  # of 32 rounds, drawn otherwise


def test_networks_compute_what_pytorch_computes(kept):
    for group in READERS:
        assert kept["results"][f"{group}/parity"]["largest_difference"] < 1e-6
    for group in MODELS:
        apart = kept["results"][f"{group}/check"]
        assert apart["logits"] < 1e-5
        assert apart["step"] < 0.01


@pytest.fixture
def played(monkeypatch):
    """Our rounds, and PyTorch's draws by the same random numbers, kept in a list."""
    found, learner, key = problem(SIZE, ROUNDS), algorithm_1(), jax.random.key(0)
    state, trace = jax.jit(scan, static_argnums=0)(
        learner, start(learner, found), found.stream, key
    )
    keys, _ = round_keys(key, np.arange(ROUNDS))
    uniforms, items = np.asarray(jax.vmap(jax.random.uniform)(keys)), []

    def draw(p):
        sums = np.cumsum(p.numpy())
        items.append(int(np.searchsorted(sums, uniforms[len(items)] * sums[-1], side="right")))
        return torch.tensor(items[-1:])

    monkeypatch.setattr(torch_simulation, "draw", draw)
    return found, state, trace, items


def test_its_rounds_are_ours(played):
    found, state, trace, items = played
    run, rounds = torch_simulation.eager(found, ROUNDS, "float32")
    rows = run().numpy()
    assert rounds == ROUNDS
    assert items == trace.item.tolist()
    np.testing.assert_allclose(rows, state.theta, atol=1e-6)
    assert abs(rows - np.asarray(found.theta)).max() > 1e-3


@pytest.mark.parametrize(("precision", "apart"), [("float32", 0), ("bfloat16", 0.05)])
def test_it_serves_as_ours_does(played, precision, apart):
    found, _, trace, _ = played
    served = torch_simulation.accuracy(found, ROUNDS, precision)
    assert served == pytest.approx(float(trace.success.mean()), abs=apart + 1e-6)


def test_rows_in_bfloat16_are_kept_so(played):
    rows = torch_simulation.eager(played[0], 8, "bfloat16")[0]()
    assert rows.dtype == torch.bfloat16


def test_items_are_drawn_in_proportion():
    torch.manual_seed(0)
    p, n = np.array([0.5, 0.3, 0.15, 0.05, 0.0]), 4000
    drawn = [int(torch_simulation.draw(torch.tensor(p))) for _ in range(n)]
    apart = np.bincount(drawn, minlength=len(p)) / n - p
    assert (abs(apart) <= 4 * np.sqrt(p * (1 - p) / n)).all()


def test_it_takes_tf32_where_that_is_allowed_alone(monkeypatch):
    precision = torch.get_float32_matmul_precision
    monkeypatch.setattr(torch_here, "device", lambda: "cuda")
    with torch_here.tf32(True):
        assert precision() == "high"
        with torch_here.tf32(False):
            assert precision() == "highest"
        assert precision() == "high"
    assert precision() == "highest"


def test_its_compiler_makes_a_program_of_every_shape(monkeypatch):
    """PyTorch by itself goes on without compiling after the eighth."""
    made, compile_by = [], torch.compile

    def backend(graph, inputs):
        made.append(inputs)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(compile_by, backend=backend))
    run = torch_here.compiled(lambda x: x + 1)
    for n in range(2, 14):
        run(torch.ones(n))
    assert len(made) == 12
