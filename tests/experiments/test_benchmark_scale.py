"""The count of bytes that compiled programs exchange, and the scale model at small sizes."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from experiments.benchmarks import scale
from experiments.benchmarks.scale import Exchange
from jaxret.runtime import sharding
from tests.experiments.configs import config_of
from tests.experiments.conftest import values_of


def sent(function, *shapes):
    mesh = sharding.make_mesh(item=4)
    shared = jax.shard_map(
        function, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False, axis_names={"item"}
    )
    text = jax.jit(shared).lower(*shapes).compile().as_text()
    return sorted(scale.read_exchanges(text))


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def test_exchanges_are_counted_with_the_loops_around_them():
    def program(x, n):
        def inner(_, x):
            return x + lax.psum(x * x[0], "item")  # 12 bytes

        def outer(x, _):
            x = lax.fori_loop(0, 3, inner, x)
            return x * lax.pmax(x[0], "item").astype(jnp.float32), None  # 4 bytes

        x, _ = lax.scan(outer, x, length=5)
        return lax.all_gather(x + n, "item")  # 4 x 12 bytes

    assert sent(program, shape(3), shape()) == [
        Exchange("all-gather", 48, 1),
        Exchange("all-reduce", 4, 5),
        Exchange("all-reduce", 12, 15),
    ]


def test_the_branch_that_sends_more_counts():
    def program(x):
        few, many = (lambda x: x + lax.psum(x[0], "item")), (lambda x: lax.psum(x, "item"))
        return lax.cond(x[0] > 0, few, many, x)

    assert sent(program, shape(7)) == [Exchange("all-reduce", 28, 1)]


def test_a_loop_of_unknown_length_is_refused():
    def program(x):
        return lax.while_loop(lambda x: x[0] < 9, lambda x: x + lax.psum(x, "item"), x)

    with pytest.raises(ValueError, match="how often does this loop run"):
        sent(program, shape(2))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scale")
    small = ["tools=[512,2000]", "devices=[1,2,8]", "width=16", "rows=[64,512]", "measured=2"]
    small += ["check.tools=512", "check.devices=[2]", "rounds=128", "repeats=1", "tracking=files"]
    scale.main(config_of("benchmark_scale", *small, f"directory={folder}"))
    return {name: values.mean() for name, values in values_of(folder).items()}


def test_a_round_sends_the_same_few_numbers_for_every_size(finished):
    """A round sends four 4-byte numbers, and a tile of 8 rounds sends 6 x 8 numbers."""
    for size in ("512/2", "512/8", "2000/2"):
        assert finished[f"{size}/bytes_a_round"] == 4 * 4 + 6 * 8 * 4 / 8
    assert finished["512/1/bytes_a_round"] == 0


def test_memory_goes_with_the_rows_of_a_device(finished):
    memory = {size: finished[f"{size}/memory_mib"] for size in ("2000/1", "2000/8", "512/8")}
    rows = 2000 - 250
    assert memory["2000/1"] - memory["2000/8"] > rows * (16 + 128) * 4 / 2**20  # Theta and pending
    assert memory["512/8"] < memory["2000/8"]
    for size in ("2000/8", "2000/1", "512/8"):  # the model was not fitted to these sizes
        assert finished[f"{size}/memory_over_model"] == pytest.approx(1, abs=0.1)


def test_the_model_is_the_sum_of_its_pieces(finished):
    fixed, a_row = finished["work/microseconds"], finished["work/nanoseconds_a_row"] / 1e3
    waits = finished["2000/2/collectives_a_round"] * 10
    assert finished["2000/2/microseconds"] == pytest.approx(fixed + a_row * 1000 + waits)
    each = finished["check/2/core_microseconds_of_a_collective"]
    model = 2 * (fixed + a_row * 256) + finished["512/2/collectives_a_round"] * each
    ratio = finished["check/2/core_microseconds"] / model
    assert finished["check/2/time_over_model"] == pytest.approx(ratio)
