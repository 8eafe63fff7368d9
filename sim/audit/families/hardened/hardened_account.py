"""The accounting of `hardened`: ε of the whole run, what colluding users leave of it, and whether every share is there.

The accounting is the theorem in `protocol/schemes/hardened`, for the scales that the parameters state. Whether the run
kept to them is tested on what was really sent: an auditor with all views takes the masks and the vector of a user's
ratings off its upload, and what is left must follow the law of a share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import stats

from protocol.arrays import Floats, Ints
from protocol.party.role import RECOMMENDER, THIRD_PARTY, Send, UserInput, user_index, user_name
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened.hardened import account, colluders
from protocol.schemes.hardened.hardened_params import HardenedParams
from protocol.schemes.hardened.hardened_roles import posterior_of
from protocol.schemes.hardened.item_sketch import chosen_items
from protocol.schemes.hardened.item_table import ItemTable
from protocol.schemes.hardened.norm_proof.norm_roles import unmasked_upload
from protocol.schemes.hardened.share_law import SCALE_BITS
from protocol.schemes.hardened.taste import directions, learn
from sim.audit import truth
from sim.audit.accounting.noise_test import FALSE_ALARM
from sim.audit.families.hardened.heard_sums import vector_told
from sim.audit.findings import Finding
from sim.audit.role_rerun import rerun
from sim.views.evidence import Case
from sim.views.exhibits import Exhibits

CELLS = 32  # of the law, about equally likely


def account_hardened(case: Case, head: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    params = case.card.params
    assert isinstance(params, HardenedParams)
    made = account(params)
    composed = {
        "releases": params.rounds,
        "claimed": params.epsilon,
        "tight": made["epsilon"],
        "mu": made["mu"],
        "delta": params.delta,
        "provisioned": params.spare,
        "users": params.n_users,
    }
    document = {**head, "unit": made["unit"], "delta": params.delta, "method": made["method"]}
    document |= {"composed": composed, "colluders": made["colluders"]}
    found = [_composition(params, composed), _colluding(params)]
    opened, elsewhere = _opened(case)
    uploads: list[dict[int, Ints]] = [{} for _ in range(params.rounds)]
    for iteration, user, share in shares_of(case) if case.path(THIRD_PARTY).is_file() else ():
        uploads[iteration][user] = share
    if not opened or min(map(len, uploads)) < params.min_contributors:
        document |= {"noise": None, "untested": "The shares were not tested: not every view was kept (--views full)."}
        return document, found
    tested = [_tested(params, scale, shares) for scale, shares in zip(params.scales, uploads, strict=True)]
    document["noise"] = worst = min(tested, key=lambda one: float(one["p"]))
    return document, [*found, _missing(worst), *_not_of_totals(elsewhere)]


def _composition(params: HardenedParams, composed: dict[str, Any]) -> Finding:
    over = composed["tight"] > params.epsilon * (1 + 1e-9)
    return Finding(
        "composition",
        f"The whole run has ε {composed['tight']:.4g} at δ = {params.delta:g}, for {params.neighbour}, "
        f"where {params.epsilon:g} is claimed.",
        (RECOMMENDER,),
        "break" if over else "info",
        claimed=params.epsilon,
        measured=composed,
        confidence="exact, if the sensitivity is a bound (see sensitivity)",
        evidence=f"rounds of Gaussian noise on integers, μ = {composed['mu']:.4g}, to {params.spare} colluding or "
        f"absent users of {params.n_users}",
    )


def known_shares_left(accounting: Mapping[str, Any], known: int) -> float:
    """Compute ε to a coalition that knows this many shares, if nobody dropped out: μ is that of the floor, rescaled."""
    composed = accounting["composed"]
    unknown, floor = composed["users"] - known, composed["users"] - composed["provisioned"]
    return gaussian_epsilon(composed["mu"] * math.sqrt(floor / unknown), composed["delta"]) if unknown > 0 else math.inf


def _colluding(params: HardenedParams) -> Finding:
    left, n = colluders(params), params.n_users
    return Finding(
        "known-shares",
        f"Up to {params.spare} colluding users leave the claim whole; with the recommender, a tenth of the users "
        f"leaves ε {left['10 %']:.3g} and half of them {left['50 %']:.3g}.",
        (RECOMMENDER, "user"),
        "info",
        claimed=params.epsilon,
        measured=left,
        confidence=f"exact, at δ = {params.delta:g}",
        evidence=f"{params.spare} of {n} shares are provisioned for; c known shares leave (n − c) s² of the variance",
    )


# --- what was really sent --------------------------------------------------------------------------------------------


def _opened(case: Case) -> tuple[bool, int]:
    """Return (whether sums were opened and published, how many published numbers do not follow from them)."""
    params = case.card.params
    assert isinstance(params, HardenedParams)
    totals: list[Floats] = []
    contributors: list[int] = []
    sent: dict[str, Any] = {}
    for turn in rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER):
        totals += [mark.values.reshape(-1) for mark in turn.passed.computed if mark.label.what == "total"]
        sent |= {type(each.message).__name__: each.message for each in turn.effects if isinstance(each, Send)}
        if len(totals) > len(contributors):
            contributors.append(len(getattr(turn.role, "last_contributors", ())))
    first, selected = sent.get("OpenTaste" if params.tastes else "PublishedTable"), None
    if len(totals) < params.rounds or first is None or not all(contributors):
        return False, 0
    if params.selected:
        selected = chosen_items(params, case.card.run_id, totals[0])
    found = posterior_of(params, totals[params.table_round], contributors[params.table_round], selected)
    table = ItemTable.of(found, params.described())
    pairs = [(first.qualities, table.quality), (first.popularities, table.popularity), (first.frame, table.frame)]
    if selected is not None and not np.array_equal(sent["OpenTable"].covered, selected):
        return True, len(selected)
    if params.tastes:
        taste, values = directions(params, table, found.counts)
        learned = learn(params, taste, values, totals[1], found.counts, contributors[1]).learned
        last = sent.get("PublishedTaste")
        if last is None or learned is None:
            return False, 0
        pairs += [(first.directions, taste.basis), (last.directions, learned)]
    return True, sum(int(np.count_nonzero(rows.ravel() != made.astype(np.float32).ravel())) for rows, made in pairs)


def summed_items(case: Case) -> Ints:
    """Return the items that the table's sum is about, in the order of its places."""
    params = HardenedParams.of(case.card.params)
    turns = rerun(Exhibits(case, (RECOMMENDER,)), RECOMMENDER) if params.selected else ()
    found = (getattr(turn.role, "selected", None) for turn in turns)
    return next((items for items in found if items is not None), np.arange(params.n_items))


