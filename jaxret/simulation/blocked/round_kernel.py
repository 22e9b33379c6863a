"""A round as one GPU launch over all multiprocessors, for catalogues too large for one.

A round needs three numbers of all items before any row can move: the largest logit, the sum of
their exponentials, and the item shown. So it ends in the launch that begins the next one. The
items lie in K pieces, a program each, and launch i of a tile does for its piece

    learn, round i - 1                                 from what all pieces said in launch i - 1
      m = max_k m_k;  Z = sum_k s_k exp(m_k - m);  p = exp(z - m) / Z
      a: the first item with z = m, or drawn;  y = 1[a right];  e = eta_t c / tau
      row_{i-1} <- e / factor                          pending from now on; factor, norm2 move
    begin, round i
      row = row_i - sum_{r < i} (q_i . q_r) row_r      row_i = (Theta q_i) less the tiles before
      z = factor row / tau
      says m_k = max z,  s_k = sum exp(z - m_k),  its first item with z = m_k

with the letters of `jaxret.simulation.blocked.simulate`; `jaxret.simulation.blocked.kernel_blocks`
has what lies around it. b rounds are b + 1 launches: the last one only learns. What a round has to
report crosses too (the logits of its labels, min z, sums of z and of exp(min z - z)), so that no
logits are kept.

**A draw in two stages**, by one uniform: the piece k on whose share ``s_k exp(m_k - m)`` of Z it
falls, and where in that share (again a uniform number); with that the item of the piece. The second
stage needs Z, so it cannot be part of launch i - 1. Every program makes it for itself in launch i,
from the logits of that one piece: reading some kB more is cheaper than a launch. Logits therefore
lie in an array of their own: a piece may not write over what others still draw from.

On paper, not measured. Launches a round: 1 + 1/b, and some ten small ones a tile (a product, its
difference, copies): at 2 to 3 us each, which wait for one another, 5 to 7 us a round with b = 8,
whatever I. Bytes a round and row: 12 d / B for Theta; 4 B / b for what is pending of the tiles
before, of which all B lines are read; 24 where scores and tiles are written and cut; and of the
launches 20 (a score read, a logit written and read, the mask read, e written) + 2 b - 6 for what is
pending in the tile; with a projection 16 more. With B = 128, at 4.3 TB/s:

    43,215 x 1,536, b = 8      144 + 64 + 24 + 30 = 262 a row, 11 MB a round      3 us
    1,000,000 x 768, b = 16     72 + 32 + 24 + 46 = 174 a row, 174 MB a round    40 us

So launches bound the first and bytes the second: 2.4 times the 17 us of Theta alone.

Backend: Triton, which wants powers of two a program: the piece, b, and K as it is read (filled up,
masked). I is padded to a multiple of the piece alone. It cannot index what a program holds, so
entries are taken by masks. Mosaic GPU refuses whole arrays as in
`jaxret.simulation.blocked.tile_kernel`.

Letters: I items, K pieces, B rounds a block, b rounds a tile, L labels.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Int

from jaxret.learners.learner import Learner, Rule
from jaxret.runtime.validate import require
from jaxret.simulation.blocked.kernel_blocks import (
    Tile,
    answered,
    inverted,
    play_blocks,
    projected,
    require_kernel,
)
from jaxret.simulation.blocked.simulate import BLOCK, TILE
from jaxret.simulation.trace import measured
from jaxret.types import PRNGKey, State, Stream, Trace

PIECE = 1024  # items a program
MOST = 16384  # items a piece, and pieces: a program holds a number of each
TOP, TOTAL, LOW, INVERSE, SUM, LABEL = range(6)  # the lines of `Said.numbers`


class Said(NamedTuple):
    """What the pieces say of a round they have begun; places past the K-th mean nothing."""

    plain: Any  # theta . q [I]
    numbers: Any  # m_k, s_k, min z, sum exp(min z - z), sum z, a logit for each label [5 + L, K]
    best: Any  # the first item with z = m_k [K]


def simulate_in_pieces(
    learner: Learner,
    state: State,
    stream: Stream,
    key: PRNGKey,
    *,
    block: int = BLOCK,
    tile: int = TILE,
    piece: int = PIECE,
    warps: int = 4,
    interpret: bool = False,
) -> tuple[State, Trace]:
    """The rounds of `jaxret.simulation.blocked.simulate.simulate_blocked`, each in one launch.

    Args:
      learner: as in `jaxret.simulation.blocked.tile_kernel.simulate_tiled`.
      state: as there, with any number of items.
      stream: as there. The environment is the plain one, ``Environment()``.
      key: as there.
      block: B, rounds between two reads of Theta.
      tile: b, rounds between two reads of all that is pending; a power of two that divides B.
      piece: items a program; a power of two. It holds b numbers of each for a moment.
      warps: of 32 threads, that share a piece.
      interpret: runs the kernel as plain JAX, on any device; slow, for tests.

    Returns:
      as there.

    Raises:
      ValueError: for a learner, a catalogue or sizes that the kernel does not do.
    """
    rule, items = require_kernel(learner, state, block, tile), len(state.theta)
    require("tile", tile, "a power of two", _is_power_of_2)
    fits = f"a power of two up to {MOST}"
    require("piece", piece, fits, lambda n: _is_power_of_2(n) and n <= MOST)
    pieces = -(-items // piece)
    require("items / piece", pieces, f"at most {MOST}: take larger pieces", lambda n: n <= MOST)
    play = partial(_play, rule, piece, warps, interpret)
    sizes = {"block": block, "tile": tile, "padded": pieces * piece}
    return play_blocks(play, partial(_described, pieces), learner, state, stream, key, **sizes)


def _is_power_of_2(n: int) -> bool:
    return n >= 1 and n & (n - 1) == 0


def _described(pieces: int, said, labels) -> Trace:
    """The trace of a block, of which K pieces have told."""
    numbers, item, propensity, reward = said
    numbers = numbers[..., :pieces]
    top, low = numbers[:, TOP].max(axis=1), numbers[:, LOW].min(axis=1)

    def combined(line, by):  # shares, shifted by what they have in common
        return (numbers[:, line] * jnp.exp(by)).sum(axis=1)

    log_total = top + jnp.log(combined(TOTAL, numbers[:, TOP] - top[:, None]))
    inverse = combined(INVERSE, low[:, None] - numbers[:, LOW])
    of_labels = numbers[:, LABEL:].max(axis=2)
    info = jax.vmap(measured)(
        of_labels,
        jnp.isfinite(of_labels),
        log_total,
        inverse * jnp.exp(log_total - low),
        numbers[:, SUM].sum(axis=1),
    )
    return Trace(item=item, propensity=propensity, reward=reward, success=reward, **info._asdict())


def _play(rule: Rule, piece: int, warps: int, interpret: bool, tile: Tile):
    """The b + 1 launches of a tile, whose scores give way to what is pending, row by row."""
    rounds, said = len(tile.left), None
    numbers, shown = [], []
    for i in range(rounds + 1):
        place = np.array([i], np.int32)
        tile, bit, said = _launch(rule, piece, warps, interpret, tile, said, place, i < rounds)
        numbers += [] if said is None else [said.numbers]
        shown += [] if bit is None else [bit]
    of_rounds = jnp.stack(numbers), *(jnp.concatenate(part) for part in zip(*shown, strict=True))
    return tile.left, tile.factor, tile.norm2, of_rounds


def _launch(
    rule: Rule,
    piece: int,
    warps: int,
    interpret: bool,
    tile: Tile,
    said: Said | None,
    i: Int[np.ndarray, " 1"],
    begins: bool,
) -> tuple[Tile, Any, Said | None]:
    """Learns from the round that is over, if one is; begins round i of the tile, if it has one.

    Returns:
      the tile, with one more of its rows pending; the item, its propensity and its reward [1] each,
      or None; what the pieces say, or None.
    """
    learns, moves = said is not None, rule.projection.factor is not None
    rows = tile.left
    pieces = rows.shape[1] // piece
    places, lines = pl.next_power_of_2(pieces), LABEL + tile.labels.shape[1]
    real, whole = (partial(jax.ShapeDtypeStruct, dtype=one) for one in (jnp.float32, jnp.int32))
    wide = real(rows.shape[1:])
    outputs = (
        real(rows.shape) if learns else None,
        (wide, wide) if learns and moves else None,
        (whole((1,)), real((1,)), real((1,))) if learns else None,
        Said(wide, real((lines, places)), whole((places,))) if begins else None,
    )
    new, moved, bit, says = pl.pallas_call(
        partial(_program, rule, pieces),
        grid=(pieces,),
        out_shape=outputs,
        input_output_aliases={0: 0} if learns else {},
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="round",
    )(tile, said, i)
    if new is not None:
        tile = tile._replace(left=new)
    if moved is not None:
        tile = tile._replace(factor=moved[0], norm2=moved[1])
    return tile, bit, says


def _program(rule: Rule, pieces: int, tile, said, place, new, moved, bit, says) -> None:
    """What launch ``place`` does for one piece, all of it by references; None: not in this one."""
    rows = tile.left
    rounds, items = rows.shape
    size, k, i = items // pieces, pl.program_id(0), place[0]
    mine, ids = _piece(k, size)
    free = rule.projection.factor is None
    factor = jnp.ones((), jnp.float32) if free else tile.factor[mine]
    if said is not None:
        top, total, best, item, p_chosen = _over(rule, tile, i - 1, said, pieces)
        probs = jnp.exp(_logits(tile, said.plain, mine) - top) / total
        e, propensity, reward = answered(rule, tile, i - 1, probs, ids, item, best, p_chosen)
        pending = e / factor
        new[i - 1, mine] = pending
        if moved is not None:
            plain, norm2 = said.plain[mine], tile.norm2[mine]
            factor, norm2 = projected(rule, tile, i - 1, e, plain, factor, norm2)
            moved[0][mine], moved[1][mine] = factor, norm2

        @pl.when(k == 0)
        def _():
            bit[0][0], bit[1][0], bit[2][0] = item, propensity, reward

    if says is not None:
        row = rows[i, mine]
        if said is not None:
            before = lax.broadcasted_iota(jnp.int32, (rounds, size), 0) < i - 1
            earlier = plgpu.load(rows.at[:, mine], mask=before, other=0.0)
            row -= jnp.sum(tile.gram[i, :][:, None] * earlier, axis=0)
            row -= tile.gram[i, i - 1] * pending
        says.plain[mine] = factor * row
        _say(tile, i, factor * row, mine, ids, k, says)


def _piece(k, size: int):
    """Where the k-th piece lies, and its items."""
    return pl.ds(k * size, size), k * size + lax.iota(jnp.int32, size)


def _logits(tile: Tile, plain, at):
    return jnp.where(tile.here[at] > 0, plain[at] / tile.tau[0], -jnp.inf)


def _over(rule: Rule, tile: Tile, i, said: Said, pieces: int):
    """Round i, of which all pieces have told.

    Returns:
      m, Z, the best item, the item shown, p of it.
    """
    ks = lax.iota(jnp.int32, said.best.shape[0])
    tops = jnp.where(ks < pieces, said.numbers[TOP, :], -jnp.inf)
    top = jnp.max(tops)
    shares = jnp.where(ks < pieces, said.numbers[TOTAL, :] * jnp.exp(tops - top), 0)
    total = jnp.sum(shares)
    items = said.plain.shape[0]
    best = jnp.min(jnp.where(tops == top, said.best[:], items))
    if rule.policy.name == "greedy":
        return top, total, best, best, 1 / total
    k, rest = inverted(shares, ks, tile.uniform[i])
    theirs, ids = _piece(k, items // pieces)
    z = _logits(tile, said.plain, theirs)
    item, _ = inverted(jnp.exp(z - jnp.max(z)), ids, rest)
    chosen = jnp.max(jnp.where(ids == item, z, -jnp.inf))
    return top, total, best, item, jnp.exp(chosen - top) / total


def _say(tile: Tile, i, plain, mine, ids, k, says: Said) -> None:
    """What the k-th piece says of round i."""
    here = tile.here[mine] > 0
    z = jnp.where(here, plain / tile.tau[0], -jnp.inf)
    top, low = jnp.max(z), jnp.min(jnp.where(here, z, jnp.inf))
    above = z - jnp.where(top > -jnp.inf, top, 0.0)  # a piece may be empty
    below = jnp.where(low < jnp.inf, low, 0.0) - z
    says.numbers[TOP, k], says.numbers[TOTAL, k] = top, jnp.sum(jnp.exp(above))
    says.numbers[LOW, k] = low
    says.numbers[INVERSE, k] = jnp.sum(jnp.where(here, jnp.exp(below), 0.0))
    says.numbers[SUM, k] = jnp.sum(jnp.where(here, z, 0.0))
    says.best[k] = jnp.min(jnp.where(z == top, ids, says.plain.shape[0]))
    for position in range(tile.labels.shape[1]):
        own = jnp.where(ids == tile.labels[i, position], z, -jnp.inf)
        says.numbers[LABEL + position, k] = jnp.max(own)
