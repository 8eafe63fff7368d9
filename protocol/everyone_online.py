"""The events of a run in which every user is online from the first iteration to the last."""

from __future__ import annotations

from protocol.party.role import RECOMMENDER, user_name
from protocol.play import EventsFor
from protocol.schemes import Scheme
from protocol.wire.messages import Churn, Due, Event


def takes_presence(scheme: Scheme) -> bool:
    """Tell whether the users of `scheme` may come and go during a run."""
    return "join" in scheme.flags


def everyone_stays(n_users: int) -> EventsFor:
    def events(iteration: int) -> list[tuple[str, Event]]:
        if iteration:
            return [(RECOMMENDER, Due(iteration, ()))]
        arrive: list[tuple[str, Event]] = [(user_name(user), Churn(0, True)) for user in range(n_users)]
        return [*arrive, (RECOMMENDER, Due(0, tuple(range(n_users))))]

    return events
