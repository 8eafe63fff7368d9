"""What a coalition can determine, by brute force: rows of Python integers, without the shortcuts of the audit.

Item factors are rows here, v_j(t+1) = ω v_j(t) + s_j(t) with v_j(0) as one more uniform symbol, instead of differences.
Elimination is over Z_{2^b}, with pivots of any valuation and their annihilators (Howell's form). Whether a user is
isolated is tested for each user separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.audit.algebra.linear_forms import NOISE, UNIFORM, VALUE
from sim.audit.algebra.omega import OMEGA
from sim.audit.algebra.symbolic_run import Hearing

Row = dict[object, int]  # symbol -> coefficient


class Brute:
    def __init__(self, hearing: Hearing, bits: int) -> None:
        self.hearing = hearing
        self.modulus = 1 << bits
        arena = hearing.arena
        self.leaf = {}  # node -> (kind, owner, item, iteration)
        for block in arena.blocks:
            for at in range(block.count):
                self.leaf[block.start + at] = (block.kind, block.owner, int(block.items[at]), block.iteration)
        self.key_of = {int(node): key for (key, _), nodes in arena.streams.items() for node in nodes}
        edges = arena.edges().tocoo()
        self.parts: dict[int, list[tuple[int, int]]] = {}
        for parent, child, coefficient in zip(edges.row, edges.col, edges.data, strict=True):
            self.parts.setdefault(int(parent), []).append((int(child), int(coefficient)))
        self.memory: dict[int, Row] = {0: {}}

    def form(self, node: int) -> Row:
        if node not in self.memory:
            total: Row = {node: 1} if node in self.leaf else {}
            for child, coefficient in self.parts.get(node, []):
                add(total, self.form(child), coefficient, self.modulus)
            self.memory[node] = total
        return self.memory[node]

    def factors(self, item: int, iteration: int) -> Row:
        """Express v_j(t) as a row, up to the known factor γ/k."""
        row: Row = {("v", item): 1}
        for release in sorted(self.hearing.releases, key=lambda entry: entry.iteration):
            if release.iteration < iteration and item in release.items.tolist():
                row = {symbol: value * OMEGA % self.modulus for symbol, value in row.items()}
                add(row, self.form(int(release.nodes[release.items.tolist().index(item)])), 1, self.modulus)
        return row

    def known(self, symbol: object, members: Sequence[str]) -> bool:
        if isinstance(symbol, tuple):
            return "recommender" in members
        kind, owner, _, _ = self.leaf[symbol]
        if kind == UNIFORM:
            return any(self.key_of[symbol] in self.hearing.heard[member].keys for member in members)
        return owner in members

    def rows(self, members: Sequence[str]) -> list[Row]:
        found = []
        for member in members:
            heard = self.hearing.heard[member]
            found += [self.form(int(node)) for nodes in heard.nodes for node in nodes]
            found += [self.factors(int(item), t) for t, items in heard.sightings for item in items]
        bare = [{symbol: c for symbol, c in row.items() if not self.known(symbol, members)} for row in found]
        return [row for row in bare if row]

    def determines(self, members: Sequence[str]) -> str:
        rows = self.rows(members)
        values = {symbol for row in rows for symbol in row if symbol in self.leaf and self.leaf[symbol][0] == VALUE}
        owners = {self.leaf[symbol][1] for symbol in values}
        noise = {symbol for row in rows for symbol in row if symbol in self.leaf and self.leaf[symbol][0] == NOISE}
        masks = {symbol for row in rows for symbol in row} - values - noise
        level, isolated = "nothing", []
        for owner in owners:
            others = {symbol for symbol in values if self.leaf[symbol][1] != owner}
            mine = {symbol for symbol in values - others if not self.sole(symbol)}
            if any(mine & row.keys() for row in kernel(rows, masks | others | noise, self.modulus)):
                return "exact-individual"
            alone = kernel(rows, masks | others, self.modulus)
            isolated += alone
            if any(mine & row.keys() for row in alone):
                level = "noisy-individual"
        if level == "nothing":
            sums = [row for row in kernel(rows, masks, self.modulus) if self.several(row)]
            if not all(self.follows(row, isolated, values) for row in sums):
                level = "aggregate"
        return level

    def follows(self, row: Row, isolated: list[Row], values: set[object]) -> bool:
        """Tell whether `row`, apart from noise, is a combination of the `isolated` rows, each about one user."""
        found = kernel([*isolated, {**row, "this": 1}], values, self.modulus)
        return any(one.get("this", 0) & 1 for one in found)

    def several(self, row: Row) -> bool:
        return len({self.leaf[symbol][1] for symbol in row if self.leaf[symbol][0] == VALUE}) > 1

    def sole(self, symbol: object) -> bool:
        """Tell whether `symbol` belongs to a sum with no other contributor."""
        _, _, item, iteration = self.leaf[symbol]
        for release in self.hearing.releases:
            if release.iteration == iteration and item in release.items.tolist():
                form = self.form(int(release.nodes[release.items.tolist().index(item)]))
                return not self.several({one: c for one, c in form.items() if one in self.leaf})
        return False


def add(total: Row, row: Row, factor: int, modulus: int) -> None:
    for symbol, coefficient in row.items():
        value = (total.get(symbol, 0) + factor * coefficient) % modulus
        if value:
            total[symbol] = value
        else:
            total.pop(symbol, None)


def valuation(value: int) -> int:
    return (value & -value).bit_length() - 1


def kernel(rows: Iterable[Row], unwanted: set[object], modulus: int) -> list[Row]:
    """Find generators of the combinations without the unwanted symbols, over Z_{2^b}."""
    left = [dict(row) for row in rows]
    for symbol in sorted({symbol for row in left for symbol in row} & unwanted, key=str):
        having = [row for row in left if symbol in row]
        left = [row for row in left if symbol not in row]
        pivot = min(having, key=lambda row: valuation(row[symbol]), default=None)
        if pivot is None:
            continue
        power = valuation(pivot[symbol])
        inverse = pow(pivot[symbol] >> power, -1, modulus)
        for row in having:
            if row is not pivot:
                add(row, pivot, -(row[symbol] >> power) * inverse, modulus)
                left.append(row)
        rest: Row = {}  # the rest of the pivot's row, multiplied so that its symbol vanishes
        add(rest, pivot, modulus >> power, modulus)
        left.append(rest)
        left = [row for row in left if row]
    return left
