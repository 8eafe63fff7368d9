"""Everything that a role must refuse in a given state: the cases of `test_refusals.py`.

A fault is usually one change to the message that is due in the undisturbed run.

The run: three users, 300 items, two iterations. Item 4 exists but no user rated it; item 3 has one rater and a floor of
two, so its sum is never released. In the compact wire an item has 9 bits, so some items that do not exist can be
written; the users are three bits of one byte, so they have no order and cannot be named twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from protocol.errors import Reason
from protocol.party.role import RECOMMENDER, THIRD_PARTY
from protocol.wire.messages import (
    Again,
    Agreed,
    Contributors,
    Finish,
    Gradient,
    Hello,
    ItemFactors,
    ItemFactorsInFull,
    Join,
    MaskedGradient,
    MaskedTotal,
    OpenSum,
    Publication,
    Welcome,
    WelcomeInFull,
)
from support.stage import Stage
from support.wire import KINDS, WIRE_VERSION

RATINGS = [{0: 1.0, 1: 4.0}, {1: 5.0, 2: 2.0}, {0: 3.0, 2: 4.0, 3: 1.0}]
USERS, ITEMS, DIM, T = 3, 300, 2, 2
NAMES = [f"user:{user}" for user in range(USERS)]
UNRATED, BELOW_FLOOR = 4, 3
STRANGER = "user:9"
HUGE = 2**64 - 1


def u32(*numbers: int) -> Any:
    return np.array(numbers, np.uint32)


class Setup(NamedTuple):
    scheme: str
    wire: str = "compact"
    held: int = 0  # gradients that reach the third party before the message that opens their iteration


class Case(NamedTuple):
    fault: str
    sender: str
    message: Any
    reason: Reason
    read: bool = True  # False: the codec or the session refuses it, so it does not use up its number


Truth = list[tuple[str, Any]]  # what the party receives in the undisturbed run: sender and message
Cases = Iterator[Case]


# --- faults ----------------------------------------------------------------------------------------------------------


def changed(message: Any, **fields: Any) -> Any:
    return dataclasses.replace(message, **fields)


def lengths(sender: str, message: Any, *fields: str) -> Cases:
    """Give each field one entry too few, one too many, and none."""
    for field in fields:
        value = getattr(message, field)
        more = (*value, value[-1]) if isinstance(value, tuple) else np.concatenate([value, value[-1:]])
        for words, wrong in (("one too few", value[:-1]), ("one too many", more), ("none", value[:0])):
            yield Case(f"{field}: {words}", sender, changed(message, **{field: wrong}), Reason.WRONG_LENGTH)


def entries(sender: str, message: Any, field: str, *values: float) -> Cases:
    """Replace the last number of a field by values out of range; the codec refuses those that are not finite."""
    for value in values:
        wrong = getattr(message, field).copy()
        wrong.reshape(-1)[-1] = value
        read = bool(np.isfinite(value))
        yield Case(f"{field}: {value}", sender, changed(message, **{field: wrong}), Reason.OUT_OF_RANGE, read)


def disorder(sender: str, message: Any, field: str, setup: Setup) -> Cases:
    """Name an identifier twice, and put identifiers in falling order."""
    if field == "users" and setup.wire == "compact":
        return
    wrong = {Reason.DUPLICATE_ITEM: u32(0, 1, 1), Reason.UNSORTED_ITEMS: u32(0, 2, 1)}
    for reason, ids in wrong.items():
        yield Case(f"{field}: {reason.name}", sender, changed(message, **{field: ids}), reason, read=False)


def too_far(sender: str, message: Any, field: str, setup: Setup) -> Cases:
    """Replace the last identifier by the first one that does not exist, and by the largest one that fits."""
    compact, count = setup.wire == "compact", USERS if field == "users" else ITEMS
    reason = Reason.OUT_OF_RANGE if field == "users" else Reason.UNKNOWN_ITEM
    if compact and field == "users":
        reason = Reason.NOT_CANONICAL  # a bit behind the last user
    last = 2**32 - 1 if not compact else 7 if field == "users" else 511
    for one in (count, last):
        wrong = changed(message, **{field: u32(*getattr(message, field)[:-1], one)})
        yield Case(f"{field}: {one}", sender, wrong, reason, read=not compact)


def too_many(sender: str, message: Any, field: str, setup: Setup) -> Cases:
    """Count more users than there are; in the paper wire that is only a number that is never reached."""
    if setup.wire == "compact":
        yield from (case._replace(read=False) for case in entries(sender, message, field, USERS + 1, 255))


def iterations(sender: str, message: Any, *wrong: int) -> Cases:
    for iteration in wrong:
        if iteration >= 0:
            other = changed(message, iteration=iteration)
            yield Case(f"{type(message).__name__} of iteration {iteration}", sender, other, Reason.WRONG_ITERATION)


def kinds(senders: list[str], reason: Reason, scheme: str, expected: tuple[type, ...]) -> Cases:
    """Send every kind of the scheme except those that the role may receive."""
    key, rows, words = bytes(32), np.ones((1, DIM), np.float32), np.ones((1, DIM), np.uint32)
    samples = [
        Join(u32(0)),
        Welcome(u32(1), key, (key,)),
        WelcomeInFull(u32(1), rows),
        OpenSum(0, u32(0), u32(0), u32(1)),
        ItemFactors(0, u32(1), rows),
        ItemFactorsInFull(0, u32(1), rows, words, rows),
        Gradient(0, rows),
        MaskedGradient(0, u32(0), words),
        Contributors(0, u32(0), u32(1), key),
        Agreed(0, key),
        MaskedTotal(0, u32(0), words),
        Finish(0),
        Publication(T, rows),
    ]
    for sample in samples:
        if type(sample).__name__ in KINDS[scheme] and not isinstance(sample, expected):
            for sender in senders:
                yield Case(f"{type(sample).__name__} from {sender}", sender, sample, reason)


def from_others(senders: list[str], *messages: Any) -> Cases:
    for sender in senders:
        for message in messages:
            yield Case(f"{type(message).__name__} from {sender}", sender, message, Reason.UNKNOWN_SENDER)


# --- faults by state: the party has heard the first `k` messages of `truth` --------------------------------------


def for_masked_user(k: int, truth: Truth, setup: Setup) -> Cases:
    welcome, *offers, published, finish = [message for _, message in truth]
    expected = (type(welcome), type(offers[0]), Publication, Finish)
    yield from kinds([RECOMMENDER], Reason.WRONG_KIND, "masked", expected)
    yield from from_others([THIRD_PARTY, "user:0", STRANGER], welcome, *offers)
    yield from end_faults(k == 2 + T, published, finish, [THIRD_PARTY, "user:0", STRANGER])
    if k == 0:
        yield from lengths(RECOMMENDER, welcome, "floors")
        yield from entries(RECOMMENDER, welcome, "floors", 0)
        yield from too_many(RECOMMENDER, welcome, "floors", setup)
        for offer in offers:
            yield Case("factors before the welcome", RECOMMENDER, offer, Reason.WRONG_KIND)
        if setup.wire == "compact":
            yield from lengths(RECOMMENDER, welcome, "item_keys")
        else:
            yield from lengths(RECOMMENDER, welcome, "envelopes")
            yield from entries(RECOMMENDER, welcome, "envelopes", 0.0, -0.5, 37.5, np.nan, np.inf)
            yield Case("hardly any noise", RECOMMENDER, changed(welcome, envelopes=faint(welcome)), Reason.OUT_OF_RANGE)
        return
    yield Case("a second welcome", RECOMMENDER, welcome, Reason.WRONG_KIND)
    yield Case("another welcome", RECOMMENDER, changed(welcome, floors=welcome.floors + 1), Reason.WRONG_KIND)
    for offer in offers[: k - 1]:
        yield Case("factors that were answered", RECOMMENDER, offer, Reason.WRONG_ITERATION)
        other = changed(offer, factors=offer.factors + 1)
        yield Case("other factors for an answered iteration", RECOMMENDER, other, Reason.WRONG_ITERATION)
    yield from iterations(RECOMMENDER, offers[-1], T, T + 1, HUGE)
    if k <= T:
        due = offers[k - 1]
        yield from lengths(RECOMMENDER, due, "floors", "factors")
        yield from entries(RECOMMENDER, due, "floors", 0)
        yield from too_many(RECOMMENDER, due, "floors", setup)
        yield from entries(RECOMMENDER, due, "factors", 2.0**61, -(2.0**61), np.nan, np.inf, -np.inf)
        # γ = 1/32, max|r| = 5, b = √2, q < 50 b: a step adds less than (2·5 + √2·50·√2) / 32 = 3.4 to a length of 1
        beyond = 1.01 if k == 1 else 4.5
        yield from entries(RECOMMENDER, due, "factors", beyond, -beyond)
        yield from entries(RECOMMENDER, due, "floors", due.floors[-1] - 1, USERS)
        if setup.wire == "paper":
            yield from lengths(RECOMMENDER, due, "masks", "envelopes")
            yield from entries(RECOMMENDER, due, "envelopes", 0.0, -0.5, 37.5, np.nan)
            yield Case("hardly any noise", RECOMMENDER, changed(due, envelopes=faint(due)), Reason.OUT_OF_RANGE)
            yield from entries(RECOMMENDER, due, "floors", 65536)


def faint(message: Any) -> Any:
    """Scale the first row of envelopes down, so far that no Exp(1) values are so small together."""
    wrong = message.envelopes.copy()
    wrong[0] *= np.float32(1e-9)
    return wrong


def end_faults(is_published: bool, published: Any, finish: Any, others: list[str]) -> Cases:
    """Break what comes after the last iteration, for any user: one publication, then one end."""
    yield from from_others(others, published, finish)
    yield from iterations(RECOMMENDER, finish, 0, T - 1, T + 1, HUGE)
    yield from iterations(RECOMMENDER, published, 0, T - 1, T + 1, HUGE)
    if is_published:
        yield Case("a second publication", RECOMMENDER, published, Reason.DUPLICATE)
        other = changed(published, factors=published.factors + 1)
        yield Case("another publication", RECOMMENDER, other, Reason.DUPLICATE)
        return
    yield Case("the end before anything was published", RECOMMENDER, finish, Reason.WRONG_KIND)
    yield from lengths(RECOMMENDER, published, "factors")
    yield from entries(RECOMMENDER, published, "factors", 2.0**61, -(2.0**61), np.nan, np.inf, -np.inf)


def for_masked_recommender(k: int, truth: Truth, setup: Setup) -> Cases:
    joins, rounds = truth[:USERS], [message for _, message in truth[USERS:]]
    yield from kinds([THIRD_PARTY, "user:0"], Reason.WRONG_KIND, "masked", (Join, Contributors, MaskedTotal))
    yield from from_others(["user:0", STRANGER], *rounds)
    yield from join_faults(k, joins, setup)
    if k < USERS:
        yield from iterations(THIRD_PARTY, rounds[0], 0, 1, HUGE)
        yield from iterations(THIRD_PARTY, rounds[1], 0, 1, HUGE)
        return
    now, awaits_total = divmod(k - USERS, 2)  # the iteration, and whether its contributors are agreed
    for message in rounds[:2]:
        yield from iterations(THIRD_PARTY, message, *({*range(T), T + 1, HUGE} - {now}))
    announced, total = rounds[2 * now : 2 * now + 2]
    if not awaits_total:
        yield Case("a total before the contributors", THIRD_PARTY, total, Reason.WRONG_KIND)
        yield from lengths(THIRD_PARTY, announced, "counts")
        yield from disorder(THIRD_PARTY, announced, "users", setup)
        yield from too_many(THIRD_PARTY, announced, "counts", setup)
        return
    yield Case("contributors twice", THIRD_PARTY, announced, Reason.WRONG_KIND)
    yield Case("other contributors", THIRD_PARTY, changed(announced, users=u32(0)), Reason.WRONG_KIND)
    yield from lengths(THIRD_PARTY, total, "values")
    yield from disorder(THIRD_PARTY, total, "items", setup)
    yield from too_far(THIRD_PARTY, total, "items", setup)
    for fault, items in {
        "one released item is missing": total.items[:-1],
        "no item at all": total.items[:0],
        "an item below its floor": u32(*total.items, BELOW_FLOOR),
        "an item that nobody rated": u32(*total.items, UNRATED),
        "another item instead": u32(*total.items[:-1], BELOW_FLOOR),
    }.items():
        wrong = changed(total, items=items, values=np.ones((len(items), DIM), total.values.dtype))
        yield Case(fault, THIRD_PARTY, wrong, Reason.UNKNOWN_ITEM)


def join_faults(k: int, joins: Truth, setup: Setup) -> Cases:
    """Break a Join, for either recommender."""
    yield from from_others([THIRD_PARTY, STRANGER, f"user:{USERS}"], joins[0][1])
    again = Reason.DUPLICATE if k < USERS else Reason.WRONG_KIND
    for sender, join in joins[:k]:
        yield Case(f"{sender} joins again", sender, join, again)
        yield Case(f"{sender} joins with other items", sender, changed(join, items=u32(0)), again)
    for sender, join in joins[k : k + 1]:
        yield Case("no items", sender, changed(join, items=u32()), Reason.WRONG_LENGTH)
        yield from too_far(sender, join, "items", setup)
        yield from disorder(sender, join, "items", setup)


def for_third_party(k: int, truth: Truth, setup: Setup) -> Cases:
    # the state of the third party, from what it has heard
    now, opened, answered = 0, False, set()
    for sender, message in truth[:k]:
        if isinstance(message, OpenSum):
            opened = True
        elif isinstance(message, MaskedGradient):
            answered.add(sender)
        elif isinstance(message, Agreed):
            now, opened, answered = now + 1, False, set()
    closed = opened and len(answered) == USERS
    at = min(now, T - 1)
    those = [(sender, message) for sender, message in truth if message.iteration == at]
    [opening] = [message for _, message in those if isinstance(message, OpenSum)]
    [agreed] = [message for _, message in those if isinstance(message, Agreed)]
    gradients = {sender: message for sender, message in those if isinstance(message, MaskedGradient)}
    others = {*range(T), T + 1, HUGE} - {now}

    yield from kinds([RECOMMENDER, "user:0"], Reason.WRONG_KIND, "masked", (OpenSum, MaskedGradient, Agreed, Finish))
    yield from from_others(["user:0", STRANGER], opening, agreed, Finish(T))
    yield from from_others([RECOMMENDER, STRANGER, f"user:{USERS}"], *gradients.values())

    for sender, gradient in gradients.items():
        yield from iterations(sender, gradient, *others)
        if closed:
            yield Case(f"{sender} is too late", sender, gradient, Reason.WRONG_ITERATION)
        elif sender in answered:
            yield Case(f"{sender} answers again", sender, gradient, Reason.DUPLICATE)
            different = changed(gradient, values=gradient.values + gradient.values.dtype.type(1))
            yield Case(f"{sender} answers differently", sender, different, Reason.DUPLICATE)
        elif now < T:
            yield from lengths(sender, gradient, "values")
            yield from disorder(sender, gradient, "items", setup)
            yield from too_far(sender, gradient, "items", setup)
            if opened:
                unopened = changed(gradient, items=u32(*gradient.items[:-1], UNRATED))
                yield Case("an item that was not opened", sender, unopened, Reason.UNKNOWN_ITEM)

    if opened:
        yield Case("opened again", RECOMMENDER, opening, Reason.WRONG_KIND)
        yield Case("the next one opened", RECOMMENDER, changed(opening, iteration=now + 1), Reason.WRONG_KIND)
        yield Case("the end in the middle", RECOMMENDER, Finish(T), Reason.WRONG_KIND)
        yield Case("a wrong end in the middle", RECOMMENDER, Finish(now), Reason.WRONG_KIND)
    else:
        yield from iterations(RECOMMENDER, opening, *others)
        yield from iterations(RECOMMENDER, Finish(T), *({*range(T + 2), HUGE} - ({T} if now == T else set())))
    if not opened and now < T:
        yield from lengths(RECOMMENDER, opening, "floors")
        yield from entries(RECOMMENDER, opening, "floors", 0)
        yield from too_many(RECOMMENDER, opening, "floors", setup)
        for field in ("users", "items"):
            yield from disorder(RECOMMENDER, opening, field, setup)
            yield from too_far(RECOMMENDER, opening, field, setup)

    if closed:
        yield from iterations(RECOMMENDER, agreed, *others)
    else:
        yield Case("agreed before it was closed", RECOMMENDER, agreed, Reason.WRONG_KIND)
        earlier = changed(agreed, iteration=max(0, now - 1))
        yield Case("the last one agreed again", RECOMMENDER, earlier, Reason.WRONG_KIND)


def for_plain_user(k: int, truth: Truth, setup: Setup) -> Cases:
    *offers, published, finish = [message for _, message in truth]
    yield from kinds([RECOMMENDER, "user:0"], Reason.WRONG_KIND, "plain", (ItemFactors, Publication, Finish))
    yield from from_others(["user:0", STRANGER], *offers)
    yield from end_faults(k == T + 1, published, finish, ["user:0", STRANGER])
    yield from iterations(RECOMMENDER, offers[-1], *range(min(k, T)), T, T + 1, HUGE)
    for offer in offers[:k]:
        other = changed(offer, factors=offer.factors + 1)
        yield Case("other factors for an answered iteration", RECOMMENDER, other, Reason.WRONG_ITERATION)
    if k < T:
        yield from lengths(RECOMMENDER, offers[k], "factors")
        yield from entries(RECOMMENDER, offers[k], "factors", 2.0**61, -(2.0**61), np.nan, np.inf, -np.inf)
        floors = changed(offers[k], floors=u32(*[1] * len(offers[k].factors)))
        yield Case("floors where nothing is shared", RECOMMENDER, floors, Reason.WRONG_LENGTH)


def for_plain_recommender(k: int, truth: Truth, setup: Setup) -> Cases:
    joins = truth[:USERS]
    yield from kinds(["user:0", STRANGER], Reason.WRONG_KIND, "plain", (Join, Gradient))
    yield from join_faults(k, joins, setup)
    first = truth[USERS][1]
    yield from from_others([STRANGER, f"user:{USERS}", THIRD_PARTY], first)
    if k < USERS:
        yield from from_others([sender for sender, _ in joins[k:]], first)
        for sender, _ in joins[:k]:
            yield from iterations(sender, first, 0, 1, HUGE)
        return
    now, answers = divmod(k - USERS, USERS)
    this = truth[USERS * (1 + now) : USERS * (2 + now)]
    for sender in NAMES:
        yield from iterations(sender, first, *({*range(T), T + 1, HUGE} - {now}))
    for sender, gradient in this[:answers]:
        yield Case(f"{sender} answers again", sender, gradient, Reason.DUPLICATE)
        different = changed(gradient, values=gradient.values / 2)
        yield Case(f"{sender} answers differently", sender, different, Reason.DUPLICATE)
    clip = 3 * 4.0  # C = 32 b + 3 Δ; no noise, ratings from 1 to 5
    for sender, gradient in this[answers:]:
        yield from lengths(sender, gradient, "values")
        yield from entries(sender, gradient, "values", 2.1 * clip, -2.1 * clip, np.nan, np.inf)


def frame_faults(stage: Stage, party: str, peer: str) -> Iterator[tuple[str, bytes, Reason]]:
    """Make frames that are no message or that the session refuses, from a peer that has said Hello."""
    number = stage.number(peer, party)
    sound = stage.codec.encode(Finish(0), number)
    yield "garbage", b"\xc1", Reason.MALFORMED
    yield "nothing", b"", Reason.MALFORMED
    yield "a byte too many", sound[:-32] + b"\x00" + sound[-32:], Reason.MALFORMED
    yield "no head", sound[:-32], Reason.MALFORMED
    yield "Again with a number", stage.codec.encode(Again(0, 1), number), Reason.MALFORMED
    yield "the kind in two bytes", sound[:1] + b"\xcc" + sound[1:], Reason.NOT_CANONICAL
    yield "too large", bytes(stage.codec.max_frame + 1), Reason.OVERSIZED
    yield "a number too far", stage.codec.encode(Finish(0), number + 1), Reason.GAP
    yield "the last frame again", stage.last_frame[peer, party], Reason.REPLAYED
    yield "another last frame", stage.codec.encode(Finish(HUGE), number - 1), Reason.CONFLICT
    yield "the last frame with another head", stage.last_frame[peer, party][:-32] + b"\x01" * 32, Reason.CONFLICT
    hello = Hello(WIRE_VERSION, stage.card.run_id, stage.card.params_digest)
    yield "a second Hello", stage.codec.encode(hello, number), Reason.WRONG_KIND
