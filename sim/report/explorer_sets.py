"""Which sets of parties the page can answer for, and what each of them can work out.

The page is static, so every answer is there before anybody asks. Parties are the servers and a few users; users are
added one by one, each with all sets that it makes possible, as long as the time allows.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocol.roles import user_index
from sim.audit import truth
from sim.audit.algebra.arena import VALUE
from sim.audit.algebra.knowledge import Library
from sim.audit.algebra.solve import findings, library_of, row, solve_one
from sim.audit.attacks.scoring import counted
from sim.audit.coalitions import COLLUDERS, Coalition, ordered, worst_users
from sim.audit.findings import Finding
from sim.audit.verdict import verdict_rows
from sim.evidence import Case

MOST_USERS = 4
SECONDS = 12.0  # of computing, for what the audit has not answered yet
TOO_LONG = 30.0  # that the audit's own algebra took: then nothing is added to it

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A party that can be ticked."""

    party: str
    hint: str


@dataclass(slots=True)
class Answered:
    """`row` has what the audit says of a set under `coalitions` and under `parties`."""

    row: Document
    attacks: list[Finding] | None = None  # by this very set; None: `unattacked` says why
    unattacked: str = ""

    @property
    def members(self) -> Coalition:
        return tuple(self.row["members"])


@dataclass(slots=True)
class Explored:
    choices: list[Choice]
    sets: dict[Coalition, Answered]
    notes: list[str] = field(default_factory=list)  # which users, why these, and what is missing


def explore(case: Case, document: Document, *, seconds: float = SECONDS) -> Explored:
    """`document`: the audit of this run, whose answers stand; `BadInput` where a view is missing."""
    servers = case.card.scheme.servers
    known = {tuple(one["members"]): {**one, **party} for one, party in _pairs(document)}
    took = document["questions"]["algebra"]
    if took > TOO_LONG:
        parties = [*servers, *_default_users(known)]
        explored = Explored(_choices(case, document, parties, None), {})
        explored.notes.append(
            f"The algebra of this run took {took:.0f} s for the audit, so its answers stand alone: sets that it did "
            "not ask about are not computed for this page."
        )
    else:
        explored = _add_users(case, document, known, seconds)
    offered = {choice.party for choice in explored.choices}
    explored.sets |= {members: Answered(one) for members, one in known.items() if offered >= set(members)}
    place = {choice.party: at for at, choice in enumerate(explored.choices)}
    by_size = sorted(explored.sets, key=lambda members: (len(members), [place[name] for name in members]))
    explored.sets = {members: explored.sets[members] for members in by_size}
    return explored


def _pairs(document: Document) -> Iterator[tuple[Document, Document]]:
    return zip(document["coalitions"], document["parties"], strict=True)


def _default_users(known: dict[Coalition, Document]) -> Coalition:
    """Those of the audit's own coalitions."""
    together = [name for members in known if len(members) > 1 for name in members if user_index(name) >= 0]
    return tuple(dict.fromkeys(together))


def _add_users(case: Case, document: Document, known: dict[Coalition, Document], seconds: float) -> Explored:
    started = time.process_time()
    library, servers = library_of(case), case.card.scheme.servers
    users, why = choose_users(case, library)
    parties, computed, last = list(servers), {}, 0.0
    for place, user in enumerate(users[:MOST_USERS]):
        spent = time.process_time() - started
        if place and spent + 2 * last > seconds:  # each user doubles the sets
            break
        for members in _sets_with(case, parties, user):
            if members not in known:
                computed[members] = _answered(case, library, members)
        parties.append(user)
        last = time.process_time() - started - spent
    explored = Explored(_choices(case, document, parties, library), computed)
    chosen = parties[len(servers) :]
    explored.notes.append(_why(chosen, why))
    if len(chosen) < min(MOST_USERS, case.card.params.n_users):
        explored.notes.append(
            f"All sets of these {len(parties)} parties are answered; another user would double them and take the page "
            f"over {seconds:g} s of computing."
        )
    return explored


def _sets_with(case: Case, parties: list[str], user: str) -> Iterator[Coalition]:
    for number in range(len(parties) + 1):
        for others in itertools.combinations(parties, number):
            yield ordered(case, [*others, user])


def _answered(case: Case, library: Library, members: Coalition) -> Answered:
    solved = solve_one(case, library, members)
    (party,) = verdict_rows(case, [solved], None, findings(case, [solved]))
    return Answered({**row(solved), **party})


# --- which users -----------------------------------------------------------------------------------------------------


def choose_users(case: Case, library: Library) -> tuple[list[str], dict[str, str]]:
    """The users of the audit's default coalitions and one more; and why, for the one more."""
    users = list(worst_users(case, library, COLLUDERS))
    alone = Counter(
        library.contributors_of(release)[0] for release in np.flatnonzero(library.contributors == 1).tolist()
    )
    for number, words in ((alone, "was alone in {} of the opened sums"), (_sent(library), "sent {} rows of numbers")):
        for name, count in number.most_common():
            if name not in users and user_index(name) >= 0:
                return [*users, name], {name: f"{words.format(count)}, the most of the others"}
    rated = Counter({name: len(own.items) for name, own in truth.all_ratings(case).items() if name not in users})
    for name, count in rated.most_common(1):
        return [*users, name], {name: f"rated {count} items, the most of the others"}
    return users, {}


def _sent(library: Library) -> Counter[str]:
    """How many numbers of each party the algebra follows."""
    owners = library.forms.owner[library.forms.kind == VALUE]
    return Counter({name: int((owners == at).sum()) for at, name in enumerate(library.forms.owners)})


def _why(chosen: list[str], why: dict[str, str]) -> str:
    usual = ", ".join(name for name in chosen if name not in why)
    words = (
        f"{usual}, as in the audit's own coalitions (contributors of one small sum that was opened, of whom the last "
        "is then isolated; where there is no such sum, the first by number)"
    )
    parts = [*([words] if usual else []), *(f"{name}, who {why[name]}" for name in chosen if name in why)]
    return f"Users that can be ticked: {'; '.join(parts)}."


def _choices(case: Case, document: Document, parties: list[str], library: Library | None) -> list[Choice]:
    """In the order in which a coalition is named."""
    return [Choice(name, _hint(case, document, name, library)) for name in ordered(case, parties)]


def _hint(case: Case, document: Document, party: str, library: Library | None) -> str:
    if user_index(party) < 0:
        rows = [one for one in document["parties"] if one["members"] == [party]]
        seen = rows[0]["saw"] if rows else None
        return "" if seen is None else f"saw {'; '.join(seen) or 'no numbers'}"
    words = f"rated {counted(len(truth.ratings_of(case, party).items), 'item')}"
    if library is None or not (library.forms.kind == VALUE).any():
        return words
    forms = library.forms
    owner = forms.owners.index(party) if party in forms.owners else -2
    times = np.unique(forms.iteration[(forms.owner == owner) & (forms.kind == VALUE)])
    if owner >= 0 and len(times) and times.max() < 0:
        return words
    return f"{words}, contributed in {(times >= 0).sum()} of {case.card.params.iterations} iterations"
