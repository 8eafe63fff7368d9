"""The sets of parties that the page can answer for, and what each of them can work out.

The page is static, so every answer is computed in advance. The parties are the servers and a few users; users are added
one by one, each with all sets that it makes possible, as long as the time allows.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocol.party.role import user_index
from protocol.schemes.base import LEVELS
from sim.audit import truth
from sim.audit.algebra.knowledge import Library
from sim.audit.algebra.linear_forms import VALUE
from sim.audit.algebra.solve import findings, row, solve_one
from sim.audit.audit import Audit
from sim.audit.coalitions import COLLUDERS, Coalition, ordered, worst_users
from sim.audit.findings import Finding
from sim.audit.verdict import verdict_rows
from sim.audit.victims import known_of_users
from sim.console.console import counted
from sim.views.evidence import Case

MOST_USERS = 4
SECONDS = 2.0  # of computing, for what the audit has not answered yet
MOST_TURNS = 2000  # users times iterations: for a larger run nothing is added to the answers of the audit

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A party that can be ticked."""

    party: str
    hint: str


@dataclass(slots=True)
class Answered:
    """The answer for one set; `row` has what the audit says of it under `coalitions` and under `parties`."""

    row: Document
    least: Coalition = ()  # of a set that was not computed: the part of it that `row` is about, a lower bound
    attacks: list[Finding] | None = None  # by this very set; None: `unattacked` says why
    unattacked: str = ""

    own: Coalition = ()  # its members, where `row` is that of a part

    @property
    def members(self) -> Coalition:
        return self.own or tuple(self.row["members"])


@dataclass(slots=True)
class Explored:
    choices: list[Choice]
    sets: dict[Coalition, Answered]
    notes: list[str] = field(default_factory=list)  # which users, why these, and what is missing


def explore(live: Audit, document: Document, *, seconds: float = SECONDS) -> Explored:
    """Answer for every set, in about `seconds`; the answers of `document`, the audit of this run, are kept.

    Raise `BadInput` if a view is missing.
    """
    case, servers = live.case, live.case.card.scheme.servers
    pairs = zip(document["coalitions"], document["parties"], strict=True)
    known = {tuple(one["members"]): {**one, **party} for one, party in pairs}
    if live.turns > MOST_TURNS:
        parties = [*servers, *_users_asked_about(known)[-MOST_USERS:]]
        explored = Explored(_choices(case, document, parties, None), {})
        explored.notes.append(
            "The audit's answers stand here as they are. Of a set that it was not asked about stands what the most "
            "knowing part of it knows: at least that it knows too. What is asked with the command stands here exactly "
            "when the page is made again."
        )
    else:
        explored = _add_users(live, document, known, seconds)
    offered = {choice.party for choice in explored.choices}
    explored.sets |= {members: Answered(one) for members, one in known.items() if offered >= set(members)}
    _fill(case, explored, known)
    place = {choice.party: at for at, choice in enumerate(explored.choices)}
    by_size = sorted(explored.sets, key=lambda members: (len(members), [place[name] for name in members]))
    explored.sets = {members: explored.sets[members] for members in by_size}
    return explored


def _fill(case: Case, explored: Explored, known: dict[Coalition, Document]) -> None:
    """Answer every other set that can be ticked by what its most knowing part knows, as knowledge only grows."""
    parties, answered = [choice.party for choice in explored.choices], list(explored.sets.values())
    anyone = _any_user(case, known)
    for number in range(1, len(parties) + 1):
        for chosen in itertools.combinations(parties, number):
            members = ordered(case, chosen)
            parts = [(one.row, one.members) for one in answered if set(one.members) <= set(members)]
            if anyone is not None and any(user_index(name) >= 0 for name in members):
                parts.append((anyone, (f"a user such as {anyone['members'][0]}",)))
            if members not in explored.sets and parts:
                row_, part = max(parts, key=lambda one: (weight(one[0]), len(one[1])))
                explored.sets[members] = Answered(row_, part, own=members)


def _any_user(case: Case, known: dict[Coalition, Document]) -> Document | None:
    """Find what every user alone knows at least: the lowest of the audit's rows that stand for all users."""
    alone = [one for members, one in known.items() if len(members) == 1 and user_index(members[0]) >= 0]
    if sum(one["stands_for"] for one in alone) < case.card.params.n_users:
        return None
    return min(alone, key=weight)


def weight(row: Document) -> tuple[int, int, int]:
    """Rank `row` by the knowledge of its set."""
    return LEVELS.index(row["determines"]), row["individuals"], row["sums"]


def _users_asked_about(known: dict[Coalition, Document]) -> list[str]:
    """List the users of the audit's coalitions; those added with --coalition come last."""
    together = [name for members in known if len(members) > 1 for name in members if user_index(name) >= 0]
    return list(dict.fromkeys(together))


def _add_users(live: Audit, document: Document, known: dict[Coalition, Document], seconds: float) -> Explored:
    started = time.process_time()
    case, library, servers = live.case, live.library, live.case.card.scheme.servers
    users, why = choose_users(case, library)
    asked = [name for name in _users_asked_about(known) if name not in users]
    why = {**why, **dict.fromkeys(asked, "was asked about with --coalition")}
    users = [*asked, *users]
    parties, computed, last = list(servers), {}, 0.0
    for place, user in enumerate(users[:MOST_USERS]):
        spent = time.process_time() - started
        if place and spent + 2 * last > seconds:  # each user doubles the sets
            break
        for members in _sets_with(case, parties, user):
            if members not in known:
                computed[members] = _answered(live, members)
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


def _answered(live: Audit, members: Coalition) -> Answered:
    solved = solve_one(live.case, live.library, members)
    (party,) = verdict_rows(live.case, [solved], None, findings(live.case, [solved]))
    return Answered({**row(solved), **known_of_users(solved, live.names), **party})


# --- which users -----------------------------------------------------------------------------------------------------


def choose_users(case: Case, library: Library) -> tuple[list[str], dict[str, str]]:
    """Choose the users of the audit's default coalitions and a further user; the second value says why that user."""
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
    """Count the numbers of each party that the algebra follows."""
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
    """List the choices in the order in which a coalition names its members."""
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
