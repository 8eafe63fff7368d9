"""The exact linear answer for every coalition, and the findings where it exceeds what the scheme permits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.party.role import role_of, user_name
from protocol.party.view import Broken
from protocol.schemes.base import LEVELS
from sim.audit.algebra.grade import Answer, grade
from sim.audit.algebra.knowledge import Library
from sim.audit.algebra.symbolic_run import SymbolicRerun
from sim.audit.coalitions import COLLUDERS, Coalition, beyond_single, ordered
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding, Severity, goes_beyond
from sim.console.console import counted
from sim.console.progress import Tell
from sim.views.evidence import Case

EXACT = "exact, over the ring, for what is linear in the values on the wire"


PAIRS_BUDGET = 3_000_000  # entries of forms, over all pairs: about a second
PAIR_COST = 2000  # entries that a pair costs besides its own
MOST_PAIRS = 20  # pairs beyond the declaration that have a row; they tend to be alike


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    members: Coalition
    answer: Answer
    stands_for: int  # for a user alone: how many users reach the same level
    extra: bool = False  # requested, not a default coalition
    sample: str = ""  # of which places it was answered, if not of all


def solve(
    case: Case,
    extra: Sequence[Coalition] = (),
    colluders: int = COLLUDERS,
    tell: Tell = lambda done, total: None,
    library: Library | None = None,
) -> list[Solved]:
    """Solve each server alone, one user per level that users reach, the default coalitions, and the `extra` ones."""
    library = library or library_of(case)
    solved = [solve_one(case, library, (server,)) for server in case.card.scheme.servers]
    solved += _users_alone(case, library, tell)
    default = beyond_single(case, library, colluders)
    for members in dict.fromkeys([*default, *extra]):
        if all(members != earlier.members for earlier in solved):
            solved.append(solve_one(case, library, members, extra=members not in default))
    return solved


def solve_servers(case: Case, until: int) -> list[Solved]:
    """Solve each server alone, and all together, from the iterations before `until`: a part of a large run."""
    library, servers = library_of(case, until), case.card.scheme.servers
    coalitions = dict.fromkeys([*((server,) for server in servers), ordered(case, servers)])
    return [solve_one(case, library, members) for members in coalitions]


def library_of(case: Case, until: int | None = None) -> Library:
    """Run every role again on linear forms, and return what all coalitions share."""
    sample = family_of(case.card.scheme).sample(case)
    hearing = SymbolicRerun(case, until, sample.places if sample else None).run()
    if until is None and not hearing.complete:
        raise Broken("a view holds messages that no other view accounts for; see verify")
    return Library(hearing, case.card.params.ring_bits, sample.words if sample else "")


def solve_one(case: Case, library: Library, members: Coalition, extra: bool = False) -> Solved:
    servers = case.card.scheme.servers
    collude = set(servers) <= set(members) and len(servers) > 1
    return Solved(members, grade(library, members, explain=not collude), 1, extra, library.sample)


def solve_pairs(case: Case, library: Library, solved: Sequence[Solved]) -> tuple[list[Solved], dict[str, int]]:
    """Solve all pairs of parties, or as many as a budget allows, spread evenly over all of them.

    Returns those whose findings go beyond the scheme's declaration, and how many were tried of how many. Pairs that are
    `solved`, or with a member that goes beyond it alone, say nothing new.
    """
    every = [ordered(case, pair) for pair in itertools.combinations(case.parties, 2)]
    rows, _ = library.released
    heard = sum(len(nodes) for one in library.hearing.heard.values() for nodes in one.nodes)
    budget = max(0, PAIRS_BUDGET // (rows.nnz + heard + PAIR_COST))
    places = np.unique(np.linspace(0, max(len(every) - 1, 0), min(budget, len(every))).astype(np.int64)).tolist()
    known = {one.members for one in solved}
    alone = {one.members[0] for one in solved if len(one.members) == 1 and _is_beyond(case, one)}
    new = (pair for pair in (every[place] for place in places) if pair not in known and alone.isdisjoint(pair))
    found = [one for pair in new if _is_beyond(case, one := solve_one(case, library, pair))]
    return found[:MOST_PAIRS], {"tried": len(places), "of": len(every)}


def _is_beyond(case: Case, solved: Solved) -> bool:
    known = case.card.scheme.known_weaknesses
    return any(goes_beyond(finding, known) for finding in _of_one(case, solved))


def _users_alone(case: Case, library: Library, tell: Tell) -> list[Solved]:
    """Solve, per level that users reach alone, the user that reads most others; most frequent level first."""
    levels: dict[str, list[tuple[int, str]]] = {}
    n_users = case.card.params.n_users
    for number, name in enumerate(map(user_name, range(n_users))):
        tell(number, n_users)
        answer = grade(library, (name,), thinned=True)
        levels.setdefault(answer.determines, []).append((answer.individuals, name))
    found = []
    for users in sorted(levels.values(), key=len, reverse=True):
        _, name = max(users, key=lambda user: user[0])
        found.append(Solved((name,), grade(library, (name,)), len(users), sample=library.sample))
    return found


def row(solved: Solved) -> dict[str, Any]:
    """Return the row of `audit --json`."""
    answer = solved.answer
    return {
        "members": list(solved.members),
        "stands_for": solved.stands_for,
        "determines": answer.determines,
        "smallest_group": answer.smallest_group,
        "single_contributor_sums": answer.single_contributor_sums,
        "items": answer.single_items,
        "individuals": answer.individuals,
        "sums": answer.sums,
        "totals_under_first_factors": answer.totals,
        "noise_left": answer.noise_left,
        "unexplained": answer.unexplained,
        "low_bits": answer.uneven,
        "undecided": answer.undecided,
        "detail": detail(solved),
        "sample": solved.sample or None,
    }


def detail(solved: Solved) -> str:
    answer = solved.answer
    users = counted(answer.individuals, "user")
    words = {
        "nothing": "nothing that is linear in a user's numbers",
        "aggregate": _aggregate(answer),
        "noisy-individual": f"noisy {answer.what}s of {users}, {_noise(answer)}",
        "exact-individual": f"exact {answer.what}s, or exact differences of them, of {users}",
    }[answer.determines]
    if answer.clear:
        words = f"what {counted(len(answer.clear), 'user')} sent in the clear"
    if answer.single_contributor_sums:
        sums, items = answer.single_contributor_sums, answer.single_items
        words += f"; besides {counted(sums, 'sum')} of {counted(items, answer.place)} with one contributor"
    if answer.totals:
        words += f"; and of {counted(answer.totals, 'item')} one weighted total of the sums, "
        words += "under the unknown first factors"
    if answer.uneven:
        words += f"; of {answer.uneven} rows the low bits only, through masks with even coefficients"
    if answer.undecided:
        words += f"; {answer.undecided} rows could not be decided, so it may be more"
    return f"{words} ({solved.sample})" if solved.sample else words


def _aggregate(answer: Answer) -> str:
    if answer.smallest_group is None:
        return "published figures made from all users' data"
    noise = _noise(answer) if answer.noise_left else "without noise"
    return f"{answer.sums} sums of {answer.smallest_group} or more other users, {noise}"


def _names(kinds: Iterable[str]) -> str:
    return " and ".join({"eta": "η", "rho": "ρ"}.get(kind, kind) for kind in sorted(kinds))


def _noise(answer: Answer) -> str:
    parts = [f"{100 * part:.3g} % of {_names([kind])}" for kind, part in answer.noise_left.items()]
    return f"the least hidden under {' and '.join(parts)}" if parts else "without noise"


# --- findings --------------------------------------------------------------------------------------------------------


def findings(case: Case, solved: Sequence[Solved]) -> list[Finding]:
    return [finding for one in solved for finding in _of_one(case, one)]


def _of_one(case: Case, solved: Solved) -> list[Finding]:
    answer, scheme = solved.answer, case.card.scheme
    found = []
    protects = family_of(case.card.scheme).is_randomized(case.card.params)
    if answer.exact_sums and protects:
        title = "Sums of several users, or differences of them, can be had without any of the claimed noise."
        found.append(_finding("missing-noise", title, solved, "break", f"ε = {case.card.params.epsilon:g}"))
    elif protects and _too_little(case, solved):
        title = f"To {solved.members[0]} alone, sums have less than the noise that is claimed."
        found.append(_finding("missing-noise", title, solved, "break", f"all of {_names(answer.noises)}"))
    if answer.exact_singles and protects and answer.determines != "exact-individual":
        title = "Sums of one contributor, or their differences, can be had without noise."
        found.append(_finding("difference-attack", title, solved, "break", f"ε = {case.card.params.epsilon:g}"))
    roles = {role_of(member) for member in solved.members}
    allowed = max((LEVELS.index(scheme.permits.get(role, LEVELS[0])) for role in roles), default=0)
    if not protects and LEVELS[allowed] == "noisy-individual":  # no noise was claimed, so exact numbers are allowed
        allowed = LEVELS.index("exact-individual")
    level = LEVELS.index(answer.determines)
    if answer.single_contributor_sums and len(solved.members) == 1 and allowed < LEVELS.index("noisy-individual"):
        title = "Some sums have one contributor only, and so are no aggregate."
        found.append(_finding("single-contributor", title, solved, "weak", LEVELS[allowed]))
    if level > allowed:
        found.append(_beyond(case, solved, roles, LEVELS[allowed]))
    elif roles == {"user"} and answer.determines == "aggregate" == LEVELS[allowed] and answer.sums:
        title = "Item factors at two times give a user the noisy sums of its items."
        found.append(_finding("released-sums", title, solved, "weak", LEVELS[allowed]))
    return found


def _too_little(case: Case, solved: Solved) -> bool:
    """Tell whether a sum has less than all noise of some kind for a server, which holds no share of it."""
    answer, server = solved.answer, solved.members[0] in case.card.scheme.servers
    if not server or len(solved.members) > 1 or answer.determines != "aggregate" or not answer.sums:
        return False
    return any(answer.noise_left.get(kind, 0.0) < 1 - 1e-6 for kind in answer.noises)


def _beyond(case: Case, solved: Solved, roles: set[str], allowed: str) -> Finding:
    """Report more than the members' roles are permitted. Schemes assume that roles do not collude."""
    servers = roles & set(case.card.scheme.servers)
    exact, said = solved.answer.determines == "exact-individual", case.card.scheme.unmasked(case.card.params)
    told = len(servers) > 1 and said == "exact-individual"
    if exact and not told and family_of(case.card.scheme).is_randomized(case.card.params):
        title = "One user's numbers, or their differences, can be had without noise."
        return _finding("difference-attack", title, solved, "break", allowed)
    if servers and len(solved.members) == 1:
        title = f"{solved.members[0]} alone can work out more than the scheme permits it."
        return _finding("unmasking", title, solved, "break", allowed)
    if len(servers) < 2 and solved.answer.unexplained:
        title = "More users are isolated than the opened sums and the members' own numbers account for."
        return _finding("unmasking", title, solved, "break", allowed)
    if len(servers) > 1:
        return _finding("unmasking", "The servers together undo the masks of every user.", solved, "weak", allowed)
    if "recommender" in servers:
        title = "The recommender and all contributors of a sum but one isolate the last one."
        return _finding("known-shares", title, solved, "weak", allowed)
    title = "Contributors of a sum isolate the last of them, from item factors alone."
    return _finding("released-sums", title, solved, "weak", allowed)


def _finding(id_: str, title: str, solved: Solved, severity: Severity, claimed: str) -> Finding:
    answer = solved.answer
    measured = {"determines": answer.determines, "users": answer.individuals, "smallest_group": answer.smallest_group}
    measured["totals_under_first_factors"] = answer.totals
    evidence = f"algebra over the views of {'+'.join(solved.members)}: {detail(solved)}"
    if answer.totals and id_ == "released-sums":
        evidence += "; the publication gives these of items that no member rated, and --publish rated would not"
    return Finding(id_, title, solved.members, severity, claimed, measured, None, EXACT, evidence)
