"""The evidence behind the findings, as tables that unfold: canary, pairs, accounting, statistics, inventory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from protocol.party.role import user_name
from sim.audit.canary.looks import looks_in_words
from sim.audit.canary.own_run import own_in_words
from sim.audit.pairs.exposure import accounted_of
from sim.console.console import counted
from sim.report.findings.evidence_values import text, value_html
from sim.report.section import table

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Behind:
    title: str
    words: list[str]  # the method, and with which confidence
    html: Markup


def behind(audit: Document) -> list[Behind]:
    """Make the tables; a question that was not asked has no table here, as the verdict names it."""
    parts = [
        _canary(audit["empirical"]),
        _worst_pairs(audit.get("pairs")),
        _accounting(audit["accounting"]),
        *_statistics(audit["statistics"]),
        _inventory(audit["inventory"]),
    ]
    return [part for part in parts if part is not None]


def _canary(empirical: Document | None) -> Behind | None:
    if not empirical or not empirical["rows"]:
        return None
    together, problem = f"{100 * empirical['confidence']:g} %", empirical["problem"]
    columns = [
        "who",
        "from",
        "which knows",
        "canary at ε",
        "repetitions",
        "could show at most",
        "claimed",
        "ε ≥, 95 %, each alone",
    ]
    columns.append(f"ε ≥, {together}, jointly")
    rows = [
        [
            " + ".join(row["coalition"]) or "a reader of the releases",
            f"{row['statistic']} ({row['arm']})",
            row["knows"],
            text(row["epsilon"]),
            text(row["repetitions"]),
            f"{row['certifiable_95']:.2f}",
            "nothing" if row["claimed"] is None else text(row["claimed"]),
            f"{row['lower_bound_95']:.2f}",
            f"{row['lower_bound']:.2f}" + (" (above its claim)" if row["exceeds"] else ""),
        ]
        for row in empirical["rows"]
    ]
    words = [
        *filter(None, [own_in_words(empirical.get("own_ratings"))]),
        f"A small problem (users: {problem['users']}, items: {problem['items']}, dim {problem['dim']}), in which "
        f"{problem['neighbours']}, was played {empirical['repetitions_in_all']:,} times through the scheme's roles.",
        *filter(None, [looks_in_words(empirical.get("looks"))]),
        f"{empirical['method']}.",
        "A bound above its claim shows that the claim does not hold for that party; a bound below it shows no more "
        "than itself.",
    ]
    return Behind("The canary: ε measured from below", words, table(columns, rows, numeric=6))


def _worst_pairs(pairs: Document | None) -> Behind | None:
    if not pairs or not pairs["epsilon"]:
        return None
    columns = ["who", "the pair", "at δ", "ε of the pair", "if constant noise is known", "accounted so"]
    columns.append("accounted, constant noise counted on")
    rows = [
        [
            " + ".join(row["coalition"]),
            row.get("pair")
            or f"{user_name(row['user'])} says {row['other']:g} of item {row['item']} instead of {row['rating']:g}",
            f"{row['delta']:g}",
            text(row["epsilon"]),
            text(row.get("epsilon_given_constant_noise")),
            *(" to ".join(map(text, both)) or "–" for both in accounted_of(row)),
        ]
        for row in pairs["epsilon"]
    ]
    words = [
        f"Users' roles ran again with the same randomness and {counted(pairs['tried'], 'change')} of ratings. Shown "
        "is what tells each party most.",
        "The ε of a pair is exact for that change in this run: the ε of the scheme cannot be smaller. The accounted ε "
        "is calculated for user factors that stay, in an even direction and in the worst. In a pair they react.",
    ]
    return Behind("The worst pairs: what one changed rating is worth", words, table(columns, rows, numeric=5))


_ACCOUNTED = ("composed", "one_release", "all_releases", "ratings", "colluders", "to_a_user", "sums", "dilution")


def _accounting(accounting: Document | None) -> Behind | None:
    if not accounting:
        return None
    parts = []
    for name in _ACCOUNTED:
        if accounting.get(name):
            parts.append(Markup("<h4>{}</h4>{}").format(name.replace("_", " "), value_html(accounting[name])))
    words = [f"Unit: {accounting['unit']}. δ = {accounting['delta']:g}.", f"Method: {accounting['method']}."]
    return Behind("The accounting: ε by calculation", words, Markup("").join(parts))


def _statistics(statistics: Document | None) -> list[Behind | None]:
    if not statistics:
        return []
    return [_uniformity(statistics["uniformity"]), _ideal_against_real(statistics["ideal_against_real"])]


def _uniformity(found: Document) -> Behind | None:
    if not found["tests"]:
        return None
    fields = found["fields"]
    known = [field["smallest_p_corrected"] for field in fields if field["smallest_p_corrected"] is not None]
    least = f"{min(known):.3g}" if known else "not known: there were too few values"
    words = [
        f"{found['tests']} tests of whether masked values are uniform to their receiver, corrected for their number "
        f"({found['correction']}): a correct run is flagged with probability {found['level']:g} at most. The smallest "
        f"corrected p is {least}.",
        *found["notes"],
    ]
    columns = ["receiver", "field", "messages", "values", "smallest p", "corrected", "rejected"]
    rows = [
        [
            field["party"],
            f"{field['kind']}.{field['field']}",
            text(field["messages"]),
            text(field["values"]),
            _p_value(field["smallest_p"]),
            _p_value(field["smallest_p_corrected"]),
            str(len(field["rejected"])),
        ]
        for field in fields
    ]
    return Behind("Uniformity of masked values", words, table(columns, rows, numeric=5))


def _p_value(p: float | None) -> str:
    return "too few values" if p is None else f"{p:.3g}"


def _ideal_against_real(found: Document) -> Behind | None:
    if not found["comparisons"]:
        return None
    words = [
        "A classifier guesses a user's secret from what its party may learn (permitted), from that and drawn uniform "
        "words (simulated), and from that and the words of the view (real). If masks hide, real is no better than "
        "simulated. AUC is the area under the curve: 0.5 is chance.",
        f"All comparisons together err with probability {found['level']:g} at most.",
        *found["notes"],
    ]
    columns = [
        "party",
        "secret",
        "pairs",
        "AUC permitted",
        "simulated",
        "real",
        "gain, 95 %",
        "p",
        "would notice a gain of",
    ]
    rows = [
        [
            row["party"],
            row["secret"],
            text(row["pairs"]),
            *(f"{row[name]:.3f}" for name in ("auc_permitted", "auc_simulated", "auc_real")),
            " to ".join(f"{end:+.3f}" for end in row["gain_95"]),
            f"{row['p']:.3g}",
            f"{row['smallest_gain']:.3f} ({row['power']:.0%} power)",
        ]
        for row in found["comparisons"]
    ]
    return Behind("Ideal against real", words, table(columns, rows, numeric=7))


def _inventory(inventory: list[Document] | None) -> Behind | None:
    if not inventory:
        return None
    columns = ["party", "kind", "field", "plane", "declared", "in words", "count"]
    rows = [
        [
            row["party"] if row["parties"] == 1 else f"{row['party']} ({row['parties']})",
            row["kind"],
            row["field"],
            row["plane"],
            {True: "yes", False: "NO"}.get(row["declared"], "not asked for"),
            row["words"] or "–",
            text(row["count"]),
        ]
        for row in inventory
    ]
    words = ["Every field that reached a party, and whether the scheme's leakage policy declares it."]
    return Behind("Inventory: what reached whom", words, table(columns, rows, numeric=1))
