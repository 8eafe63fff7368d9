"""The attacks of the explorer's sets on the real bytes of their views, within a limit of time."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any

from sim.audit.audit import Audit
from sim.audit.coalitions import Coalition
from sim.audit.findings import Finding
from sim.report.explorer.party_sets import Answered

SECONDS = 2.0  # of computing, for what the audit has not answered yet

LATE = "Not attacked: it would have taken the page too long. Ask with the command."
NOT_COMPUTED = "Not attacked: this set was not computed for this page. Ask with the command."
SERVERS_DO = "The known attacks of all servers together use no user's view: theirs are under the servers together."


def add_attacks(
    live: Audit, document: dict[str, Any], sets: dict[Coalition, Answered], *, seconds: float = SECONDS
) -> None:
    """Add attacks to `sets`: the audit's own sets have its findings; others are attacked, small ones first.

    Attacks that a member can make alone are left to that member. New attacks start within `seconds` of computing.
    """
    why = document["unanswered"].get("attacks") or document["nothing_to_ask"].get("attacks")
    if why or "attacks" not in document["questions"]:
        for one in sets.values():
            one.unattacked = why or "The audit was not asked for attacks."
        return
    own = {tuple(one["members"]) for one in document["coalitions"]}
    servers, started = set(live.case.card.scheme.servers), time.process_time()
    for members in sorted(sets, key=len):
        one = sets[members]
        if one.least:
            one.unattacked = NOT_COMPUTED
        elif members in own:
            one.attacks = _found(document, members)
        elif len(servers) > 1 and servers < set(members):
            one.unattacked = SERVERS_DO
        elif time.process_time() - started > seconds:
            one.unattacked = LATE
        else:
            from sim.audit.attacks.attack import attack_by  # slow to import
            from sim.audit.attacks.coalition_views import Scene

            apart = frozenset(name for name in members if len(members) == 1 or (name,) not in sets)
            one.attacks = attack_by(Scene(live.case, members, live.truth(own)), apart)


def _found(document: dict[str, Any], members: Coalition) -> list[Finding]:
    """List the findings of the audit's attacks by exactly this set."""
    names = [one.name for one in fields(Finding)]
    return [
        Finding(**{name: row[name] for name in names} | {"coalition": members})
        for row in document["findings"]
        if row["question"] == "attacks" and tuple(row["coalition"]) == members
    ]
