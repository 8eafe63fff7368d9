"""The rules for what a party may accept at a moment of a run, stated a second time: from the bytes, the parameters, and
what this party has heard and said so far. Nothing here uses the codec, the session or a role.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgpack

from protocol.arithmetic.fixedpoint import noise_reach
from support.wire import FIELDS, KINDS, WIRE_VERSION, Form, bits_of, form_of, identifiers

HEAD = 32
FACTOR = 2.0**60  # no factor, and no gradient of `direct`, is larger
ENVELOPE = 37.0
ROUNDING = 1.001
RECOMMENDER, THIRD_PARTY = "recommender", "third_party"

_IDENTIFIERS = ("counts", "users", "items")

Parts = list[Any]  # kind, sequence number, fields: ints and bytes


@dataclass(frozen=True, slots=True)
class Said:
    """A message as this file reads it."""

    peer: str
    kind: str
    fields: tuple[Any, ...]  # ints, bytes, tuples of ints or floats; of keys and rows of the ring only how many


# --- bytes -> numbers ------------------------------------------------------------------------------------------------

_SIZES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xC4: 1, 0xC5: 2, 0xC6: 4}
_LEAST = {0xCC: 0x80, 0xCD: 1 << 8, 0xCE: 1 << 16, 0xCF: 1 << 32, 0xC4: 0, 0xC5: 1 << 8, 0xC6: 1 << 16}


def read(frame: bytes) -> Parts | None:
    """Read the parts of a frame: a short array of ints and byte strings in shortest form, then a head; else None."""
    end = len(frame) - HEAD
    if end < 1 or not 0x92 <= frame[0] <= 0x9F:
        return None
    parts: Parts = []
    at = 1
    for _ in range(frame[0] & 15):
        if at >= end:
            return None
        first = frame[at]
        at += 1
        if first < 0x80:
            parts.append(first)
            continue
        size = _SIZES.get(first)
        if size is None or at + size > end:
            return None
        number = int.from_bytes(frame[at : at + size], "big")
        at += size
        if number < _LEAST[first]:
            return None
        if first >= 0xCC:
            parts.append(number)
            continue
        if at + number > end:
            return None
        parts.append(frame[at : at + number])
        at += number
    return parts if at == end else None


class Reader:
    def __init__(self, scheme: str, params: Any, max_frame: int) -> None:
        self._kinds = [*KINDS[scheme], "Again"]
        self._dim = params.dim
        self._width = params.ring_bits // 8
        self._form: Form = form_of(params)
        self._most = max_frame + HEAD

    def understand(self, sender: str, frame: bytes) -> tuple[int, Said] | None:
        """Read (sequence number, message) if every field has its type; `Moment` says whether it is right now."""
        if len(frame) > self._most or (parts := read(frame)) is None:
            return None
        code, sequence, *fields = parts
        if type(code) is not int or code >= len(self._kinds) or type(sequence) is not int:
            return None
        kind = self._kinds[code]
        if len(fields) != len(FIELDS[kind]):
            return None
        values = [self._value(how, part) for how, part in zip(FIELDS[kind].values(), fields, strict=True)]
        return None if any(value is None for value in values) else (sequence, Said(sender, kind, tuple(values)))

    def _value(self, how: str, part: int | bytes) -> Any:
        if how == "count":
            return part if type(part) is int else None
        if type(part) is not bytes:
            return None
        if how == "bytes32":
            return part if len(part) == 32 else None
        if how == "keys":
            return len(part) // 32 if len(part) % 32 == 0 else None
        if how == "ring":  # every residue is a value
            return len(part) // (self._width * self._dim) if len(part) % (self._width * self._dim) == 0 else None
        return self._packed(how, part) if how in _IDENTIFIERS and self._form.packed else self._numbers(how, part)

    def _numbers(self, how: str, part: bytes) -> Any:
        half = how == "factors" and self._form.factor_bits == 16
        single = ("e", 2) if half else ("f", 4)
        letter, size = {"reals": ("d", 8), "floats": single, "factors": single}.get(how, ("I", 4))
        if len(part) % (size * (self._dim if how in ("floats", "factors") else 1)):
            return None
        numbers = struct.unpack(f"<{len(part) // size}{letter}", part)
        if letter != "I":
            return numbers if all(map(math.isfinite, numbers)) else None
        if how != "counts" and any(a >= b for a, b in itertools.pairwise(numbers)):
            return None
        return numbers

    def _packed(self, how: str, part: bytes) -> Any:
        """Unpack the numbers; None if they are out of range or order, or would be written in another way."""
        assert self._form.packed is not None
        n_users, n_items = self._form.packed
        most = n_users if how == "counts" else (n_users if how == "users" else n_items) - 1
        total, bits = int.from_bytes(part, "little"), bits_of(most)
        if how != "counts" and len(part) == most // 8 + 1:
            numbers = [place for place in range(8 * len(part)) if total >> place & 1]
        else:
            numbers = [total >> place & (1 << bits) - 1 for place in range(0, 8 * len(part) - bits + 1, bits)]
        if any(number > most for number in numbers) or len(numbers) > n_items:
            return None
        if how != "counts" and any(a >= b for a, b in itertools.pairwise(numbers)):
            return None
        return tuple(numbers) if identifiers(how, numbers, self._form.packed) == part else None


# --- whether a message is right at this moment -----------------------------------------------------------------------


@dataclass(slots=True)
class Moment:
    """What a party knows: what is fixed for the run, and what it has heard and said, without Hellos."""

    party: str
    scheme: str
    params: Any
    hello: tuple[int, bytes, bytes]
    own_items: tuple[int, ...] = ()
    done: bool = False
    heard: list[Said] = field(default_factory=list)
    told: list[Said] = field(default_factory=list)  # by this party; `peer` is the receiver
    numbers: Counter[str] = field(default_factory=Counter)  # frames heard, by sender

    def uses_a_number(self, sender: str, sequence: int, said: Said) -> bool:
        """Tell whether this is the next frame of `sender`; then its number is used up, whatever the role does."""
        if self.done or said.kind == "Again" or sequence != self.numbers[sender]:
            return False
        return (said.kind == "Hello") == (sequence == 0) and (sequence > 0 or said.fields == self.hello)

    def objection(self, sender: str, sequence: int, said: Said) -> str | None:
        """Say why this party must not accept the message; None if it may."""
        if said.kind == "Again":
            return None if sequence == 0 else "a question with a number"
        if not self.uses_a_number(sender, sequence, said):
            return "not the next frame of that sender"
        if said.kind == "Hello":
            return None
        role = self.party.partition(":")[0]
        judge = getattr(self, f"_{role}_{said.kind}", None)
        if judge is None:
            return f"a {role} never receives a {said.kind}"
        if not judge(sender, *said.fields):
            return f"this {said.kind} is not right here and now"
        return None

    # what was heard and said

    def _of(self, kind: str, where: list[Said] | None = None) -> list[Said]:
        return [said for said in (self.heard if where is None else where) if said.kind == kind]

    def _user(self, name: str) -> int | None:
        number = int(name.removeprefix("user:")) if name.startswith("user:") else -1
        return number if 0 <= number < self.params.n_users else None

    def _joined(self) -> dict[int, tuple[int, ...]]:
        return {int(said.peer.removeprefix("user:")): said.fields[0] for said in self._of("Join")}

    def _are_items(self, items: tuple[int, ...]) -> bool:
        return not items or items[-1] < self.params.n_items

    # --- a user --------------------------------------------------------------------------------------------------

    def _offered(self, sender: str, iteration: int, factors: tuple[float, ...], floors: tuple[int, ...] = ()) -> bool:
        last = max((said.fields[0] for said in self.heard if said.kind.startswith("ItemFactors")), default=-1)
        rows = len(self.own_items) * self.params.dim
        in_range = len(factors) == rows and all(abs(x) <= FACTOR for x in factors)
        due = last < iteration < self.params.iterations and not self._of("Publication")
        if not (sender == RECOMMENDER and due and in_range):
            return False
        return self._within_reach(iteration, factors, floors)

    def _floors_fit(self, floors: tuple[int, ...]) -> bool:
        most = max(self.params.max_raters, self.params.min_contributors)
        return len(floors) == len(self.own_items) and all(1 <= floor <= most for floor in floors)

    def _is_told(self, floors: tuple[int, ...]) -> bool:
        """Tell whether `masked` has told these floors in its welcome; in `dynamic` they change."""
        told = [said.fields[0] for said in self.heard if said.kind in ("Welcome", "WelcomeInFull")]
        return self.scheme == "dynamic" or told == [floors]

    def _within_reach(self, iteration: int, factors: tuple[float, ...], floors: tuple[int, ...]) -> bool:
        """Tell whether every row is as long as honest users can have made it, by one step after another."""
        params, dim = self.params, self.params.dim
        rate, shrunk = params.learning_rate, 1 - 2 * params.learning_rate * params.item_regularisation
        growth = max(abs(shrunk), abs(shrunk - 2 * rate)) + 2 * rate * 2.0 ** (-11 if params.factor_bits == 16 else -24)
        sources = params.n_users if self.scheme == "direct" else 1
        masked = self.scheme in ("masked", "dynamic")
        scale = params.noise_scale / math.sqrt(1 - params.dropout_allowance if masked else 1)
        reach = noise_reach(scale, params.iterations * params.n_items * dim * sources) * math.sqrt(dim)
        upload = (2 * params.clip + 108 * params.noise_scale) * 2.0**-24
        rounding = (1 + params.max_raters / 2) * 2.0**-params.fraction_bits if masked else upload
        pull = 2 * max(abs(params.rating_min), abs(params.rating_max)) + rounding * math.sqrt(dim)
        for row in range(len(self.own_items)):
            most = 1.0
            for _ in range(iteration):
                most = growth * most + rate * (pull + reach / (floors[row] if floors else 1))
            if math.hypot(*factors[row * dim : (row + 1) * dim]) > most * (1 + 2.0**-9):
                return False
        return True

    def _envelope_fits(self, envelope: tuple[float, ...], rows: int) -> bool:
        dim = self.params.dim
        if len(envelope) != rows * dim or not all(0 < x <= ENVELOPE for x in envelope):
            return False
        unlikely = 2.0**-40 / (self.params.n_items * (self.params.iterations + 1))
        means = [sum(envelope[row * dim : (row + 1) * dim]) / dim for row in range(rows)]
        return all(mean >= 1 or math.exp(-dim * (mean - 1 - math.log(mean))) >= unlikely for mean in means)

    def _user_ItemFactors(self, sender: str, iteration: int, floors: Any, factors: Any) -> bool:
        if self.scheme in ("plain", "direct"):
            dealt = self.scheme == "plain" or self._of("NoiseKeys")
            return bool(dealt) and not floors and self._offered(sender, iteration, factors)
        ready = self.params.wire == "compact" and self._of("Welcome")
        fits = self._floors_fit(floors) and self._is_told(floors)
        return bool(ready) and fits and self._offered(sender, iteration, factors, floors)

    def _user_ItemFactorsInFull(self, sender: str, iteration: int, floors: Any, factors: Any, *rest: Any) -> bool:
        masks, envelope = rest
        rows = len(self.own_items)
        ready = self.params.wire == "paper" and self._of("WelcomeInFull")
        fits = self._floors_fit(floors) and self._is_told(floors) and masks == rows
        fits = fits and self._envelope_fits(envelope, rows)
        return bool(ready) and fits and self._offered(sender, iteration, factors, floors)

    def _user_ItemFactorsWithPieces(self, sender: str, iteration: int, floors: Any, factors: Any, *rest: Any) -> bool:
        masks, envelope, pieces = rest
        rows = len(self.own_items)
        fits = self._floors_fit(floors) and masks == pieces == rows and self._envelope_fits(envelope, rows)
        return self.params.wire == "paper" and fits and self._offered(sender, iteration, factors, floors)

    def _user_Publication(self, sender: str, iteration: int, factors: Any) -> bool:
        rows = self.params.n_items if self.params.publish == "all" else len(self.own_items)
        fits = len(factors) == rows * self.params.dim and max(map(abs, factors)) <= FACTOR
        last = sender == RECOMMENDER and iteration == self.params.iterations
        return last and fits and not self._of("Publication")

    def _user_Finish(self, sender: str, iteration: int) -> bool:
        return sender == RECOMMENDER and iteration == self.params.iterations and bool(self._of("Publication"))

    def _user_Welcome(self, sender: str, floors: Any, key: bytes, keys: int) -> bool:
        first = sender == RECOMMENDER and self.params.wire == "compact" and not self._of("Welcome")
        fits = floors == () if self.scheme == "dynamic" else self._floors_fit(floors)
        return first and fits and keys == len(self.own_items)

    def _user_WelcomeInFull(self, sender: str, floors: Any, envelope: Any) -> bool:
        first = sender == RECOMMENDER and self.params.wire == "paper" and not self._of("WelcomeInFull")
        return first and self._floors_fit(floors) and self._envelope_fits(envelope, len(self.own_items))

    def _user_NoiseKeys(self, sender: str, floors: Any, keys: int) -> bool:
        first = sender == RECOMMENDER and not self._of("NoiseKeys")
        return first and len(floors) == len(self.own_items) and 0 not in floors and keys == len(self.own_items)

    def _commits(self, sender: str, attempt: int, items: Any, counts: Any) -> bool:
        last = max((said.fields[0] for said in self.heard if said.kind.startswith("Commit")), default=-1)
        fits = self._are_items(items) and len(counts) == len(items) and set(counts) <= {self.params.committers}
        return sender == RECOMMENDER and attempt > last and fits

    def _user_Commit(self, sender: str, attempt: int, items: Any, counts: Any, keys: int) -> bool:
        ready = self.params.wire == "compact" and self._of("Welcome")
        return bool(ready) and keys == len(items) and self._commits(sender, attempt, items, counts)

    def _user_CommitInFull(self, sender: str, attempt: int, items: Any, counts: Any, blinds: int, rows: Any) -> bool:
        fits = blinds == len(items) and self._envelope_fits(rows, len(items))
        return self.params.wire == "paper" and fits and self._commits(sender, attempt, items, counts)

    # --- the recommender ---------------------------------------------------------------------------------------------

    def _recommender_Join(self, sender: str, items: tuple[int, ...]) -> bool:
        user = self._user(sender)
        return user is not None and user not in self._joined() and len(items) > 0 and self._are_items(items)

    def _answer(self, kind: str, sender: str, iteration: int, values: tuple[float, ...], most: float) -> bool:
        """Judge a gradient in the clear: it must be the first one of this user in the current iteration."""
        joined, given = self._joined(), self._of(kind)
        user, n_users = self._user(sender), self.params.n_users
        if user not in joined or len(joined) < n_users or iteration != len(given) // n_users:
            return False
        answered = any(said.peer == sender and said.fields[0] == iteration for said in given)
        rows = len(joined[user]) * self.params.dim
        return not answered and len(values) == rows and all(abs(x) <= most for x in values)

    def _recommender_Gradient(self, sender: str, iteration: int, values: Any) -> bool:
        return self._answer("Gradient", sender, iteration, values, 2 * ROUNDING * self.params.clip)

    def _recommender_NoisyGradient(self, sender: str, iteration: int, values: Any) -> bool:
        return self._answer("NoisyGradient", sender, iteration, values, FACTOR)

    def _recommender_RatingsHandover(self, sender: str, items: Any, values: Any) -> bool:
        user = self._user(sender)
        new = user is not None and all(said.peer != sender for said in self._of("RatingsHandover"))
        allowed = all(self.params.rating_min <= x <= self.params.rating_max for x in values)
        return new and len(items) > 0 and self._are_items(items) and len(values) == len(items) and allowed

    def _opened(self) -> Said | None:
        """Return the sum that was opened and whose total has not come."""
        opened = self._of("OpenSum", self.told)
        return opened[-1] if len(opened) > len(self._of("MaskedTotal")) else None

    def _counts(self, users: Any, items: Any) -> list[int]:
        joined = self._joined()
        return [sum(item in joined[user] for user in users) for item in items]

    def _recommender_Contributors(self, sender: str, iteration: int, users: Any, counts: Any, digest: bytes) -> bool:
        opened = self._opened()
        if sender != THIRD_PARTY or opened is None:
            return False
        announced = any(said.fields[0] == iteration for said in self._of("Contributors"))
        return iteration == opened.fields[0] and not announced and len(counts) == len(opened.fields[2])

    def agrees(self, iteration: int, users: Any, counts: Any, digest: bytes) -> bool:
        """Tell whether these contributors were dealt masks and the rest follows from them; if not, the run ends."""
        opened, joined = self._opened(), self._joined()
        if opened is None or not set(users) <= set(opened.fields[1]):
            return False
        named = hashlib.sha256(msgpack.packb(["contributors", iteration]))
        for user in users:
            named.update(msgpack.packb([user, struct.pack(f"<{len(joined[user])}I", *joined[user])]))
        return named.digest() == digest and list(counts) == self._counts(users, opened.fields[2])

    def _recommender_MaskedTotal(self, sender: str, iteration: int, items: Any, rows: int) -> bool:
        opened = self._opened()
        agreed = [said for said in self._of("Contributors") if said.fields[0] == iteration]
        if sender != THIRD_PARTY or opened is None or iteration != opened.fields[0] or not agreed:
            return False
        named = zip(opened.fields[2], opened.fields[3], agreed[0].fields[2], strict=True)
        return items == tuple(item for item, floor, count in named if count >= floor) and rows == len(items)

    def _recommender_SealedTotal(self, sender: str, attempt: int, items: Any, rows: int) -> bool:
        asked = self._of("OpenCommitment", self.told)
        waits = len(asked) > len(self._of("SealedTotal"))
        right = sender == THIRD_PARTY and waits and attempt == asked[-1].fields[0]
        return right and set(items) <= set(asked[-1].fields[2]) and rows == len(items)

    def _changes_presence(self, sender: str, iteration: int, arrives: bool) -> bool:
        """Judge a change for the next iteration: between two, an absent user arrives or a present one leaves, once."""
        user, finished = self._user(sender), len(self._of("MaskedTotal"))
        committing = len(self._of("OpenCommitment", self.told)) > 0 and not self._of("OpenSum", self.told)
        if user not in self._joined() or self._opened() or committing or iteration != finished:
            return False
        mine = [said for said in self.heard if said.peer == sender and said.kind in ("Present", "Absent")]
        there = bool(mine) and mine[-1].kind == "Present"
        return there != arrives and all(said.fields[0] != iteration for said in mine)

    def _recommender_Present(self, sender: str, iteration: int) -> bool:
        return self._changes_presence(sender, iteration, True)

    def _recommender_Absent(self, sender: str, iteration: int) -> bool:
        return self._changes_presence(sender, iteration, False)

    # --- the third party ---------------------------------------------------------------------------------------------

    def _third_party_OpenSum(self, sender: str, iteration: int, users: Any, items: Any, floors: Any) -> bool:
        opened, released = len(self._of("OpenSum")), len(self._of("MaskedTotal", self.told))
        due = opened == released and iteration == released < self.params.iterations
        exist = self._are_items(items) and (not users or users[-1] < self.params.n_users)
        least = self.params.min_contributors
        fits = len(floors) == len(items) and min(floors, default=least) >= least
        return sender == RECOMMENDER and due and exist and fits and self._sealed(items)

    def _sealed(self, items: Any) -> bool:
        """Tell whether all `items` are sealed and no commitment is open; only `dynamic` needs that."""
        if self.scheme != "dynamic":
            return True
        sealed = {item for said in self._of("SealedTotal", self.told) for item in said.fields[1]}
        return not self._asked() and set(items) <= sealed

    def _asked(self) -> Said | None:
        asked = self._of("OpenCommitment")
        return asked[-1] if len(asked) > len(self._of("SealedTotal", self.told)) else None

    def _third_party_MaskedGradient(self, sender: str, iteration: int, items: Any, rows: int) -> bool:
        user, released = self._user(sender), len(self._of("MaskedTotal", self.told))
        closed = len(self._of("Contributors", self.told)) > released
        if user is None or closed or not iteration == released < self.params.iterations:
            return False
        opened = [said for said in self._of("OpenSum") if said.fields[0] == iteration]
        if opened and not (user in opened[0].fields[1] and set(items) <= set(opened[0].fields[2])):
            return False
        again = any(said.peer == sender and said.fields[0] == iteration for said in self._of("MaskedGradient"))
        return not again and self._are_items(items) and rows == len(items)

    def _third_party_Agreed(self, sender: str, iteration: int, digest: bytes) -> bool:
        closed, released = len(self._of("Contributors", self.told)), len(self._of("MaskedTotal", self.told))
        return sender == RECOMMENDER and closed > released and iteration == released

    def _third_party_Finish(self, sender: str, iteration: int) -> bool:
        released = len(self._of("MaskedTotal", self.told))
        over = len(self._of("OpenSum")) == released == self.params.iterations
        return sender == RECOMMENDER and over and iteration == self.params.iterations

    def _third_party_OpenCommitment(self, sender: str, attempt: int, users: Any, items: Any, counts: Any) -> bool:
        sealed = {item for said in self._of("SealedTotal", self.told) for item in said.fields[1]}
        due = not self._asked() and attempt == len(self._of("SealedTotal", self.told))
        exist = self._are_items(items) and (not users or users[-1] < self.params.n_users)
        fits = len(counts) == len(items) and min(counts, default=2) >= 2 and not sealed & set(items)
        return sender == RECOMMENDER and due and exist and fits

    def _third_party_BlindedShare(self, sender: str, attempt: int, items: Any, rows: int) -> bool:
        user, asked = self._user(sender), self._asked()
        if user is None or attempt != len(self._of("SealedTotal", self.told)):
            return False
        if asked and not (user in asked.fields[1] and set(items) <= set(asked.fields[2])):
            return False
        again = any(said.peer == sender and said.fields[0] == attempt for said in self._of("BlindedShare"))
        return not again and self._are_items(items) and rows == len(items)


def hello_of(run_id: bytes, params_digest: bytes) -> tuple[int, bytes, bytes]:
    return WIRE_VERSION, run_id, params_digest
