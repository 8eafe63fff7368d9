"""Hostile frames to the schemes that do not factorize: at every moment of a run they are refused and change nothing, or
are accepted as a message that the sender might have sent, or, rarely, end the run."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import Counter

import numpy as np
import pytest
from support.basics import small_ratings, small_run
from support.snapshot import snapshot

from protocol.card import seat_party
from protocol.errors import Rejected
from protocol.schemes import SCHEMES
from sim.drivers.inprocess import InProcess

SETUPS = [
    ("covariance", {}),
    ("covariance", {"predictor": "knn"}),
    ("covariance-masked", {}),
    ("covariance-masked", {"form": "sparse"}),
    ("covariance-masked", {"form": "sparse", "predictor": "knn"}),
    ("hardened", {}),
    ("hardened", {"rounds": 2}),
    ("hardened", {"selected": 9}),
    ("hybrid", {}),
    ("laplace-ratings", {}),
    ("randomized-response", {}),
]
FRAMES = 600  # for each setup


class Rehearsed(InProcess):
    """A run that keeps what reached each party, in order."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.met = {name: [] for name in self.parties}

    def _hand(self, sender, receiver, frame):
        self.met[receiver].append((sender, frame))
        return super()._hand(sender, receiver, frame)


def role_state(party):
    """Take a snapshot of the role alone: a refused frame may use up its number, but must not change the role."""
    held = vars(party.role).items()
    return snapshot([{name: value for name, value in held if name not in ("setting", "params", "tape")}, party.done])


def twisted(chance, codec, frame):
    """Change one field of the message, flip one bit of the frame, or cut its end off."""
    kind = chance.randrange(4)
    if kind == 0:
        at = chance.randrange(len(frame))
        return frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
    if kind == 1:
        return frame[: chance.randrange(len(frame))]
    number, message = codec.decode(frame)
    name = chance.choice([field.name for field in dataclasses.fields(message)])
    value = getattr(message, name)
    if not isinstance(value, np.ndarray):
        changed = value + chance.choice([1, 2, 300]) if isinstance(value, int) else bytes(len(value))
    elif kind == 2:
        changed = value[: len(value) // 2] if chance.random() < 0.5 else np.concatenate([value, value[-1:]])
    else:
        most = np.iinfo(value.dtype).max if value.dtype.kind == "u" else 3e38
        changed = value.copy()
        if changed.size:
            changed[chance.randrange(len(changed))] = chance.choice([0, most, 7])
    try:
        with np.errstate(all="ignore"):
            return codec.encode(dataclasses.replace(message, **{name: changed}), number)
    except Exception:  # the codec refuses to write this message
        return frame[:-1]


@pytest.mark.parametrize(("scheme", "options"), SETUPS)
def test_hostile_frames_are_refused_and_change_nothing(scheme, options, tmp_path):
    given = [{3 * item: stars for item, stars in rated.items()} for rated in small_ratings(4, 5)]
    card, seats = small_run(scheme, n_items=16, ratings=given, **options)
    run = Rehearsed(card, seats, run_folder=str(tmp_path), with_view=frozenset(seat.party for seat in seats))
    assert run.run().abort is None
    chance, told = random.Random(f"{scheme} {options}"), Counter()
    moments = [(seat, at) for seat in seats for at in range(len(run.met[seat.party]))]
    everything = [one for frames in run.met.values() for one in frames]
    shared = {id(one): one for one in (card, card.codec, card.setting, card.params)}
    for seat, at in moments:
        pristine, _ = seat_party(card, seat, with_view=True)
        pristine.start()
        for sender, frame in run.met[seat.party][:at]:
            assert pristine.receive(sender, frame).rejected is None
        state = role_state(pristine)
        for _ in range(-(-FRAMES // len(moments))):
            sender, frame = run.met[seat.party][at] if chance.random() < 0.7 else chance.choice(everything)
            hostile, party = twisted(chance, card.codec, frame), copy.deepcopy(pristine, dict(shared))
            try:
                step = party.receive(sender, hostile)
            except Rejected:
                pytest.fail("a party refuses by what it answers")
            reason = step.rejected.name if step.rejected else "aborted" if step.abort else "taken"
            told[reason] += 1
            if reason not in ("taken", "aborted"):
                assert role_state(party) == state, (reason, seat.party, at)
    # a digest of contributors that the servers do not agree on ends a run, by design: a third of what servers exchange
    aborts = 0.03 if scheme == "hardened" else 0.02
    assert sum(told.values()) >= FRAMES and len(told) >= 5 and told["aborted"] <= aborts * FRAMES, told
    assert told["taken"] < 0.3 * FRAMES, told


def test_every_scheme_is_tried():
    assert {scheme for scheme, _ in SETUPS} == {name for name in SCHEMES if not SCHEMES[name].factorizes}
