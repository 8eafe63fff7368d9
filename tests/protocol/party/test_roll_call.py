"""The roll call alone: what users say between two iterations, and when an iteration may begin."""

from __future__ import annotations

import pytest

from protocol.errors import Reason, Rejected
from protocol.schemes.factorization.machines.roll_call import OUTSIDE, RollCall


def refused(roll: RollCall, user: int, arrives: bool) -> bool:
    before = {name: repr(value) for name, value in vars(roll).items()}
    with pytest.raises(Rejected) as found:
        roll.answer(user, arrives)
    assert before == {name: repr(value) for name, value in vars(roll).items()}
    return found.value.reason is Reason.DUPLICATE


def test_a_roll_is_complete_once_all_that_are_due_have_spoken_or_are_gone():
    roll = RollCall()
    roll.answer(0, True)  # before it is due
    assert not roll.complete and roll.awaited() == [OUTSIDE]
    assert roll.due(0, (0, 1, 2, 3))
    assert roll.awaited() == ["user:1", "user:2", "user:3"]
    roll.answer(1, True)
    roll.answer(2, True)
    roll.lose(3)
    roll.lose(2)  # it had come
    assert roll.complete and roll.online == set()
    roll.close()
    assert roll.online == {0, 1} and not roll.complete and roll.awaited() == [OUTSIDE]


def test_a_user_speaks_once_and_only_of_a_change():
    roll = RollCall()
    assert refused(roll, 0, False)
    roll.answer(0, True)
    assert refused(roll, 0, True) and refused(roll, 0, False)
    assert roll.due(0, ())
    roll.close()
    assert refused(roll, 0, True)
    roll.answer(0, False)


def test_who_is_due_is_told_once_for_an_iteration():
    roll = RollCall()
    assert roll.due(0, (5,)) and not roll.due(0, ())
    assert not roll.complete
    roll.answer(5, True)
    roll.close()
    assert not roll.due(0, ()) and not roll.complete
    assert roll.due(1, ()) and roll.complete


def test_the_facts_are_the_changes_before_the_iteration_that_has_ended():
    roll = RollCall()
    for user in (0, 1, 2):
        roll.answer(user, True)
    roll.due(0, ())
    roll.close()
    assert roll.facts() == {"present": "", "absent": ""}
    roll.answer(1, False)  # before iteration 1, while iteration 0 has just ended
    roll.end()
    assert roll.facts() == {"present": "0-2", "absent": ""}
    roll.due(1, ())
    roll.close()
    assert roll.facts() == {"present": "0-2", "absent": ""}
    roll.end()
    assert roll.facts() == {"present": "", "absent": "1"}
