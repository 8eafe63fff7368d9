"""The parties that cheat: the table of `--cheat PARTY:KIND`, and the roles that stand in for honest ones.

A cheat is a role like any other, a pure function of input, tape and messages: a class that inherits from the honest
role and departs from it in one thing. Every other party runs its honest role and is not told.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass

from protocol.arithmetic.tape import Tape
from protocol.errors import BadInput, did_you_mean
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Role, user_index

CHEATER = 0  # the user that cheats, where one does


@dataclass(frozen=True, slots=True)
class Cheat:
    """One way to cheat."""

    party: str  # or the role `user`
    kind: str
    class_: str  # `module.Class`, below protocol.cheats
    does: str
    unnoticed: str  # why no honest party can notice it; "" where one can
    numbered: bool = False  # it takes a number, as in user:sybil:3
    schemes: tuple[str, ...] = ("masked", "dynamic")
    wires: tuple[str, ...] = ("compact", "paper")

    @property
    def name(self) -> str:
        return f"{self.party}:{self.kind}"


_SEPARATE = "no user sees what another user is sent"
CHEATS = {
    cheat.name: cheat
    for cheat in (
        Cheat(
            RECOMMENDER, "equivocate", "leading.Equivocating",
            "in each iteration it sends one user the longest factors that users take, and the others the true ones",
            _SEPARATE,
        ),
        Cheat(
            RECOMMENDER, "isolate", "leading.Isolating",
            "it invites one user per iteration, and tells users the floors of all raters and the third party a floor "
            "of one",
            "users and the third party never compare floors, and a sum of one is allowed with min_contributors 1",
        ),
        Cheat(
            RECOMMENDER, "narrow", "leading.Narrowing",
            "it opens the sums of one user's items alone, with a floor of one, so that the third party refuses the "
            "messages of the others, who hold other items too",
            "",
        ),
        Cheat(
            RECOMMENDER, "craft", "leading.Crafting",
            "it sends factors of length one that turn each victim's u_i to an axis of its own, so that a coordinate of "
            "a sum holds the rating of one user",
            "factors of length one are what every run begins with",
        ),
        Cheat(
            RECOMMENDER, "envelope", "leading.Fainting",
            "it draws 64 keys for each item and deals the one with the least objective noise",
            "",
        ),
        Cheat(
            RECOMMENDER, "far-envelope", "dealing.Shrinking",
            "it deals envelopes as small as users take, which are far from any law of H",
            "",
            schemes=("masked",),
            wires=("paper",),
        ),
        Cheat(
            RECOMMENDER, "own-envelope", "dealing.Separating",
            "it deals each user envelopes of its own, so that the noise of a sum is not Laplace",
            "the envelopes of each user are honest draws, and " + _SEPARATE,
            schemes=("masked",),
        ),
        Cheat(
            THIRD_PARTY, "split", "adding.Splitting",
            "it also sends the sum without one user, so that the recommender has that user's message",
            "",
        ),
        Cheat(
            THIRD_PARTY, "lie", "adding.Lying",
            "it announces user 0 among the contributors, and leaves its message out of the sum",
            "",
        ),
        Cheat(
            THIRD_PARTY, "add", "adding.Adding",
            "it adds to every sum the gradient of a user that is not there",
            "a sum with one more gradient is as uniform as any other, and as far as an honest user can move it",
        ),
        Cheat(
            "user", "poison", "joining.Poisoning",
            "user 0 adds uniform numbers to what it sends",
            "",
        ),
        Cheat(
            "user", "flood", "joining.Flooding",
            "user 0 sends every message to the third party 200 times",
            "",
        ),
        Cheat(
            "user", "sybil", "joining.Sybil",
            "users 0 to K−1 belong to the recommender and add no noise and no gradient",
            "a masked message of zeros is as uniform as any other",
            numbered=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cheating:
    """A cheat as the person asked for it."""

    cheat: Cheat
    number: int = 1  # of users that cheat

    def is_cheater(self, party: str) -> bool:
        if self.cheat.party != "user":
            return party == self.cheat.party
        return 0 <= user_index(party) < (self.number if self.cheat.numbered else CHEATER + 1)


def parse_cheat(text: str) -> Cheating:
    """Read `PARTY:KIND`, or `user:sybil:K`; raise `BadInput` for anything else."""
    name, _, rest = text.partition(":")
    kind, colon, count = rest.partition(":")
    found = CHEATS.get(f"{name}:{kind}")
    if found is None:
        near = did_you_mean(text, CHEATS)
        raise BadInput(f"There is no cheat {text[:60]!r}: use one of {', '.join(map(_shown, CHEATS.values()))}{near}.")
    if found.numbered != bool(colon) or (colon and not (count.isdecimal() and 1 <= len(count) <= 9 and int(count))):
        takes = "a number of users, such as" if found.numbered else "no number:"
        raise BadInput(f"--cheat {found.name} takes {takes} {_shown(found).replace('K', '3')}.")
    return Cheating(found, int(count) if colon else 1)


def check_cheat(text: str, scheme: str, wire: str | None = None) -> None:
    """Raise `BadInput` unless `text` is a cheat of `scheme`, in the wire form `wire`."""
    cheat = parse_cheat(text).cheat
    if scheme not in cheat.schemes:
        raise BadInput(f"--cheat {cheat.name} is a cheat of {' and '.join(cheat.schemes)}, not of {scheme}.")
    if wire is not None and wire not in cheat.wires:
        derived = "in the other form users derive what it deals"
        raise BadInput(f"--cheat {cheat.name} needs --wire {cheat.wires[0]}: {derived}.")


def stand_in(text: str, party: str, honest: Role, tape: Tape) -> Role:
    """Return the role that cheats in the place of `honest`, if `party` is one that does; else `honest` itself."""
    cheating = parse_cheat(text)
    if not cheating.is_cheater(party):
        return honest
    kind = _departing(cheating.cheat.class_, type(honest))
    role: Role = kind.__new__(kind)
    role.__dict__.update(honest.__dict__)
    prepare = getattr(role, "prepare", None)
    if prepare is not None:
        prepare(tape)
    return role


@functools.cache
def _departing(path: str, honest: type[Role]) -> type[Role]:
    """Make the class that departs from the role class `honest` as the class at `path` says."""
    module, _, name = path.partition(".")
    departure = getattr(importlib.import_module(f"protocol.cheats.{module}"), name)
    return type(f"{name}{honest.__name__}", (departure, honest), {})


def _shown(cheat: Cheat) -> str:
    return f"{cheat.name}:K" if cheat.numbered else cheat.name
