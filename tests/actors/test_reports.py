"""The messages between the launcher and its processes: each travels and comes back, and what is none is refused."""

from __future__ import annotations

from typing import Any

import pytest

from actors.launch import reports
from actors.launch.reports import Failed, Happens, Quit, Waits, read, write
from actors.pipes import pack, unpack
from protocol.errors import Aborted, BadInput, Bug, Reason, SchemeFailed
from protocol.party.view import Broken

MADE: dict[type, Any] = {
    int: 3,
    str: "user:3",
    bool: True,
    float: 0.5,
    list: ["a", 1],
    dict: {"a": 1},
    type(None): None,
}
VARIANTS = [(cls, at) for cls in reports._CLASSES.values() for at in range(2)]


@pytest.mark.parametrize(("cls", "at"), VARIANTS, ids=lambda value: getattr(value, "__name__", value))
def test_every_message_comes_back_as_it_was_sent(cls, at):
    """With a value of the first or the last class that each field may have."""
    message = cls(*(MADE[takes[-at]] for takes in reports._TAKES[cls.__name__]))
    assert read(unpack(pack(write(message)))) == message
    assert type(read(unpack(pack(write(message))))) is cls


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        {},
        "Quit",
        [None],
        [["Quit"]],
        ["Sail"],
        ["NamedTuple"],
        ["Quit", 1],
        ["Happens", "user:1", "Churn"],
        ["Happens", "user:1", "Churn", "fields"],
        ["Happens", "user:1", 7, []],
        ["Waits", "user:1", 3, 1, ["user:1"], 0],
        ["Finished", "recommender", 1, "soon", 0, 0, {}, []],
    ],
    ids=repr,
)
def test_what_is_no_message_is_a_bug(values):
    with pytest.raises(Bug, match="A process of the run sent"):
        read(values)


def test_the_fields_are_those_that_a_reader_names():
    assert read(["Happens", "user:1", "Churn", [0, True]]) == Happens("user:1", "Churn", [0, True])
    assert read(["Finished", "recommender", -1, None, 0, 0, {}, []]).seconds is None
    assert read(["Waits", "recommender", 3, True, [], 0]) == Waits("recommender", 3, True, [], 0)
    assert isinstance(read(["Quit"]), Quit) and write(Quit()) == ["Quit"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Aborted(Reason.DISK_FULL, "views/user-3.view"), 5),
        (SchemeFailed("user:3: ValueError", "Traceback"), 2),
        (BadInput("Choose another port."), 2),
        (Bug("recommender failed"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_raised_again_where_its_report_is_read(error, code):
    failed = Failed.of("user:3", error)
    again = read(write(failed)).error()
    assert type(again) is type(error) and str(again) == str(error) and failed.exit_code == code
    assert getattr(again, "trace", None) == getattr(error, "trace", None)


def test_a_view_that_is_broken_is_named_by_its_party():
    failed = Failed.of("user:3", Broken("record 7 is cut off"))
    assert isinstance(failed.error(), Broken) and str(failed.error()) == "user:3: record 7 is cut off"
    assert failed.exit_code == 4
    assert str(Failed.of("user:3", Aborted(Reason.STALLED)).error()).endswith("(user:3)")
