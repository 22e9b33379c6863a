"""Mean and standard error of a number over seeds."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.runtime.validate import real_numbers, require


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Values of several seeds, which print as mean and standard error: ``0.402 ± 0.002``."""

    values: Float[np.ndarray, " S"]  # one value per seed

    @classmethod
    def of(cls, values: ArrayLike) -> "Estimate":
        """Make an estimate from one number per seed [S], or from a single number.

        Raises:
          ValueError: if there is no number, or a matrix of them.
        """
        found = real_numbers("an estimate's values [S]", np.atleast_1d(np.asarray(values)), 1)
        require("the number of seeds", len(found), ">= 1", lambda n: n >= 1)
        return cls(found.astype(np.float64))

    @cached_property
    def mean(self) -> float:
        return float(self.values.mean())

    @cached_property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single seed."""
        n = self.values.size
        return float(self.values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")

    def __sub__(self, other: "Estimate") -> "Estimate":
        """Subtract seed by seed; raise ValueError if the numbers of seeds differ."""
        if self.values.shape != other.values.shape:
            n, m = self.values.size, other.values.size
            raise ValueError(f"a paired difference needs equal seeds, got {n} and {m}")
        return Estimate(self.values - other.values)

    def __str__(self) -> str:
        digits = 1 if abs(self.mean) >= 100 else 3
        error = "—" if np.isnan(self.error) else f"{self.error:.{digits}f}"
        return f"{self.mean:.{digits}f} ± {error}"

    __repr__ = __str__
