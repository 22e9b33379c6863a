"""Settings that experiments on a judge's table share, for small runs."""

from tests.experiments.configs import config_of, in_world


def configure(name, world, tmp_path, *more):
    """The settings of an experiment on the small world's data and the table in ``tmp_path``."""
    where = [
        *in_world(world, tmp_path / "run"),
        f"table={tmp_path / 'table.npz'}",
        "seeds=2",
    ]
    return config_of(name, *where, *more)
