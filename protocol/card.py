"""Make a `Party` from a run's parameters and the party's own material, in the same way for every driver."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import msgpack

from protocol.arithmetic.ring import Ring
from protocol.arithmetic.tape import Tape, derive
from protocol.errors import during
from protocol.freeze import state_of
from protocol.params import Params
from protocol.party.party import Party
from protocol.party.role import Role, UserInput, user_name
from protocol.party.signing import Signer
from protocol.party.view import Header, ViewWriter
from protocol.schemes.base import Scheme, Setting
from protocol.wire.codec import Codec


@dataclass(frozen=True)
class Card:
    """The description of a run that every party receives."""

    scheme: Scheme
    params: Params
    run_id: bytes
    simulation: bool  # the seed was given by a person, so masks repeat
    cheat: str = ""  # `PARTY:KIND`: that party cheats, as the person asked

    # the following are made once and shared by the parties of a process: their state cannot change a result

    @functools.cached_property
    def codec(self) -> Codec:
        return self.scheme.make_codec(self.params)

    @functools.cached_property
    def params_digest(self) -> bytes:
        return self.params.digest()

    @functools.cached_property
    def setting(self) -> Setting:
        return Setting(self.params, self.run_id, Ring(self.params.ring_bits, self.params.ring_is_prime))

    def make_role(self, party: str, setting: Setting, tape: Tape, inputs: UserInput | None) -> Role:
        """Make the role of `party`, which cheats if this run has a cheat of that party."""
        role = self.scheme.make_role(party, setting, tape, inputs)
        if not self.cheat:
            return role
        from protocol.cheats.cheat import stand_in  # an honest run needs none of it

        return stand_in(self.cheat, party, role, tape)


@dataclass(frozen=True, slots=True)
class Seat:
    """The material that one party alone holds."""

    party: str
    tape_seed: bytes
    inputs: UserInput | None = None
    signer: Signer | None = None  # signs its view

    def __repr__(self) -> str:
        return f"Seat({self.party}, redacted)"


def all_parties(scheme: Scheme, n_users: int) -> list[str]:
    return [*scheme.servers, *(user_name(user) for user in range(n_users))]


def make_run_id(params: Params, parties: list[str], nonce: bytes) -> bytes:
    """Hash `params`, `parties` and a 32-byte `nonce`, which is random, or derived from the seed of a simulation."""
    return hashlib.sha256(msgpack.packb(["run", params.digest(), parties, nonce])).digest()


def tape_seed(run_seed: bytes, party: str) -> bytes:
    return derive(run_seed, "tape", party)


def seat_party(card: Card, seat: Seat, with_view: bool) -> tuple[Party, bytes]:
    """Make the party of `seat`, and the first bytes of its view (empty unless `with_view`)."""
    card.setting.envelopes.sharers += seat.inputs is not None
    with during(seat.party, "when its role was made"):
        role = card.make_role(seat.party, card.setting, Tape(seat.tape_seed), seat.inputs)
    view = ViewWriter() if with_view else None
    party = Party(seat.party, role, card.codec, card.run_id, card.params_digest, view, seat.signer)
    if view is None:
        return party, b""
    party.state_of = state_of
    signer = seat.signer.public if seat.signer else b""
    header = Header(card.run_id, seat.party, card.scheme.name, card.params_digest, card.simulation, signer)
    return party, view.opening(header, _view_inputs(seat))


def _view_inputs(seat: Seat) -> dict[str, Any]:
    inputs: dict[str, Any] = {"tape_seed": seat.tape_seed}
    if seat.inputs is not None:
        inputs["items"] = seat.inputs.items.astype("<u4").tobytes()
        inputs["ratings"] = seat.inputs.ratings.astype("<f8").tobytes()
    return inputs