def shares_of(case: Case) -> Iterator[tuple[int, int, Ints]]:
    """Yield (round, user, what its upload has beyond its mask and its vector) for users whose views were kept."""
    setting, known = case.card.setting, set(truth.known_users(case))
    tape = Exhibits(case, (RECOMMENDER,)).brought(RECOMMENDER).tape
    params = HardenedParams.of(case.card.params)
    for seen in Exhibits(case, (THIRD_PARTY,)).received(THIRD_PARTY, params.upload_kind):
        if seen.sender in known:
            bare = sum(unmasked_upload(setting, tape.key("mask", user_index(seen.sender)), seen.message))
            own = vector_of(case, seen.sender, truth.ratings_of(case, seen.sender), seen.iteration)
            yield seen.iteration, user_index(seen.sender), bare - own


def vector_of(case: Case, user: str, own: UserInput, iteration: int) -> Ints:
    """Make what `user` adds in a round if it brings `own`, from what it was told before."""
    params = case.card.params
    assert isinstance(params, HardenedParams)
    told = None
    if iteration:
        told = next(Exhibits(case, (user,)).received(user, "OpenTable" if params.selected else "OpenTaste")).message
    return vector_told(params, case.card.run_id, own, told)


def _tested(params: HardenedParams, numerator: int, uploads: dict[int, Ints]) -> dict[str, Any]:
    """Test the shares: the size of each user's, their law, their independence, and the noise of the sum."""
    scale = numerator / (1 << SCALE_BITS)
    spread = math.sqrt(scale**2 + 1 / 12)
    table = np.stack([uploads[user] for user in sorted(uploads)]) / spread
    n, length = table.shape
    sizes = (table**2).sum(axis=1)  # for a large scale χ² with `length` degrees of freedom
    low, high = stats.chi2.cdf(sizes, length), stats.chi2.sf(sizes, length)
    least = int(np.argmin(np.minimum(low, high)))
    cuts = np.unique(np.rint(stats.norm.ppf(np.linspace(0, 1, CELLS + 1)[1:-1]) * scale))
    counts = np.bincount(np.searchsorted(cuts, np.rint(table * spread).ravel()), minlength=len(cuts) + 1)
    chances = np.diff(stats.norm.cdf((cuts + 0.5) / scale), prepend=0.0, append=1.0)
    root = math.sqrt(table.size)
    beside = float((table[:, 1:] * table[:, :-1]).sum()) / root
    among = float((table[1:] * table[:-1]).sum()) / root
    sums = table.sum(axis=0)
    p = {
        "smallest share": 2 * n * float(min(low[least], high[least])),
        "law": float(stats.chisquare(counts, table.size * chances).pvalue),
        "places": 2 * float(stats.norm.sf(abs(beside))),
        "users": 2 * float(stats.norm.sf(abs(among))),
        "sum": 2 * float(min(stats.chi2.cdf((sums**2).sum() / n, length), stats.chi2.sf((sums**2).sum() / n, length))),
    }
    needed = scale * math.sqrt(params.min_contributors)
    worst = min(p, key=lambda name: p[name])
    return {
        "p": min(1.0, len(p) * p[worst]),
        "missing": len(p) * p[worst] < FALSE_ALARM,
        "tests": {name: min(1.0, value) for name, value in p.items()},
        "worst": worst,
        "least_user": user_name(sorted(uploads)[least]),
        "least_ratio": math.sqrt(float(sizes[least]) / length),
        "deviation": float(np.std(sums)) * spread / needed,
        "finds_below": _found_below(length, len(p)),
        "shares": n,
        "numbers": table.size,
    }


