"""The plan of a run: everything that a driver needs, made from a configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from actors.metering.observer import HeldOut
from protocol.arithmetic.tape import Tape, derive
from protocol.card import Card, Seat, all_parties, make_run_id, tape_seed
from protocol.errors import BadInput
from protocol.everyone_online import takes_presence
from protocol.params import Params, require
from protocol.party.role import RECOMMENDER, UserInput, role_of, user_index, user_name
from protocol.party.signing import make_signer
from protocol.schemes import Scheme, Shape
from protocol.wire.framing import HANDSHAKE
from sim.data.described_items import describe_items
from sim.data.ratings import Dealt, Ratings, load, split
from sim.plan.churn import ChurnPlan
from sim.plan.config import FLAGS, RunConfig, chosen_views, resolve
from sim.plan.expect import crowd_of, expect
from sim.plan.placement import Demand, Placement, lay_out

NONCE_BYTES = 32
STEPS = (1.0, 0.5, 0.25)
_COUNTED = 100  # iterations; further ones cost about the same
_RECEIVED, _SENT = 90, 140  # bytes in a view beyond a received frame, and for a sent frame


@dataclass(frozen=True, eq=False)
class Plan:
    config: RunConfig  # resolved
    card: Card
    shape: Shape
    data: Dealt
    run_seed: bytes
    nonce: bytes
    notes: list[str]  # sentences for the person
    user_names: tuple[str, ...]  # identifiers in the data, by number
    item_names: tuple[str, ...]
    layout: Placement | None = None  # on this machine, set by `laid_out`
    item_titles: tuple[str, ...] | None = None  # titles in the data, "" for an item without a title

    @property
    def parties(self) -> list[str]:
        return all_parties(self.card.scheme, self.shape.n_users)

    @property
    def views(self) -> frozenset[str]:
        return chosen_views(self.config.views, self.parties)

    def seats(self) -> list[Seat]:
        seats, views = [], self.views
        for party in self.parties:
            user = user_index(party)
            own = UserInput(*self.data.train.of(user)) if user >= 0 else None
            signer = make_signer(self.run_seed, party) if party in views else None
            seats.append(Seat(party, tape_seed(self.run_seed, party), own, signer))
        return seats

    def held_out(self) -> dict[str, HeldOut]:
        kept = self.data.held_out
        return {user_name(user): HeldOut(*kept.of(user)) for user in range(self.shape.n_users)}

    def churn(self) -> ChurnPlan | None:
        """Make a new `ChurnPlan`, which is good for one pass over the iterations.

        None if the users of the scheme do not come and go.
        """
        if not takes_presence(self.card.scheme):
            return None
        assert self.config.join is not None and self.config.leave is not None
        return ChurnPlan(self.shape.n_users, self.config.join, self.config.leave, self.run_seed)

    def laid_out(self) -> Plan:
        """Return this plan with its users placed in processes of this machine; `BadInput` if they do not fit.

        With the transport `inprocess` all parties share one process, so there is no layout.
        """
        if self.config.transport == "inprocess":
            config = dataclasses.replace(self.config, users_per_process=self.config.users_per_process or 1)
            return dataclasses.replace(self, config=config)
        numbers = self.card.params.dim * len(self.data.train.items) // self.shape.n_users
        turns = takes_presence(self.card.scheme)
        demand = Demand(self.shape.n_users, len(self.card.scheme.servers), numbers, turns)
        layout = lay_out(demand, self.config.users_per_process)
        config = dataclasses.replace(self.config, users_per_process=layout.users_per_process)
        return dataclasses.replace(self, config=config, layout=layout, notes=[*self.notes, *layout.notes])

    def view_bytes(self) -> int:
        """Estimate the size of all views from the scheme's byte formula and the expected presence of users."""
        keepers = Counter(role_of(party) for party in self.views)
        kept = {role: number / (self.shape.n_users if role == "user" else 1) for role, number in keepers.items()}
        counted = min(self.card.params.iterations, _COUNTED)
        params, total = dataclasses.replace(self.card.params, iterations=counted), 0.0
        expected = expect(self.card.scheme, params, crowd_of(self.shape), self.config.join, self.config.leave)
        for flow in self.card.scheme.predict(params, expected.course):
            messages, payload, _ = flow.total()
            often = self.card.params.iterations / counted if flow.iteration >= 0 else 1
            if flow.kind != HANDSHAKE:
                total += often * kept.get(flow.receiver, 0) * (payload + _RECEIVED * messages)
                total += often * kept.get(flow.sender, 0) * _SENT * messages
        return int(total)


