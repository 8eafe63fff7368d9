"""Rules about the house: imports go one way between the rooms, none is crowded, no file is long, no name means two."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from house import crowded, cycles, graph_of, homonyms, imports_of, lines, modules_of, shared_classes

ROOT = Path(__file__).parents[2]
MOST_MODULES, MOST_LINES = 14, 450

# from below to above: a module imports from its own row and from those before it
ORDER = (
    ("protocol.errors", "protocol.arrays"),
    ("protocol.arithmetic",),
    ("protocol.params", "protocol.attendance"),
    ("protocol.wire",),
    ("protocol.party",),
    ("protocol.schemes",),
    ("protocol",),  # card, freeze
    ("actors.capacity", "actors.journal", "actors.own_scheme", "actors.blame"),
    ("actors.transport",),
    ("actors.metering", "actors.launch.reports"),
    ("actors",),  # the process of a party
    ("actors.crowd",),
    ("actors.launch",),
    ("sim.foreign",),
    ("sim.console",),
    ("sim.data",),
    ("sim.plan",),
    ("sim.folder",),
    ("sim.drivers",),
    ("sim.run",),
    ("sim.views",),
    ("sim.bandwidth",),
    ("sim.audit",),
    ("sim.runs",),
    ("sim.tables",),
    ("sim.report",),
    ("sim.experiments",),
    ("sim.notebook",),
    ("sim.api",),
    ("sim.cli",),
    ("sim",),  # python -m sim
)
ROWS = {room: row for row, rooms in enumerate(ORDER) for room in rooms}


def row_of(module: str) -> int:
    """Find the row of the room that a module is in: the longest name that it begins with."""
    while module not in ROWS:
        module = module.rpartition(".")[0]
    return ROWS[module]


@pytest.fixture(scope="module")
def modules():
    return modules_of(ROOT)


@pytest.fixture(scope="module")
def graph(modules):
    return graph_of(modules)


def upward(graph) -> list[str]:
    pairs = ((one, other) for one, others in graph.items() for other in others)
    return sorted(f"{one} -> {other}" for one, other in pairs if row_of(other) > row_of(one))


def test_imports_between_rooms_go_one_way(graph):
    assert len(graph) > 300 and upward(graph) == []


def test_no_module_imports_itself_by_a_detour(graph):
    assert cycles(graph) == []


def test_no_folder_is_crowded(modules):
    assert crowded(modules | modules_of(ROOT, ["tests"]), MOST_MODULES) == {}


def test_no_file_is_too_long(modules):
    assert {name: lines(path) for name, path in modules.items() if lines(path) > MOST_LINES} == {}


def test_no_name_is_that_of_two_modules(modules):
    assert homonyms(modules) == {} and shared_classes(modules) == {}


def test_a_slip_would_be_found(tmp_path):
    """Each rule against something that breaks it."""
    assert upward({"sim.audit.audit": {"sim.report.page"}, "sim.cli.app": {"protocol.errors"}}) == [
        "sim.audit.audit -> sim.report.page"
    ]
    assert upward({"protocol.wire.codec": {"protocol.schemes.base"}}) and upward({"actors.host": {"sim.api"}})
    knot = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert cycles(knot) == [["b", "c"]] and cycles({"a": {"b"}, "b": set()}) == []
    lazy = ast.parse("if TYPE_CHECKING:\n    import m.a\ndef f():\n    from m import b\n    from m.c import d")
    assert imports_of(lazy, ["m", "m.a", "m.b", "m.c"]) == {"m.b", "m.c"}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text("class Same: ...\nclass _Own: ...\n")
    found = modules_of(tmp_path, ["one", "two"])
    assert homonyms(found) == {"same": ["one.same", "two.same"]} and crowded(found, 0)
    assert shared_classes(found) == {"Same": ["one.same", "two.same"]}