def _found_below(length: int, tests: int) -> float:
    """Compute the part of its scale below which noise at `length` places would be found, 19 times in 20."""
    least = stats.chi2.ppf(FALSE_ALARM / (2 * tests), length)
    return math.sqrt(float(least / stats.chi2.ppf(0.95, length)))


def _missing(tested: dict[str, Any]) -> Finding:
    ratio, least = tested["deviation"], f"{tested['least_user']}'s is {tested['least_ratio']:.3g} of its scale"
    title = (
        f"The shares of {tested['shares']} users follow their law and are independent; together they are "
        f"{ratio:.3g} times the noise that the claim needs."
    )
    if tested["missing"]:
        title = f"The shares do not follow their law ({tested['worst']}); {least}."
    return Finding(
        "missing-noise",
        title,
        (RECOMMENDER,),
        "break" if tested["missing"] else "info",
        claimed="one share of the stated law from every user at every place",
        measured={name: tested[name] for name in ("deviation", "least_ratio", "p")},
        chance=None,
        confidence=f"p = {tested['p']:.2g} over {len(tested['tests'])} tests, Bonferroni; alarm below {FALSE_ALARM:g}",
        evidence=f"{tested['numbers']} numbers: uploads less masks and less the vectors of the users' ratings; of all "
        f"users, {least}",
    )


def _not_of_totals(elsewhere: int) -> list[Finding]:
    """Report published numbers that do not follow from the noisy totals, which the test of the noise is about."""
    if not elsewhere:
        return []
    return [
        Finding(
            "missing-noise",
            f"{elsewhere} published numbers do not follow from the noisy totals.",
            (RECOMMENDER,),
            "break",
            claimed=0,
            measured=elsewhere,
            confidence="exact: counted in what the recommender sent",
            evidence="qualities, popularities and frame as sent, against those of the noisy totals",
        )
    ]
