"""Linear forms over Z_{2^b}, as a graph that is written while roles run and read when they are done.

Every row of a symbolic array is a node. A leaf is a symbol: a number that entered the arithmetic (a gradient, a share
of noise) or that was drawn from a keyed stream. Any other node is a sum of earlier nodes with coefficients. All
coordinates of a row have the same form, since ring operations work on whole rows: one node stands for `dim` forms. Node
0 is the zero row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from protocol.arithmetic.ring import Label
from protocol.arithmetic.tape import Name
from protocol.arrays import Flags, Floats, Ints

UNIFORM, VALUE, NOISE, SUM = range(4)  # kinds of nodes

ZERO = 0
UNFOLLOWED = "not followed"  # what a leaf of unknown form is
CERTAIN = 40  # zeros that prove one party's noise absent: a real share is seldom rounded to 0
SURPRISE = 25  # −log2 of the chance that the zeros of any row, or of any party in one turn, are called missing noise


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Leaves that were created together."""

    start: int
    count: int
    kind: int
    owner: str  # the party that the number belongs to, or that drew it first
    what: str
    iteration: int
    items: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]
    zeros: int = 0  # for noise: how many numbers it has if all of them are zero, else 0
    bits: Floats | None = None  # and, for each row that is zero, −log2 of the chance of that; None: no row is


class Arena:
    """The graph while it is written. Given `places`, only these rows of every array are followed, and others are 0."""

    def __init__(self, places: Ints | None = None, zero_chance: Callable[[Label], Floats] | None = None) -> None:
        """`zero_chance` bounds, for a share of noise, the chance that a number is 0, per row; None: unknown."""
        self.size = 1
        self.places = places
        self.zero_chance = zero_chance or (lambda label: np.ones(len(label.items)))
        self.blocks: list[Block] = []
        self.doubtful = False  # some leaf was not followed
        self.streams: dict[tuple[bytes, tuple[Name, ...]], Ints] = {}  # by key and name: one leaf per row
        self.derived: dict[bytes, tuple[bytes, tuple[Name, ...]]] = {}  # each key that was derived: from which, as what
        self._parents: list[Ints] = []
        self._children: list[Ints] = []
        self._coefficients: list[npt.NDArray[np.int64]] = []

    def _new(self, there: npt.NDArray[np.bool_]) -> Ints:
        """Create a node wherever it is `there`; elsewhere is the zero row."""
        nodes, count = np.full(len(there), ZERO, np.int64), int(np.count_nonzero(there))
        nodes[there] = np.arange(self.size, self.size + count)
        self.size += count
        return nodes

    def chosen(self, count: int) -> npt.NDArray[np.bool_]:
        """Mark the rows of an array of `count` that are followed."""
        there = np.full(count, self.places is None)
        if self.places is not None:
            there[self.places[self.places < count]] = True
        return there

    def symbols(self, owner: str, label: Label, kind: int, zeros: Flags | None = None) -> Ints:
        """Create a symbol for each row; `zeros` marks the numbers of noise that are 0."""
        there, start = self.chosen(len(label.items)), self.size
        nodes, items = self._new(there), label.items[there].astype(np.int64)
        weights = np.zeros(len(items)) if label.weights is None else np.asarray(label.weights, np.float64)[there]
        zeros = zeros if zeros is not None and zeros.any() else None
        every = 0 if zeros is None or not zeros.all() else zeros.size
        bits = None if zeros is None else self._bits(label, zeros)[there]
        block = Block(start, len(items), kind, owner, label.what, label.iteration, items, weights, every, bits)
        self.blocks.append(block)
        return nodes

    def _bits(self, label: Label, zeros: Flags) -> Floats:
        chances = np.clip(self.zero_chance(label), 2.0**-60, 1)
        bits: Floats = np.where(zeros.all(axis=1), -np.log2(chances) * zeros.shape[1], 0.0)
        return bits

    def stream(self, owner: str, key: bytes, rows: int, name: tuple[Name, ...]) -> Ints:
        """Return the same leaves for every draw from `key` under `name`; a longer draw extends them."""
        known = self.streams.get((key, name), np.zeros(0, np.int64))
        if len(known) < rows:
            known = np.concatenate([known, self._uniform(owner, "uniform", self.chosen(rows)[len(known) :])])
            self.streams[(key, name)] = known
        return known[:rows]

    def derive(self, key: bytes, name: tuple[Name, ...], child: bytes) -> None:
        """Note that whoever has `key` can make `child`."""
        self.derived[child] = key, name

    def unfollowed(self, owner: str, count: int) -> Ints:
        """Create leaves for numbers whose form is not known: nobody knows them, and messages with them are named."""
        self.doubtful = True
        return self._uniform(owner, UNFOLLOWED, self.chosen(count))

    def _uniform(self, owner: str, what: str, there: npt.NDArray[np.bool_]) -> Ints:
        start, nodes = self.size, self._new(there)
        count = self.size - start
        none = np.full(count, -1, np.int64)
        self.blocks.append(Block(start, count, UNIFORM, owner, what, -1, none, np.zeros(count)))
        return nodes

    def combine(self, count: int, terms: Sequence[tuple[npt.NDArray[np.int64], Ints, int | Ints]]) -> Ints:
        """Add up `count` rows; a term (places, nodes, coefficient or one for each) adds each multiple at its place."""
        filled = np.zeros(count, np.bool_)
        for places, children, _ in terms:
            filled[places[children != ZERO]] = True
        nodes = self._new(filled)
        for places, children, coefficient in terms:
            there = children != ZERO
            self._parents.append(nodes[places[there]])
            self._children.append(children[there])
            self._coefficients.append(np.broadcast_to(np.asarray(coefficient, np.int64), there.shape)[there])
        return nodes

    # --- when all roles have run ---------------------------------------------------------------------------------

    def edges(self) -> csr_array:
        """Return a matrix with a row for each node and coefficients at the nodes that it is a sum of."""
        shape = (self.size, self.size)
        if not self._parents:
            return csr_array(shape, dtype=np.int64)
        parents, children = np.concatenate(self._parents), np.concatenate(self._children)
        return csr_array((np.concatenate(self._coefficients), (parents, children)), shape=shape)


