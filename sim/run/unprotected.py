"""The reference for the cost of protection: the accuracy on the same data and seed without it."""

from __future__ import annotations

from actors.metering.accuracy import Accuracy
from actors.metering.observer import Observer
from protocol.card import Card, all_parties, make_run_id
from protocol.params import Params
from protocol.schemes import Scheme
from sim.drivers.inprocess import InProcess
from sim.plan.plan import Plan
from sim.run.baseline import plain_accuracy


def unprotected_accuracy(plan: Plan, reached: Accuracy) -> Accuracy:
    """Measure the accuracy of `plain`, or of the same pipeline without protection if the scheme does not factorize.

    `reached` is the accuracy of the run itself, which is the result if that had no protection to remove.
    """
    if plan.card.scheme.factorizes:
        return with_factors(plan, 32)
    scheme, params = plan.card.scheme.unprotected(plan.card.params)
    if params == plan.card.params:
        return reached
    return _carried_out(plan, scheme, params)


def with_factors(plan: Plan, bits: int) -> Accuracy:
    """Measure the accuracy of `plain` where users receive factors of `bits` bits."""
    return plain_accuracy(plan.card.params, plan.data, plan.run_seed, plan.churn(), bits)


def _carried_out(plan: Plan, scheme: Scheme, params: Params) -> Accuracy:
    """Run the roles themselves, all in this process, and keep only how well users predict."""
    run_id = make_run_id(params, all_parties(scheme, params.n_users), plan.nonce)
    card = Card(scheme, params, run_id, plan.card.simulation)
    there = set(all_parties(scheme, params.n_users))  # this scheme may need fewer servers
    seats = [seat for seat in plan.seats() if seat.party in there]
    observer = observer_of(params)
    outcome = InProcess(card, seats, observer=observer, held_out=plan.held_out()).run()
    if outcome.abort is not None:
        raise outcome.abort
    return observer.accuracy()


def observer_of(params: Params) -> Observer:
    """Make the observer of a run in one process."""
    return Observer.in_memory(params.n_users, params.n_items, params.dim, params.rating_range)
