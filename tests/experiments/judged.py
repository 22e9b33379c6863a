"""Settings that experiments on a judge's table share, for small runs."""

from hydra import compose, initialize_config_dir

from experiments.common.config import CONFIGS


def configure(name, world, tmp_path, *more):
    """The settings of an experiment on the small world's data and the table in ``tmp_path``."""
    where = [
        "dataset=jsonl",
        f"dataset.path={world / 'data'}",
        f"encoder.path={world / 'encoder'}",
        f"cache={world / 'cache'}",
        f"directory={tmp_path / 'run'}",
        f"table={tmp_path / 'table.npz'}",
        "tracking=files",
        "seeds=2",
    ]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose(name, [*where, *more])
