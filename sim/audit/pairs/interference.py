"""Non-interference, role by role: the same tape and the same incoming messages, with other numbers in them.

A server's role runs again on other sums or masked values, a user's role with another key of its masks. What it sends
may then differ in the values of numbers alone. And every masked value of a user must differ: a mask that does not
follow what its owner was dealt is known to whoever can compute it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from protocol.arithmetic.tape import Name, Tape
from protocol.params import Params
from protocol.party.role import Send, role_of
from protocol.schemes.base import Leak, Scheme
from protocol.wire.fields import DigestField, FloatsField, RingField, field_kinds
from protocol.wire.messages import Message
from sim.audit.families.registry import family_of
from sim.audit.findings import Finding
from sim.audit.pairs.deviations import Deviation
from sim.audit.pairs.twice import Side, TwoRuns, before, note_all, paired_turns
from sim.audit.role_rerun import fraction_bits, inputs_of
from sim.views.evidence import Case
from sim.views.exhibits import Brought, Exhibits, Seen


class OtherKeys(Tape):
    """Another tape with the same normal draws and other keys, from which a role may draw masks of its own."""

    __slots__ = ()

    def key(self, *name: Name) -> bytes:
        return super().key("another", *name)


Alter = Callable[[Case, Seen, np.random.Generator], Message]


def audit_servers(case: Case, until: int | None) -> list[Deviation]:
    """Run every server's role on other numbers, and list what follows them and is no number."""
    found: list[Deviation] = []
    for server in case.card.scheme.servers:
        twice = TwoRuns(server)
        note_all(case, twice, *_sides(case, server, _other_numbers, until))
        found += undeclared(case.card.scheme, twice.deviations)
    return found


def undeclared(scheme: Scheme, deviations: Iterable[Deviation], params: Params | None = None) -> list[Deviation]:
    """Select what is a leak by itself, and is not declared to follow released numbers; given `params`, nor the support.

    `params` are given where the items of a user are other ones.
    """

    def may_follow(leak: Leak) -> bool:
        return leak.follows or (params is not None and scheme.names_support(params, leak))

    follow = {(leak.receiver, leak.kind, leak.field) for leak in scheme.leakage if may_follow(leak)}
    return [one for one in deviations if one.is_leak and (role_of(one.party), one.kind, one.field) not in follow]


def audit_masks(case: Case, users: list[str], until: int | None) -> tuple[list[Deviation], list[Finding]]:
    """Run the roles of `users` with other keys of their masks; masked values must follow, and nothing else may."""
    found: list[Deviation] = []
    for user in users:
        first, (brought, given) = _sides(case, user, _other_masks, until)
        twice = TwoRuns(user)
        note_all(case, twice, first, (brought, given))
        found += undeclared(case.card.scheme, twice.deviations)
        other = Brought(OtherKeys(case.tape_seed(user)), brought.inputs)
        if (bare := _bare(case, user, (first, (other, given)))) is not None:
            return found, [bare]
    return found, []


def _sides(case: Case, party: str, alter: Alter, until: int | None) -> tuple[Side, Side]:
    exhibits, draw = Exhibits(case, (party,)), np.random.default_rng([*case.card.run_id, *party.encode()])
    given = before(inputs_of(exhibits, party), until)
    other = [
        dataclasses.replace(one, message=alter(case, one, draw)) if isinstance(one, Seen) else one for one in given
    ]
    return (exhibits.brought(party), given), (exhibits.brought(party), other)


def _other_numbers(case: Case, seen: Seen, draw: np.random.Generator) -> Message:
    """Replace what users masked by other uniform values, and sums by others that are as likely."""
    params, changed = case.card.params, dict[str, Any]()
    bound = family_of(case.card.scheme).release_bound(params)
    size = params.rating_span if bound is None else bound.most
    for name, kind in field_kinds(seen.message.__class__):
        value = getattr(seen.message, name)
        if issubclass(kind, RingField):
            ring = kind(params).ring
            step = 2.0 ** fraction_bits(params, seen.iteration) * size
            moved = ring.from_integers(np.rint(step * draw.standard_normal(value.shape)))
            masked = seen.sender not in case.card.scheme.servers
            changed[name] = _uniform(params, value, draw) if masked else ring.add(value, moved)
        elif issubclass(kind, FloatsField) and case.card.scheme.factorizes:
            changed[name] = (value * draw.uniform(-1, 1, value.shape)).astype(value.dtype)  # still within its range
    return dataclasses.replace(seen.message, **changed) if changed else seen.message


def _other_masks(case: Case, seen: Seen, draw: np.random.Generator) -> Message:
    changed: dict[str, Any] = {}
    for name, kind in field_kinds(seen.message.__class__):
        value = getattr(seen.message, name)
        if kind is DigestField:
            changed[name] = draw.bytes(len(value))
        elif issubclass(kind, RingField):
            changed[name] = _uniform(case.card.params, value, draw)
    return dataclasses.replace(seen.message, **changed) if changed else seen.message


def _uniform(params: Params, rows: Any, draw: np.random.Generator) -> Any:
    ring = RingField(params).ring
    return ring.from_bytes(draw.bytes(rows.size * ring.width), rows.shape[1])


def _bare(case: Case, user: str, sides: tuple[Side, Side]) -> Finding | None:
    """Find masked values that stay as they are when the masks are others."""
    ring = case.card.setting.ring
    for one, other in paired_turns(case, user, *sides):
        if one is None or other is None:
            return None
        for first, second in zip(one.effects, other.effects, strict=False):
            if not isinstance(first, Send) or not isinstance(second, Send):
                continue
            for name, kind in field_kinds(first.message.__class__):
                if not issubclass(kind, RingField) or type(first.message) is not type(second.message):
                    continue
                rows, others = getattr(first.message, name), getattr(second.message, name)
                same = int(np.count_nonzero(rows == others)) if rows.shape == others.shape else 0
                if same > 2 + 20 * rows.size / 2.0**ring.bits:
                    return _worthless_mask(first, name, user, same, rows.size)
    return None


def _worthless_mask(send: Send, name: str, user: str, same: int, of: int) -> Finding:
    where = f"{type(send.message).__name__}.{name}"
    return Finding(
        "own-randomness",
        f"{same} of {of} masked values in {where} of {user} stay as they are when it is dealt other masks: whoever "
        "knows what they are made from reads through them.",
        (send.to,),
        "break",
        claimed=0,
        measured=same,
        chance=0,
        confidence="exact: the role runs again on the same messages, with another key of its masks",
        evidence=f"iteration {getattr(send.message, 'iteration', -1)}",
    )


def interference_findings(rows: list[dict[str, Any]]) -> list[Finding]:
    return [
        Finding(
            "interference",
            f"Hidden numbers decide {row['words']} from {row['sender']} to {row['party']}.",
            (row["party"].partition(":")[0],),
            "break",
            claimed=0,
            measured=row["times"],
            chance=0,
            confidence="exact: the role runs again with the same tape, on other numbers of the same kinds",
            evidence=f"first in iteration {row['iteration']}; a server had other sums or masked values, a user another "
            "key of its masks",
        )
        for row in rows
    ]
