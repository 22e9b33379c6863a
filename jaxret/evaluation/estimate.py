"""Mean and standard error of a number over seeds."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Values of several seeds, which print as mean and standard error: ``0.402 ± 0.002``."""

    values: Float[np.ndarray, " S"]  # one value per seed

    @classmethod
    def of(cls, values: ArrayLike) -> "Estimate":
        """Make an estimate from one number per seed [S], or from a single number."""
        return cls(np.atleast_1d(np.asarray(values, np.float64)))

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
