"""Play thousands of repetitions of a canary of a factorization, and keep what an adversary sees of each.

The record is what an adversary of differential privacy knows: everything but one rating and the noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arithmetic.tape import derive, exponential
from protocol.arrays import Flags, Floats
from protocol.errors import Aborted, Rejected
from protocol.party.role import RECOMMENDER
from protocol.schemes.factorization.static_users import JoiningRecommender, JoiningUser
from protocol.wire.messages import (
    Commit,
    CommitInFull,
    ItemFactorsInFull,
    ItemFactorsWithPieces,
    Message,
    NoiseKeys,
    Welcome,
    WelcomeInFull,
)
from sim.audit.canary import chunks
from sim.audit.canary.canary import WITNESS, CanaryProblem, CannotBeMeasured, Stage, play_canary
from sim.audit.canary.chunks import coins, cut, spread, unheard
from sim.audit.families.factorization.batch import Batch, can_batch, play_batch, publish_batch
from sim.console.progress import Tell

_COLUMNS = (
    "user_factors",
    "item_factors",
    "uploads",
    "rho_envelopes",
    "eta_envelopes",
    "witness_normals",
    "quiet",
)

ITEMS = 4_000  # of a run in which each is a repetition



@dataclass(frozen=True)
class Observed:
    """One row per repetition; columns that do not apply to the roles are empty.

    `greatest` is the truth: only the estimate of the two error rates may read it.
    """

    greatest: Flags
    first_of_run: Flags  # the repetition begins a run; those that follow are items of the same one
    user_factors: Floats  # u_i(0), one column per user
    item_factors: Floats  # v(0) … v(T)
    uploads: Floats  # of user 0 in each iteration, as numbers; ring elements by their signed residue
    rho_envelopes: Floats  # H(t), as dealt to user 1
    eta_envelopes: Floats  # H of the objective noise
    witness_normals: Floats  # user 1's draw for ρ in each iteration
    quiet: Floats  # v(T) with the same tapes without noise, for the least and the greatest rating
    receiver: str  # party that receives the uploads
    masked: bool  # the uploads are ring elements
    seconds: float  # processor time

    def __len__(self) -> int:
        return len(self.greatest)


def dealt_envelopes(messages: Sequence[Message], iterations: int) -> tuple[list[Floats], list[Floats]]:
    """Return (H(t) of ρ in every iteration, H of η) as dealt to a rater, per item: from keys, or as numbers."""
    rho: list[Floats] = []
    eta: list[Floats] = []
    for message in messages:
        if isinstance(message, Welcome):
            rho = [_first(exponential(message.item_keys, 1, "rho", t)) for t in range(iterations)]
            eta = [_first(exponential(message.item_keys, 1, "eta", 0))]
        elif isinstance(message, NoiseKeys):
            eta = [_first(exponential(message.item_keys, 1, "eta", 0))]
        elif isinstance(message, Commit):
            eta = [_first(exponential(message.item_keys, 1, "eta"))]
        elif isinstance(message, (WelcomeInFull, CommitInFull)):
            eta = [_first(message.envelopes)]
        elif isinstance(message, (ItemFactorsInFull, ItemFactorsWithPieces)):
            rho.append(_first(message.envelopes))
    return rho, eta


def _first(rows: npt.NDArray[np.float32]) -> Floats:
    """Return the only coordinate."""
    return rows[:, 0].astype(np.float64)


Row = dict[str, list[float]]  # columns of `Observed` by name, for one repetition; missing ones are empty


def play_once(stage: Stage, seed: bytes, repetition: int, greatest: bool) -> Row:
    """Play a repetition of a factorization with joining users; return everything that its roles show."""
    tapes = stage.tapes(seed, repetition)
    roles = stage.roles(tapes, greatest)
    users = [role for role in roles.values() if isinstance(role, JoiningUser)]
    first = [float(user.user_factors[0]) for user in users]
    played = play_canary(stage, roles)
    iterations = stage.params.iterations
    rho, eta = dealt_envelopes(played.dealt, iterations)
    normals = [float(tapes[WITNESS].normal(1, 1, "rho", t)[0, 0]) for t in range(iterations)] if rho else []
    factors = [float(rows[0, 0]) for rows in played.factors]
    return {
        "user_factors": first,
        "item_factors": factors,
        "uploads": [stage.number(values) for values in played.uploads],
        "rho_envelopes": [float(row[0]) for row in rho],
        "eta_envelopes": [float(row[0]) for row in eta],
        "witness_normals": normals,
    }


def play_thrice(stage: Stage, quiet: Stage, seed: bytes, repetition: int, greatest: bool) -> Row:
    """Play a repetition of any other scheme.

    Returns the published factors, and their values without noise for either rating.
    """
    published = []
    for each, rating in ((stage, greatest), (quiet, False), (quiet, True)):
        played = play_canary(each, each.roles(each.tapes(seed, repetition), rating))
        published.append(float(played.factors[-1][0, 0]))
    return {"item_factors": published[:1], "quiet": published[1:]}


def plays_sums(stage: Stage) -> bool:
    """Tell whether v(t) and v(t+1) give the released sum, and the adversary's knowledge the users' gradients."""
    roles = stage.roles(stage.tapes(bytes(32), 0), False)
    users = [role for party, role in roles.items() if party not in stage.scheme.servers]
    return isinstance(roles[RECOMMENDER], JoiningRecommender) and all(isinstance(user, JoiningUser) for user in users)


def play_chunk(problem: CanaryProblem, seed: bytes, first: int, count: int) -> Observed:
    """Play repetitions first … first + count − 1; the result does not depend on the process."""
    began = time.process_time()
    run_id, greatest = derive(seed, "run"), coins(seed, first, count)
    stage, together = Stage(problem, run_id), can_batch(problem)
    try:
        sums = plays_sums(stage)
        if together:
            stage = batch = Batch(problem, run_id, greatest)
            held = (
                play_batch(batch, seed, first, dealt_envelopes)
                if sums
                else publish_batch(batch, _without_noise(problem), seed, first)
            )
        else:
            quiet = None if sums else Stage(_without_noise(problem), run_id)
            rows = [
                play_once(stage, seed, first + place, bool(coin))
                if quiet is None
                else play_thrice(stage, quiet, seed, first + place, bool(coin))
                for place, coin in enumerate(greatest)
            ]
            held = {name: np.array([row.get(name, []) for row in rows], np.float64) for name in _COLUMNS}
    except (Rejected, Aborted) as error:
        raise CannotBeMeasured(f"{problem.scheme.name} cannot be measured: its canary ended with {error}.") from error
    empty = np.zeros((count, 0))
    return Observed(
        greatest=greatest,
        first_of_run=np.arange(count) == 0 if together else np.ones(count, np.bool_),
        receiver=stage.receiver,
        masked=stage.masked,
        seconds=time.process_time() - began,
        **{name: held.get(name, empty) for name in _COLUMNS},
    )


def _without_noise(problem: CanaryProblem) -> CanaryProblem:
    if problem.quiet is None:
        name = problem.scheme.name
        raise CannotBeMeasured(f"{name} cannot be measured: it does not run without noise, so nothing foretells it.")
    return CanaryProblem(problem.scheme, problem.quiet)


Work = tuple[CanaryProblem, bytes, int]  # a problem, the seed of its tapes, the number of repetitions


def repeat(
    work: Sequence[Work], workers: int | None = None, tell: Tell = unheard, played: dict[Any, Any] | None = None
) -> list[Observed]:
    """Play the repetitions of each problem, with a coin for each; the result does not depend on `workers`."""
    slow = sum(repetitions for problem, _, repetitions in work if not can_batch(problem))
    workers = workers if slow >= chunks.WORTH_A_PROCESS else 1
    those = [cut(*one, size=ITEMS if can_batch(one[0]) else chunks.CHUNK) for one in work]
    return [_joined(parts) for parts in spread(play_chunk, those, workers, tell, played)]


def _joined(parts: Sequence[Observed]) -> Observed:
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("greatest", "first_of_run", *_COLUMNS)
    }
    seconds = sum(part.seconds for part in parts)
    return Observed(receiver=parts[0].receiver, masked=parts[0].masked, seconds=seconds, **columns)
