"""Checks of logs and policies that users give, before any estimate is computed.

    log = checked(log)                       arrays of the right shape, in their ranges
    log = checked(log, scale=(1, 5))         rewards from 1 to 5, mapped to [0, 1]

Lists, JAX arrays and other dtypes are converted. Values that would silently give a wrong estimate
are refused, naming the field and the first such round: rewards beyond their range, probabilities in
percent, a used item not on its slate. Fields that only a live index writes are not checked.

Letters: I items, T rounds, k items shown, d width.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from jaxret.logs import Log
from jaxret.runtime.validate import real_numbers, require, whole_numbers
from jaxret.types import Prior

CLOSE = 1e-3  # by which a float32 probability may exceed 1, and a row of them differ from the sum 1
AGREE = 1e-2  # relative difference of two float32 records of one probability
SCALE = (0.0, 1.0)


def checked(log: Log, scale: tuple[float, float] = SCALE) -> Log:
    """Convert the fields of a log to arrays, check them, and map its rewards to [0, 1].

    Args:
      log: log; fields may be lists or JAX arrays.
      scale: lowest and highest possible reward, which become 0 and 1.

    Returns:
      The log with NumPy arrays and rewards in [0, 1], NaN where there was no answer.

    Raises:
      ValueError: if the scale is not a range, a field has a wrong shape, dtype or value, or an item
        that was used is not on its slate.
    """
    if not isinstance(log, Log):
        raise ValueError(
            f"log must be a Log, as load_log(path, task) returns, got {type(log).__name__}"
        )
    low, high = range_of(scale)
    reward = real_numbers("the log's reward [T]", log.reward, 1)
    log = log._replace(
        query=real_numbers("the log's query [T, d]", log.query, 2),
        slate=whole_numbers("the log's slate [T, k]", log.slate, 2),
        by_position=real_numbers("the log's by_position [T, k]", log.by_position, 2),
        item=whole_numbers("the log's item [T]", log.item, 1),
        propensity=real_numbers("the log's propensity [T]", log.propensity, 1),
        reward=reward,
        version=whole_numbers("the log's version [T]", log.version, 1),
        round=whole_numbers("the log's round [T]", log.round, 1),
        theta=_if_any(log.theta, lambda x: real_numbers("the log's theta [I, d]", x, 2)),
        available=_if_any(log.available, _mask),
        probabilities=_if_any(
            log.probabilities, lambda x: real_numbers("the log's probabilities [T, I]", x, 2)
        ),
        prior=_if_any(log.prior, lambda x: Prior._make(map(np.asarray, x))),
    )
    for name in ("query", "slate", "by_position", "item", "propensity", "version", "round"):
        if len(found := getattr(log, name)) != len(reward):
            raise ValueError(
                f"the log's {name} has {len(found)} rounds and its reward {len(reward)}: give each "
                "field one row per round"
            )
    if log.by_position.shape != log.slate.shape:
        raise ValueError(
            f"the log's by_position must have the shape of its slate, {list(log.slate.shape)}, got "
            f"{list(log.by_position.shape)}"
        )
    _check_values(log, low, high)
    return log._replace(reward=(reward - low) / (high - low))


def range_of(scale: Any) -> tuple[float, float]:
    """Return a scale as two finite numbers, the lower one first.

    Raises:
      ValueError: if it is anything else.
    """
    try:
        low, high = map(float, scale)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    require("scale", scale, "(low, high), two numbers with low < high", lambda _: low < high)
    require("scale", scale, "two finite numbers", lambda _: np.isfinite([low, high]).all())
    return low, high


def items_of(log: Log) -> int | None:
    """Return the number of tools that a log knows, from the first of its fields over all tools."""
    if log.sets is not None:
        return log.sets.shape[1]
    if log.theta is not None:
        return len(log.theta)
    if log.available is not None:
        return len(log.available)
    return None if log.probabilities is None else log.probabilities.shape[1]


def require_items(log: Log, name: str, items: int) -> None:
    """Raise ValueError unless a policy is about the tools of a log.

    Args:
      log: checked log.
      name: name of the policy, for the message.
      items: number of tools of the policy.
    """
    known, largest = items_of(log), int(log.slate.max(initial=-1))
    spare = log.sets is not None  # of a catalogue that grows
    if known is not None and (known > items if spare else known != items):
        raise ValueError(
            f"{name} has {items} tools and the log {known}: they must be the same, in the same "
            "order"
        )
    if largest >= items:
        raise ValueError(f"{name} has {items} tools, and the log shows tool {largest}")


def require_probabilities(
    name: str, rows: Float[np.ndarray, "T I"], log: Log, close: float = CLOSE
) -> None:
    """Raise ValueError for the first round whose row is not a distribution.

    Args:
      name: name of the probabilities, for the message.
      rows: a row per round [T, I].
      log: log of these rounds.
      close: largest distance of a sum from 1.
    """
    least, total = rows.min(axis=1, initial=np.inf), rows.sum(axis=1, dtype=np.float64)
    wrong = ~((least >= 0) & (abs(total - 1) < close))  # NaN too
    if wrong.any():
        t = int(wrong.argmax())
        raise ValueError(
            f"{name} of round {log.round[t]} are negative or do not sum to 1: the least is "
            f"{least[t]:.4g}, the sum {total[t]:.6g} ({wrong.sum()} such rounds); give fractions, "
            "not percent or scores"
        )


def _if_any(value: Any, convert: Callable[[Any], Any]) -> Any:
    return None if value is None else convert(value)


def _mask(values: Any) -> Bool[np.ndarray, " I"]:
    found = np.asarray(values)
    if found.ndim != 1 or not (found.dtype == bool or np.isin(found, (0, 1)).all()):
        raise ValueError(
            "the log's available must be a mask [I] of True and False, got the dtype "
            f"{found.dtype} and the shape {list(found.shape)}"
        )
    return found.astype(bool)


def _check_values(log: Log, low: float, high: float) -> None:
    def refuse(
        wrong: np.ndarray, name: str, values: np.ndarray, allowed: str, fix: str = ""
    ) -> None:
        if wrong.any():
            where = np.unravel_index(int(wrong.argmax()), wrong.shape)
            number = wrong.reshape(len(wrong), -1).any(axis=1).sum()
            raise ValueError(
                f"the {name} of round {log.round[where[0]]} must be {allowed}, got "
                f"{values[where]:.6g} ({number} such rounds){fix}"
            )

    reward, shown, items = log.reward, log.slate >= 0, items_of(log)
    refuse(
        (reward < low) | (reward > high),
        "reward",
        reward,
        f"in [{low:g}, {high:g}]",
        ": give the lowest and highest possible reward, scale=(low, high)",
    )
    percent = ": give a fraction, not percent"
    for name, values in (("by_position", log.by_position), ("propensity", log.propensity)):
        real = shown if values.ndim == 2 else np.ones(len(values), bool)
        wrong = real & ((values < 0) | (values > 1 + CLOSE))
        refuse(wrong, name, values, "a probability in (0, 1]", percent)
    refuse(~np.isfinite(log.query), "query", log.query, "finite")
    if items is not None:
        refuse(log.slate >= items, "slate", log.slate, f"of tools 0 .. {items - 1}, -1 pads")
    refuse(log.slate < -1, "slate", log.slate, "of rows of the catalogue, -1 pads")
    on_slate = ((log.slate == log.item[:, None]) & shown).any(axis=1)
    if not on_slate.all():
        t = int((~on_slate).argmax())
        raise ValueError(
            f"round {log.round[t]} used item {log.item[t]}, which is not on its slate "
            f"{log.slate[t].tolist()} ({(~on_slate).sum()} such rounds): give the item that was "
            "used of those shown"
        )
    ordered = np.sort(log.slate, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        t = int(twice.argmax())
        raise ValueError(f"round {log.round[t]} shows an item twice: {log.slate[t].tolist()}")
    _check_catalogue(log)


def _check_catalogue(log: Log) -> None:
    """Check the fields over all tools against one another and against the rounds."""
    items, rounds = items_of(log), log.rounds
    if log.theta is not None and log.theta.shape[1] != log.query.shape[1]:
        raise ValueError(
            f"the log's query has {log.query.shape[1]} numbers and its theta {log.theta.shape[1]}: "
            "encode both with one encoder"
        )
    if log.theta is not None and not np.isfinite(log.theta).all():
        row = int((~np.isfinite(log.theta).all(axis=1)).argmax())
        raise ValueError(f"row {row} of the log's theta is not finite")
    if log.available is not None and len(log.available) != items:
        raise ValueError(f"the log's available has {len(log.available)} tools and theta {items}")
    if log.probabilities is not None:
        if log.probabilities.shape != (rounds, items):
            raise ValueError(
                f"the log's probabilities must be [{rounds}, {items}], one per round and tool, got "
                f"{list(log.probabilities.shape)}"
            )
        require_probabilities("the log's probabilities", log.probabilities, log)
        if log.slate.shape[1] == 1:
            _check_agreement(log)
    for part in () if log.prior is None else log.prior:
        if part.ndim != 2 or len(part) != rounds:
            raise ValueError(
                f"the log's prior must be [{rounds}, K], a row per round, got {list(part.shape)}"
            )


def _check_agreement(log: Log) -> None:
    """Check that the used tools' entries of ``probabilities`` are those of ``by_position``."""
    used = np.asarray(log.probabilities)[np.arange(log.rounds), log.slate[:, 0]]
    own = log.by_position[:, 0]
    apart = abs(used - own) > AGREE * own  # False where it is unknown
    if apart.any():
        t = int(apart.argmax())
        raise ValueError(
            f"round {log.round[t]} showed tool {log.slate[t, 0]} with the probability {own[t]:.4g} "
            f"in by_position and {used[t]:.4g} in probabilities ({apart.sum()} such rounds): give "
            "columns in the order of the catalogue"
        )
