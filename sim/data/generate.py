"""Data sets that are generated: `demo`, `demo-small`, `netflix-shaped` and
`synthetic:USERSxITEMS[:DENSITY[:RANK]]`.

The same name must give the same ratings on every machine and with every numpy, because runs are compared by
their digests. `Generator.normal` and similar samplers may change between numpy versions; the raw words of a
bit generator may not (numpy promises it). So everything here is made from raw Philox words with + - * /, square
roots and comparisons, which IEEE 754 fixes to the last bit: no logarithm, matrix product or library sampler.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats, Ints
from protocol.errors import BadInput
from sim.data import demo_names

STARS = (1.0, 5.0)
SMALL_USERS, SMALL_ITEMS, SMALL_RANK = 40, 60, 3
DEMO_USERS, DEMO_ITEMS, DEMO_RANK = 200, 60, 1
DEMO_LEAST, DEMO_MORE = 22, 24  # ratings of the lightest user, and how many more the heaviest may have
# One strong taste, so that 60 steps of gradient descent find it; the standard deviation of the stars becomes 1.15.
DEMO_TASTE = 1.2
DEFAULT_DENSITY, DEFAULT_RANK = 0.2, 4
# The most that one process can make in reasonable time and hold in memory; checked before anything is allocated.
MAX_CELLS, MAX_RATINGS, MAX_RANK = 500_000_000, 50_000_000, 1000
CELLS_AT_ONCE = 4_000_000

# The mean and standard deviations, in stars. Taste outweighs noise; otherwise 15 ratings a user would teach nothing.
MEAN, USER_BIAS, ITEM_BIAS, TASTE, NOISE = 3.55, 0.35, 0.6, 0.75, 0.35
# The item of popularity rank k has the weight 1 / (1 + k + share * items): a tail as in Zipf's law, a flatter head.
HEAD_SHARE = 0.12

# `netflix-shaped` has the size of the paper's sample: all ratings of 100 movies that were drawn uniformly, by the
# 191,668 users who rated at least one of them. The paper does not say how many ratings these are. The Netflix Prize has
# 100,480,507 ratings of 17,770 movies by 480,189 users, so 100 movies are expected to have 565,450 ratings: 1.178 for
# each of the 480,189 users. Under a negative binomial law with this mean and the shape .34, 60.1 % of the users rate
# none of the 100 movies, and 191,668 rate at least one. The number of a user's ratings here follows this law, given
# that it is at least one. The form of the law, the popularity of the movies (that of rank k has the weight 1 / (1 + k))
# and all stars are invented.
NETFLIX_USERS, NETFLIX_ITEMS, NETFLIX_RANK = 191_668, 100, 4
NETFLIX_MEAN, NETFLIX_SHAPE = 1.178, 0.34
NETFLIX_RATINGS = 564_429  # the sum over all users of the numbers that are drawn from this law

SPECIFICATION = re.compile(r"synthetic:([0-9]{1,12})x([0-9]{1,12})(?::([0-9.eE-]{1,20})(?::([0-9]{1,9}))?)?")


@dataclass(frozen=True, eq=False)
class Generated:
    """One entry per rating, sorted by (user, item)."""

    n_users: int
    n_items: int
    users: Ints
    items: Ints
    values: Floats
    item_tastes: Floats  # one row per item: its position on the axis of each taste
    user_names: tuple[str, ...] | None = None
    item_titles: tuple[str, ...] | None = None


class Draws:
    """Random numbers from the raw words of one named Philox stream."""

    def __init__(self, name: str) -> None:
        key = hashlib.sha256(b"keyhole data " + name.encode()).digest()[:16]
        self._bits = np.random.Philox(key=int.from_bytes(key, "little"))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)

    def uniform(self, count: int) -> Floats:
        """Draw numbers on [0, 1) from the top 53 bits of each word, so that the conversion to a float is exact."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def bell(self, count: int) -> Floats:
        """Draw numbers with mean 0, variance 1 and a bell-shaped density, without a logarithm.

        Each is the sum of the four 16-bit quarters of a word, centred and scaled.
        """
        words = self.words(count)
        total = np.zeros(count)
        for shift in (0, 16, 32, 48):
            total += ((words >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.float64)
        return (total - 2 * 65535) / 37837.0  # 37837 = sqrt(4 (2^32 - 1) / 12), rounded


def demo() -> Generated:
    """Make 200 users and 60 items with one taste.

    A user rates 22 to 45 items; most users are near the lower end.
    """
    draws = Draws("demo of 200 users")
    chance = draws.uniform(DEMO_USERS)
    counts = DEMO_LEAST + (DEMO_MORE * chance * chance).astype(np.int64)
    made = _rate(draws, counts, DEMO_ITEMS, DEMO_RANK, taste=DEMO_TASTE)
    titles = demo_names.titles(made.item_tastes[:, 0] > 0)
    return replace(made, user_names=demo_names.user_names(DEMO_USERS), item_titles=titles)


def demo_small() -> Generated:
    """Make 40 users and 60 items with three tastes; a user rates 8 to 22 items."""
    draws = Draws("demo")
    counts = 8 + (draws.uniform(SMALL_USERS) * 15).astype(np.int64)
    return _rate(draws, counts, SMALL_ITEMS, SMALL_RANK)


def netflix_shaped() -> Generated:
    """Make as many users and items as in the paper's sample of the Netflix Prize, with 2.94 ratings per user."""
    draws = Draws("netflix-shaped")
    law = np.cumsum(_ratings_law(NETFLIX_MEAN, NETFLIX_SHAPE, NETFLIX_ITEMS))
    counts = 1 + np.searchsorted(law[:-1], draws.uniform(NETFLIX_USERS) * law[-1], side="right").astype(np.int64)
    return _rate(draws, counts, NETFLIX_ITEMS, NETFLIX_RANK, head=0.0)


def _ratings_law(mean: float, shape: float, most: int) -> Floats:
    """Compute weights of 1 … `most` ratings: p(n + 1) = p(n) (n + shape) / (n + 1) q, q = mean / (mean + shape)."""
    weights, weight = np.zeros(most), shape
    for n in range(1, most + 1):
        weights[n - 1] = weight
        weight = weight * (n + shape) / (n + 1) * (mean / (mean + shape))
    return weights


def synthetic(specification: str) -> Generated:
    """Make the data set that `synthetic:...` describes; every user rates max(1, round(density * items)) items."""
    users, items, density, rank = parse(specification)
    # The stream is named by the values, not by their spelling: `:.2` and `:0.20` are the same data set.
    draws = Draws(f"synthetic:{users}x{items}:{density!r}:{rank}")
    return _rate(draws, np.full(users, per_user(items, density), dtype=np.int64), items, rank)


def parse(specification: str, to_be_made: bool = True) -> tuple[int, int, float, int]:
    """Parse `specification` into (users, items, density, rank).

    Without `to_be_made` it may describe a larger data set than can be made.
    """
    match = SPECIFICATION.fullmatch(specification)
    if match is None:
        raise BadInput(
            f'"{specification}" is not synthetic:USERSxITEMS[:DENSITY[:RANK]]; '
            "write for example synthetic:200x100 or synthetic:200x100:.1:4"
        )
    users, items = int(match[1]), int(match[2])
    density = _density(specification, match[3])
    rank = DEFAULT_RANK if match[4] is None else int(match[4])
    if users < 1 or items < 1 or not 1 <= rank <= MAX_RANK:
        raise BadInput(f'"{specification}" needs a user, an item and a rank from 1 to {MAX_RANK}')
    if to_be_made and (users * items > MAX_CELLS or users * per_user(items, density) > MAX_RATINGS):
        raise BadInput(
            f'"{specification}" is too large; keep USERS times ITEMS within {MAX_CELLS:,} '
            f"and the ratings within {MAX_RATINGS:,}"
        )
    return users, items, density, rank


def _density(specification: str, text: str | None) -> float:
    try:
        density = DEFAULT_DENSITY if text is None else float(text)
    except ValueError:
        density = -1.0
    if not 0 < density <= 1:
        raise BadInput(f'"{specification}" needs a density above 0 and at most 1, not "{text}"')
    return density


def per_user(items: int, density: float) -> int:
    return max(1, round(density * items))


def _rate(
    draws: Draws, counts: Ints, n_items: int, rank: int, head: float = HEAD_SHARE, taste: float = TASTE
) -> Generated:
    """Make `counts[i]` ratings of user i.

    Items are drawn by popularity. The stars are mean + biases + taste + noise, rounded and clipped to 1 … 5.
    """
    n_users = len(counts)
    ranks = np.argsort(draws.words(n_items), kind="stable").astype(np.float64)  # of popularity, drawn at random
    users, items = _choose(draws, counts, 1 + ranks + head * n_items)
    score = MEAN + USER_BIAS * draws.bell(n_users)[users] + ITEM_BIAS * draws.bell(n_items)[items]
    shared, item_tastes = np.zeros(len(users)), np.zeros((n_items, rank))
    for axis in range(rank):  # no matrix product: its order of summation differs between machines
        user_taste, item_tastes[:, axis] = draws.bell(n_users), draws.bell(n_items)
        shared += user_taste[users] * item_tastes[items, axis]
    score += shared * (taste / np.sqrt(rank))
    score += NOISE * draws.bell(len(users))
    return Generated(n_users, n_items, users, items, np.clip(np.floor(score + 0.5), *STARS), item_tastes)


def _choose(draws: Draws, counts: Ints, rarity: Floats) -> tuple[Ints, Ints]:
    """Choose `counts[i]` different items for user i; popular items (of small `rarity`) are chosen more often.

    Sequential Poisson sampling: give item j the key U * rarity[j] and keep the smallest keys. The probability to
    be chosen is nearly proportional to 1 / rarity, and the number of items is exact. A key takes one product,
    where a Gumbel key takes two logarithms.
    """
    n_users, n_items = len(counts), len(rarity)
    rows = max(1, CELLS_AT_ONCE // n_items)
    chosen_users, chosen_items = [], []
    for start in range(0, n_users, rows):
        wanted = counts[start : start + rows]
        keys = draws.uniform(len(wanted) * n_items).reshape(-1, n_items) * rarity
        taken = _smallest(keys, wanted)
        user, item = np.nonzero(taken)  # row by row, and thus sorted by (user, item)
        chosen_users.append(user + start)
        chosen_items.append(item)
    return np.concatenate(chosen_users).astype(np.int64), np.concatenate(chosen_items).astype(np.int64)


def _smallest(keys: Floats, wanted: Ints) -> npt.NDArray[np.bool_]:
    """Mark the `wanted[r]` smallest keys of each row r."""
    largest = int(wanted.max())
    if largest < keys.shape[1]:
        near = np.argpartition(keys, largest - 1, axis=1)[:, :largest]
    else:
        near = np.broadcast_to(np.arange(keys.shape[1]), keys.shape)
    order = np.argsort(np.take_along_axis(keys, near, axis=1), axis=1, kind="stable")
    near = np.take_along_axis(near, order, axis=1)
    taken = np.zeros(keys.shape, dtype=np.bool_)
    np.put_along_axis(taken, near, np.arange(largest) < wanted[:, None], axis=1)
    return taken
