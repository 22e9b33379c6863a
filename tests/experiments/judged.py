"""Settings of small runs, shared by the experiments on a judge's table."""

from tests.experiments.configs import config_of, in_world


def configure(name, world, tmp_path, *more):
    """Compose settings with the data of the small world and the table in ``tmp_path``."""
    where = [*in_world(world, tmp_path / "run"), f"table={tmp_path / 'table.npz'}", "seeds=2"]
    return config_of(name, *where, *more)