class Forms:
    """The finished graph: forms of nodes, and the attributes of each leaf."""

    def __init__(self, arena: Arena) -> None:
        self._edges = arena.edges()
        size = arena.size
        self.kind = np.full(size, SUM, np.int8)
        self.owner = np.full(size, -1, np.int32)  # index of the party in `owners`
        self.item = np.full(size, -1, np.int32)
        self.iteration = np.full(size, -1, np.int32)
        self.weight = np.zeros(size)
        self.what = np.full(size, -1, np.int16)  # index of the word in `words`
        self.owners = sorted({block.owner for block in arena.blocks})
        self.words = sorted({block.what for block in arena.blocks})
        numbers = {name: at for at, name in enumerate(self.owners)}
        words = {name: at for at, name in enumerate(self.words)}
        for block in arena.blocks:
            part = slice(block.start, block.start + block.count)
            self.kind[part], self.owner[part], self.what[part] = block.kind, numbers[block.owner], words[block.what]
            self.item[part], self.iteration[part], self.weight[part] = block.items, block.iteration, block.weights
        self.nought = self._nought(arena.blocks)

    @property
    def has_followed(self) -> bool:
        """Tell whether there is any leaf that is followed."""
        unfollowed = self.words.index(UNFOLLOWED) if UNFOLLOWED in self.words else -2
        return bool(((self.kind != SUM) & (self.what != unfollowed)).any())

    def has_unfollowed(self, nodes: Ints) -> bool:
        """Tell whether the form of any of `nodes` has a leaf that was not followed."""
        if UNFOLLOWED not in self.words:
            return False
        return bool((self.what[self.of(nodes).indices] == self.words.index(UNFOLLOWED)).any())

    def _nought(self, blocks: list[Block]) -> npt.NDArray[np.bool_]:
        """Mark noise that is known to be absent: all of its kind is zero, all of one party's, or a row for sure."""
        of_all: dict[str, float] = {}
        of_one: dict[tuple[str, str], float] = {}
        noise = [block for block in blocks if block.kind == NOISE and block.count]
        for block in noise:
            zeros = block.zeros or -np.inf
            of_all[block.what] = of_all.get(block.what, 0) + zeros
            of_one[block.what, block.owner] = of_one.get((block.what, block.owner), 0) + zeros
        nought, rows = np.zeros(len(self.kind), np.bool_), sum(block.count for block in noise)
        for block in noise:
            if of_all[block.what] > 0 or of_one[block.what, block.owner] >= CERTAIN:
                nought[block.start : block.start + block.count] = True
            elif block.bits is not None:
                turn = block.zeros and block.bits.sum() >= SURPRISE + math.log2(len(noise))
                nought[block.start : block.start + block.count] = turn | (block.bits >= SURPRISE + math.log2(rows))
        return nought

    def of(self, nodes: Ints) -> csr_array:
        """Expand `nodes` to a row each over the leaves; coefficients are 64-bit words, reduced by a smaller ring."""
        size, count = self._edges.shape[0], len(nodes)
        ones = np.where(nodes == ZERO, 0, 1).astype(np.int64)
        pending = csr_array((ones, nodes, np.arange(count + 1)), shape=(count, size))
        done = csr_array((count, size), dtype=np.int64)
        while pending.nnz:
            inner = self.kind[pending.indices] == SUM
            leaves = pending.copy()
            leaves.data = np.where(inner, 0, pending.data)
            leaves.eliminate_zeros()
            done = done + leaves if done.nnz else leaves
            pending.data = np.where(inner, pending.data, 0)
            pending.eliminate_zeros()
            pending = pending @ self._edges
        done.sum_duplicates()
        return done

    def children(self) -> csr_array:
        """Return a matrix with a row for each node and ones at the nodes that it is made of."""
        ones = self._edges.copy().astype(np.int32)
        ones.data[:] = 1
        return ones