def run_seed_of(seed: int) -> bytes:
    return hashlib.sha256(f"keyhole run seed {seed}".encode()).digest()


def make_plan(config: RunConfig, nonce: bytes | None = None, simulation: bool | None = None) -> Plan:
    """Make the plan of a run: load and divide its data, and derive its parameters and run id.

    The plan of an earlier run is made again with its `nonce`, and with `simulation` to say whether its seed was given.
    """
    config, scheme, seeded = resolve(config)
    simulation = seeded if simulation is None else simulation
    if os.path.exists(config.data):  # an absolute path is recorded, which is valid in every folder
        config = dataclasses.replace(config, data=os.path.abspath(config.data))
    if config.item_features is not None and os.path.exists(config.item_features):
        config = dataclasses.replace(config, item_features=os.path.abspath(config.item_features))
    assert config.seed is not None
    run_seed = run_seed_of(config.seed)
    ratings = load(config.data, config.rating_range, config.reading())
    if config.users is not None:
        ratings = ratings.first_users(config.users)
    data = split(ratings, config.test_fraction, derive(run_seed, "split"))
    shape, names = shape_of(ratings, data, config.item_features), (ratings.user_names, ratings.item_names)
    params, sentences = scheme.make_params(shape, **settings_of(config, scheme))
    _check_budget(config, scheme, params, shape, run_seed)
    cheats = [] if config.cheat is None else [f"A party cheats: {config.cheat}."]
    notes = [*ratings.notes, *sentences, *cheats]
    if nonce is None:
        nonce = derive(run_seed, "nonce") if simulation else secrets.token_bytes(NONCE_BYTES)
    run_id = make_run_id(params, all_parties(scheme, shape.n_users), nonce)
    card, titles = Card(scheme, params, run_id, simulation, config.cheat or ""), ratings.item_titles
    plan = Plan(config, card, shape, data, run_seed, nonce, notes, *names, item_titles=titles)
    _check_committers(plan)
    return plan


def settings_of(config: RunConfig, scheme: Scheme) -> dict[str, Any]:
    """Collect the settings that the parameters of a run are made of, besides the shape of its data."""
    given = {name: getattr(config, name) for name, flag in FLAGS.items() if flag.seen and flag.takes(scheme)}
    settings = config.options | {name: value for name, value in given.items() if value is not None}
    if "no_rho" in scheme.flags:
        settings["rho"] = settings.get("rho", True) and not config.no_rho
    return settings


def _check_committers(plan: Plan) -> None:
    """Refuse a run in which fewer users are online at the start than the pre-commitment needs."""
    churn, wanted = plan.churn(), plan.card.params.committers
    if churn is not None and (there := int(churn.online(0).sum())) < wanted:
        raise BadInput(
            f"The pre-commitment needs {wanted} users and {there} are online at the start: "
            "raise --join, lower --leave, take more users, or set committers lower (--set committers=2 is the least)."
        )


def _check_budget(config: RunConfig, scheme: Scheme, params: Params, shape: Shape, run_seed: bytes) -> None:
    """Refuse, before anything starts, a run of which the accounted ε is above the budget."""
    if config.budget is None:
        return
    accounted = scheme.account(params, Tape(tape_seed(run_seed, RECOMMENDER)), shape)
    spent, delta = accounted["epsilon"], accounted["delta"]
    require(spent is not None, f"{scheme.name} bounds nothing, so it keeps to no budget: leave --budget out.")
    words = f"This run would spend ε {spent:.4g} at δ {delta:g}, above the budget of {config.budget:g}"
    require(spent <= config.budget, f"{words}: lower --epsilon, or take another scheme (hardened keeps to its ε).")


def shape_of(ratings: Ratings, data: Dealt, item_features: str | None = None) -> Shape:
    """Make the shape of the data, with descriptions of its items if the scheme takes `item_features`."""
    raters = np.bincount(data.train.items, minlength=ratings.n_items)
    sizes = tuple(data.train.counts.tolist())
    grid = step_of(ratings.values, ratings.rating_range)
    described = None if item_features is None else describe_items(ratings, item_features)
    return Shape(ratings.n_users, ratings.n_items, ratings.rating_range, sizes, raters, grid, described)


def step_of(values: npt.NDArray[np.float64], rating_range: tuple[float, float]) -> float | None:
    """Find the step of the grid that all ratings lie on: whole, half or quarter stars; None if there is no such grid.

    The grid begins at the lowest rating of the range, and must also contain the highest.
    """
    all_values = np.append(np.unique(values), rating_range[1]) - rating_range[0]
    return next((step for step in STEPS if not np.any(all_values % step)), None)
