"""Rules about the folders: imports between them go one way, none is crowded, no file is long, no name is used twice."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from house import crowded, cycles, graph_of, homonyms, imports_of, lines, modules_of, shared_classes

ROOT = Path(__file__).parents[2]
MOST_MODULES, MOST_LINES = 14, 450

# from the lowest to the highest: a module imports from its own row and from the rows before it
ORDER = (
    ("protocol.errors", "protocol.arrays"),
    ("protocol.arithmetic",),
    ("protocol.params", "protocol.attendance"),
    ("protocol.wire",),
    ("protocol.party",),
    ("protocol.schemes",),
    ("protocol",),  # card, freeze
    ("actors.source_root",),
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
    """Find the row of `module`: that of the longest name in `ROWS` that it begins with."""
    while module not in ROWS:
        module = module.rpartition(".")[0]
    return ROWS[module]


@pytest.fixture(scope="module")
def modules():
    return modules_of(ROOT)


@pytest.fixture(scope="module")
def graph(modules):
    return graph_of(modules)


# what is wholly about some schemes stands here; elsewhere in `sim` every scheme is asked in the same way
OF_SCHEMES = ("sim.audit.families.", "sim.experiments.")


def asks_all_alike(module: str) -> bool:
    return module.startswith("sim.") and not module.startswith(OF_SCHEMES)


def scheme_imports(graph) -> list[str]:
    """Find the imports of the code of single schemes, which stands in folders below `protocol.schemes`."""
    pairs = ((one, other) for one, others in graph.items() if asks_all_alike(one) for other in others)
    return sorted(f"{one} -> {other}" for one, other in pairs if re.match(r"protocol\.schemes\.\w+\.", other))


def family_imports(graph) -> list[str]:
    """Find the imports of the code of single families of the audit; any family is asked through `Family`."""
    pairs = ((one, other) for one, others in graph.items() if asks_all_alike(one) for other in others)
    return sorted(f"{one} -> {other}" for one, other in pairs if re.match(r"sim\.audit\.families\.\w+\.", other))


def scheme_ladders(tree: ast.AST) -> list[str]:
    """Find the checks of the class of a scheme or of its parameters."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2)
    found = (ast.unparse(call) for call in calls)
    return [words for words in found if re.match(r"(isinstance|issubclass)\(.*?(scheme|params|params_class),", words)]


def upward(graph) -> list[str]:
    pairs = ((one, other) for one, others in graph.items() for other in others)
    return sorted(f"{one} -> {other}" for one, other in pairs if row_of(other) > row_of(one))


def test_imports_between_rooms_go_one_way(graph):
    assert len(graph) > 300 and upward(graph) == []


def test_what_is_known_of_single_schemes_stands_with_their_family(modules, graph):
    assert scheme_imports(graph) == [] and family_imports(graph) == []
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules.items() if asks_all_alike(name)}
    assert {name: found for name, tree in trees.items() if (found := scheme_ladders(tree))} == {}


def array_names(tree: ast.Module) -> list[str]:
    """Find the names that a module gives to types of arrays."""
    given = [node for node in tree.body if isinstance(node, ast.Assign)]
    return [ast.unparse(node.targets[0]) for node in given if ast.unparse(node.value).startswith("npt.NDArray[")]


def test_types_of_arrays_are_named_in_one_module(modules):
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules.items()}
    assert len(array_names(trees.pop("protocol.arrays"))) > 10
    assert {name: found for name, tree in trees.items() if (found := array_names(tree))} == {}


def test_no_module_imports_itself_by_a_detour(graph):
    assert cycles(graph) == []


def test_no_folder_is_crowded(modules):
    assert crowded(modules | modules_of(ROOT, ["tests"]), MOST_MODULES) == {}


def test_no_file_is_too_long(modules):
    assert {name: lines(path) for name, path in modules.items() if lines(path) > MOST_LINES} == {}


def test_no_name_is_that_of_two_modules(modules):
    assert homonyms(modules) == {} and shared_classes(modules) == {}


def test_a_slip_would_be_found(tmp_path):
    """Every rule finds an example that breaks it."""
    assert upward({"sim.audit.audit": {"sim.report.page"}, "sim.cli.app": {"protocol.errors"}}) == [
        "sim.audit.audit -> sim.report.page"
    ]
    assert upward({"protocol.wire.codec": {"protocol.schemes.base"}}) and upward({"actors.host": {"sim.api"}})
    direct = "protocol.schemes.factorization.direct"
    assert scheme_imports({"sim.audit.audit": {direct, "protocol.schemes.base"}}) == [f"sim.audit.audit -> {direct}"]
    assert scheme_imports({"sim.audit.families.direct.direct_family": {direct}, "actors.host": {direct}}) == []
    assert scheme_ladders(ast.parse("isinstance(case.card.scheme, Masked)\nissubclass(kind.params_class, (A, B))"))
    assert scheme_ladders(ast.parse("isinstance(message, Params)\nisinstance(role, Role)")) == []
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
