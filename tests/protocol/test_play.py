"""The whole protocol without frames: the same item factors as a run in which every message is one."""

from __future__ import annotations

import numpy as np
import pytest
from support.basics import small_run
from support.runs import factors_of

from protocol.everyone_online import everyone_stays, takes_presence
from protocol.party.role import RECOMMENDER, Done, Role, Send
from protocol.play import make_roles, play
from protocol.schemes import SCHEMES
from protocol.wire.messages import Churn, Due, Join


def acts_of(card, seats):
    events = everyone_stays(card.params.n_users) if takes_presence(card.scheme) else lambda iteration: []
    return list(play(make_roles(card, seats), events))


def result_of(acts, party=RECOMMENDER):
    """Return the result of the party; it ends once."""
    [done] = [effect for name, _, _, effects in acts if name == party for effect in effects if isinstance(effect, Done)]
    return done.result


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("wire", ["compact", "paper"])
def test_every_scheme_ends_with_the_factors_of_its_run(name, wire):
    if wire == "paper" and "wire" not in SCHEMES[name].flags:
        pytest.skip("it has one wire form")
    card, seats = small_run(name, wire=wire)
    acts = acts_of(card, seats)
    assert result_of(acts).tobytes() == factors_of(card, seats).tobytes()
    for seat in seats:
        result_of(acts, seat.party)


def test_every_party_starts_and_every_message_is_received_once_in_the_order_of_sending():
    acts = acts_of(*small_run("masked"))
    started = [party for party, _, given, _ in acts if given is None]
    assert sorted(started) == ["recommender", "third_party", *(f"user:{user}" for user in range(4))]
    sent = [(party, e.to, e.message) for party, _, _, effects in acts for e in effects if isinstance(e, Send)]
    received = [(sender, party, given) for party, sender, given, _ in acts if sender is not None]
    assert len(received) == len(sent) > 40
    assert all(one[:2] == other[:2] and one[2] is other[2] for one, other in zip(sent, received, strict=True))


def test_the_world_speaks_before_the_first_message_and_as_each_iteration_begins():
    acts = acts_of(*small_run("dynamic"))
    told = [(party, given) for party, sender, given, _ in acts if sender is None and given is not None]
    arrive = [(f"user:{user}", Churn(0, True)) for user in range(4)]
    dues = [(RECOMMENDER, Due(0, (0, 1, 2, 3))), (RECOMMENDER, Due(1, ())), (RECOMMENDER, Due(2, ()))]
    assert told == arrive + dues, "and not as it ends"
    first = next(n for n, (_, sender, _, _) in enumerate(acts) if sender is not None)
    assert [given for _, _, given, _ in acts[first - 5 : first]] == [event for _, event in told[:5]]


class Counting(Role):
    """A recommender that is done at the second Join and would count a third."""

    heard = 0

    def receive(self, sender, message):
        self.heard += 1
        self.iteration += 1
        return [Done()] if self.heard == 2 else []


class Joining(Role):
    def start(self):
        return [Send(RECOMMENDER, Join(np.zeros(1, np.uint32)))]

    def receive(self, sender, message):
        raise AssertionError("nothing is sent to it")


def test_nothing_happens_to_a_recommender_that_is_done_but_messages_still_reach_it():
    roles = {RECOMMENDER: Counting(), **{f"user:{user}": Joining() for user in range(3)}}
    asked = []

    def events(iteration):
        asked.append(iteration)
        return []

    acts = list(play(roles, events))
    assert roles[RECOMMENDER].heard == 3 and asked == [0] and len(acts) == 7


def test_the_totals_of_the_example_are_those_of_its_ratings():
    card, seats = small_run("example_shares:Shares", dim=1, iterations=1)
    totals = np.zeros((card.params.n_items, 1))
    for seat in seats:
        if seat.inputs is not None:
            totals[seat.inputs.items, 0] += seat.inputs.ratings
    assert result_of(acts_of(card, seats)).tolist() == totals.tolist()
