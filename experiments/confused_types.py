"""Why is pandas harder to retrieve from than NumPy and AWS?           (Tool2Vec, 5.2.2 and C.5.3)

    uv run python -m experiments.confused_types
    uv run python -m experiments.confused_types without=[pandas.tseries.offsets]

The paper's reason is that models confuse types, which share operations: ``DataFrame.size`` and
``Series.size``. Without any query, this measures how confusable the catalogues of
`experiments.build_catalogue` are. Twins are functions of one name on different types, or in
different modules or services: their ids differ only in what stands before the last dot.

    twins             share of the functions that have a twin
    nearest/twin      share whose nearest other document, by the encoder's cosine, is a twin's
    nearest/cosine    mean cosine with the nearest other document
    alone/cosine      the same, of the functions without a twin
    random/...        twins and cosine of ``others`` random other functions instead of the nearest

Standard errors are over functions, as if they were an independent sample. A larger catalogue has
nearer neighbours by its size alone.

2 cores: 2 minutes, nearly all of it encoding. Expect, from NumPy 2.4.6, pandas 3.1.1 and botocore
1.44.8: twins 0.038, 0.829 and 0.006, nearest 0.021, 0.682 and 0.001; without the offsets of pandas
0.755 and 0.520. The nearest cosine is 0.829, 0.932 and 0.862, and that of pandas's functions
without a twin 0.840.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

from experiments.build_catalogue.libraries import LIBRARIES, build_catalogue
from experiments.common.config import cache_folder
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import encoder_of
from experiments.common.run_directory import RunDirectory
from experiments.common.tables import results_table
from jaxret import encoders
from jaxret.data.jsonl import document
from jaxret.data.templates import template
from jaxret.runtime.validate import require, require_one_of

COLUMNS = ("twins", "nearest/twin", "random/twin")
COLUMNS += ("nearest/cosine", "alone/cosine", "random/cosine")


@experiment("confused_types")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Build and encode every catalogue; return one value per function."""
    encoder, render, results = encoder_of(cfg.encoder), template(cfg.document), {}
    for library in cfg.libraries:
        catalogue = build_catalogue(library, words=cfg.words)
        tools = [one for one in catalogue.tools if not one.id.startswith(tuple(cfg.without))]
        print(f"{catalogue.source}: {len(tools):,} functions", flush=True)
        texts = [render(document(tool.row())) for tool in tools]
        theta = encoders.encode(encoder, texts, kind="document", cache=cache_folder(cfg))
        found = confusion([tool.id for tool in tools], theta, others=cfg.others, seed=cfg.seed)
        results |= {f"{library}/{column}": values for column, values in found.items()}
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check libraries and numbers."""
    for library in cfg.libraries:
        require_one_of("libraries", library, LIBRARIES)
    require("libraries", list(cfg.libraries), f"one or more of {', '.join(LIBRARIES)}", len)
    for name in ("words", "others"):
        require(name, cfg[name], ">= 1", lambda x: x >= 1)


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print a line per library."""
    results_table(results, list(cfg.libraries), COLUMNS, f"{cfg.encoder.name}, {cfg.document}")


def confusion(
    ids: Sequence[str], theta: Float[np.ndarray, "I d"], *, others: int, seed: int
) -> dict[str, np.ndarray]:
    """Compare every function with its nearest and with random other functions.

    Args:
      ids: different ids, OWNER.METHOD.
      theta: encoded documents, of length 1.
      others: number of random other functions of each, drawn with replacement.
      seed: seed of these draws.

    Returns:
      The values of `COLUMNS` of each function; of ``alone``, of those without a twin, if any.
    """
    rows, methods = np.arange(len(ids))[:, None], np.array([x.rpartition(".")[2] for x in ids])
    twin = (methods[:, None] == methods) & ~np.eye(len(ids), dtype=bool)
    cosine = theta @ theta.T
    nearest = np.where(np.eye(len(ids), dtype=bool), -np.inf, cosine).argmax(axis=1)[:, None]
    drawn = np.random.default_rng(seed).integers(len(ids) - 1, size=(len(ids), others))
    values = {"twins": twin.any(axis=1).astype(float)}
    for name, columns in (("nearest", nearest), ("random", drawn + (drawn >= rows))):
        values[f"{name}/twin"] = twin[rows, columns].mean(axis=1)
        values[f"{name}/cosine"] = cosine[rows, columns].mean(axis=1)
    if not twin.any(axis=1).all():
        values["alone/cosine"] = values["nearest/cosine"][~twin.any(axis=1)]
    return values


if __name__ == "__main__":
    main.cli()
