"""Coverage of intervals and errors of estimates, over many logs with known truths.

    study = compared(found, truths)
    study.covered["IPS"].mean(), (study.estimates["DR"] - study.truth).mean()   # coverage, bias

An anytime-valid interval covers a log if it contains the truth at all checked times; a bootstrap
interval if it does at the end. The coverage is the share of logs that are covered.

Letters: T rounds, n logs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxret.offline.off_policy import OffPolicy


class Study(NamedTuple):
    """Estimates from n logs, and their truths."""

    truth: Float[np.ndarray, " n"]  # the true value, at the end of each log
    estimates: dict[str, Float[np.ndarray, " n"]]
    covered: dict[str, Bool[np.ndarray, " n"]]  # coverage of estimators with an interval
    widths: dict[str, Float[np.ndarray, " n"]]  # at the end; for a lower bound, truth minus bound
    effective: Float[np.ndarray, " n"]
    few: Bool[np.ndarray, " n"]  # whether the log has too few effective rounds


def compared(found: Sequence[OffPolicy], truths: Sequence[Float[np.ndarray, " T"]]) -> Study:
    """Compare estimates from n logs, by the same estimators, with the truth after each round."""
    ends = np.array([line[-1] for line in truths])
    names = [*found[0].values]
    held = {name: _held(name, found, truths) for name in names}
    return Study(
        truth=ends,
        estimates={name: np.array([one[name].estimate for one in found]) for name in names},
        covered={name: line for name, line in held.items() if line is not None},
        widths={
            name: np.array(
                [
                    np.nan_to_num(one[name].high, nan=end) - one[name].low
                    for one, end in zip(found, ends, strict=True)
                ]
            )
            for name, line in held.items()
            if line is not None
        },
        effective=np.array([one.effective for one in found]),
        few=np.array([one.few for one in found]),
    )


def _held(name: str, found: Sequence[OffPolicy], truths: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return whether each interval covers its truth; None for an estimator without intervals."""

    def one(value, line):
        if value.sequence is None:
            return value.low <= line[-1] <= value.high
        now = line[value.sequence.times - 1]
        slack = 1e-12  # a bound may equal the truth
        return bool(
            ((value.sequence.low <= now + slack) & (now <= value.sequence.high + slack)).all()
        )

    if found[0][name].interval == "none":
        return None
    return np.array([one(each[name], line) for each, line in zip(found, truths, strict=True)])
