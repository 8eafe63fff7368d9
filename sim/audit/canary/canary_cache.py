"""The canary of a scheme, played once per account: it depends on the scheme, its ε, its options and the code alone.

Only Keyhole's own schemes are cached, since the code of other schemes may change under the same name. The tapes are
derived from what the canary depends on, not from the run, so every run of the same scheme and ε has the same canary.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any

from protocol.schemes import is_ours
from sim.audit.canary import empirical
from sim.audit.canary.canary import CannotBeMeasured
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.console.progress import Tell
from sim.data.ratings import cache_folder
from sim.folder import sealed
from sim.foreign.plain_text import jsonable
from sim.views.evidence import Case

PURPOSE = "canary"


def cached_canary(case: Case, repetitions: int, fresh: bool, tell: Tell) -> tuple[dict[str, Any], list[Finding]]:
    """Return the `empirical` part of an audit and its findings, from the account's cache or played now.

    `fresh` ignores the cache. In the document, `cached` tells which it was, and `cache` names the file.
    """
    scheme = case.card.scheme
    key = key_of(case, repetitions)
    if key is None:
        document, findings = empirical.measure(case, scheme, repetitions=repetitions, tell=tell)
        return {**document, "cached": False, "cache": None}, findings
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    folder, name = cache_folder(), f"canary/{digest[:32]}.json"
    told = {"cached": True, "cache": str(folder / name)}
    if not fresh and (held := sealed.read(folder, name, PURPOSE)) is not None and held["digest"] == digest:
        findings = [Finding(**{**row, "coalition": tuple(row["coalition"])}) for row in held["findings"]]
        return {**held["document"], **told}, findings
    seed = hashlib.sha256(f"canary {digest}".encode()).digest()
    document, findings = empirical.measure(case, scheme, repetitions=repetitions, seed=seed, tell=tell)
    if document["rows"]:
        rows = [dataclasses.asdict(finding) for finding in findings]
        sealed.write(folder / name, PURPOSE, {"digest": digest, "key": key, "document": document, "findings": rows})
    return {**document, **told, "cached": False}, findings


def key_of(case: Case, repetitions: int) -> dict[str, Any] | None:
    """Return everything that the canary of this run depends on; None if it is not cached."""
    scheme, params = case.card.scheme, case.card.params
    if not is_ours(scheme) or math.isinf(params.epsilon) or "epsilon" not in scheme.flags:
        return None
    try:
        settings = family_of(scheme).canary_settings(params)
    except CannotBeMeasured:
        return None
    key = {
        "scheme": scheme.name,
        "settings": settings,
        "repetitions": repetitions,
        "confidence": empirical.CONFIDENCE,
        "code": sealed.code_version(),
    }
    made: dict[str, Any] = jsonable(key)
    return made
