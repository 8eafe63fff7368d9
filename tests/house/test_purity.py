"""Rules about the source that no run would check: which imports and calls are allowed, and which words are required.

The leakage policy is checked too: every field that reaches a party is declared, and every declared field reaches it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from support.basics import received, small_run

from protocol.everyone_online import everyone_stays
from protocol.party.role import role_of
from protocol.schemes import SCHEMES
from protocol.wire.messages import Churn, Due, Hello
from sim.drivers.inprocess import InProcess

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "actors", "sim")

# modules that would give a role access to time, chance, files or the network
WORLDLY = {
    "zmq", "socket", "time", "random", "secrets", "os", "asyncio", "threading", "subprocess", "datetime", "pathlib",
    "io", "logging", "select", "selectors", "signal", "multiprocessing", "tempfile", "shutil", "urllib", "uuid", "ssl",
    "sys",
}  # fmt: skip
WORLDLY_CALLS = {"open", "print", "input", "__import__", "breakpoint"}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "shelve", "marshal", "cloudpickle", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
LIBRARIES = {"numpy", "scipy", "msgpack", "cryptography", "dp_accounting"}  # the ones that the protocol may use
SLOW = {"cryptography", "dp_accounting"}  # inside functions only: most roles never need them
BLAS = {"dot", "vdot", "inner", "matmul", "tensordot", "linalg"}  # these give other last bits on another machine


def sources(*packages: str) -> list[Path]:
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(found) >= 5 * len(packages)
    return found


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield every module that is imported, also inside functions and by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            yield from (part.value for part in node.args if isinstance(part, ast.Constant))


def roots(tree: ast.AST) -> set[str]:
    return {module.partition(".")[0] for module in imported(tree)}


def _called(node: ast.Call) -> str:
    """Return the last name of the called function, with the name before it if there is one: `f`, `yaml.load`."""
    match node.func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=attribute, value=ast.Name(id="importlib")):
            return attribute
        case ast.Attribute(attr=attribute, value=ast.Name(id=name)):
            return f"{name}.{attribute}"
    return ""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield _called(node), node


def attributes(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def worldly(tree: ast.AST) -> set[str]:
    """Find imports and calls that reach beyond a role's input, tape and messages."""
    chance = {"np.random"} if "random" in attributes(tree) or "numpy.random" in set(imported(tree)) else set()
    return roots(tree) & WORLDLY | {name for name, _ in calls(tree)} & WORLDLY_CALLS | chance


def eager(tree: ast.Module) -> set[str]:
    """Find slow libraries that are imported outside functions, where they are loaded even if they are not needed."""
    functions = {node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    inside = {id(node) for function in functions for node in ast.walk(function)}
    outside = [
        node for node in ast.walk(tree) if id(node) not in inside and isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return roots(ast.Module([*outside], [])) & SLOW


def foreign(tree: ast.Module) -> set[str]:
    """Find imports that are neither from Python, nor from an allowed library, nor from the protocol."""
    return roots(tree) - LIBRARIES - sys.stdlib_module_names - {"protocol"}


def blas(tree: ast.AST) -> set[str]:
    taken = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    tuned = {"einsum with options" for name, call in calls(tree) if name == "np.einsum" and call.keywords}
    return (attributes(tree) | taken) & BLAS | tuned


def runs_data(tree: ast.AST) -> set[str]:
    """Find imports and calls that can execute what they read."""
    found = roots(tree) & UNSAFE_MODULES | {name for name, _ in calls(tree)} & UNSAFE_CALLS
    for name, call in calls(tree):
        found |= {
            f"{name}(allow_pickle)"
            for word in call.keywords
            if word.arg == "allow_pickle" and not (isinstance(word.value, ast.Constant) and word.value.value is False)
        }
    return found


def patched(tree: ast.Module) -> set[str]:
    """Find the statements that change a module or an object, and so could learn of a role past its arithmetic."""
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    setters = {name for name, call in calls(tree) if name.endswith(("setattr", "__setattr__")) and not _on_self(call)}
    owners = {*modules, "sys.modules", "role"}
    changed = [target for node in ast.walk(tree) for target in _changed(node)]
    return setters | {
        ast.unparse(target)
        for target in changed
        if (place := ast.unparse(target.value)) in owners
        or place.startswith(("vars(", "globals("))
        or place.endswith((".__dict__", ".role"))
    }


def _on_self(call: ast.Call) -> bool:
    return isinstance(call.args[0], ast.Name) and call.args[0].id == "self"


def _changed(node: ast.AST) -> Iterator[ast.Attribute | ast.Subscript]:
    """Yield the attributes and entries that a statement sets or deletes."""
    aimed = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
    for target in aimed if isinstance(node, ast.stmt) else []:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        yield from (part for part in parts if isinstance(part, ast.Attribute | ast.Subscript))


def faults(paths: list[Path], look: Callable[[ast.Module], set[str]]) -> dict[str, set[str]]:
    return {str(path.relative_to(ROOT)): found for path in paths if (found := look(tree_of(path)))}


def test_the_protocol_does_not_touch_the_world():
    assert faults(sources("protocol"), worldly) == {}


def test_the_protocol_uses_these_libraries_and_the_slow_ones_only_when_they_are_needed():
    assert faults(sources("protocol"), foreign) == {}
    assert faults(sources("protocol"), eager) == {}


def test_the_protocol_uses_no_blas():
    assert faults(sources("protocol"), blas) == {}


def test_an_audit_learns_what_a_role_computed_through_its_arithmetic_alone():
    """`secagg.py` measures another library, whose identities it has to set."""
    own = [path for path in sources("sim") if path.name != "secagg.py"]
    assert faults(own, patched) == {}


def test_nothing_runs_data():
    assert faults(sources(*PACKAGES, "tests"), runs_data) == {}


def test_every_file_begins_by_saying_what_it_is():
    """An empty `__init__.py` says nothing and need not be explained."""
    silent = [path for path in sources(*PACKAGES, "tests") if not (ast.get_docstring(tree_of(path)) or "").strip()]
    assert [path for path in silent if path.name != "__init__.py" or path.read_bytes()] == []


SLIPS = {
    "import os": (worldly, "os"),
    "import os.path as p": (worldly, "os"),
    "from time import sleep": (worldly, "time"),
    "def f():\n    import random": (worldly, "random"),
    "from importlib import import_module\nimport_module('socket')": (worldly, "socket"),
    "import importlib\nimportlib.import_module('zmq.asyncio')": (worldly, "zmq"),
    "x = open('/etc/hostname')": (worldly, "open"),
    "import numpy as np\nnp.random.default_rng()": (worldly, "np.random"),
    "from numpy import random": (worldly, "np.random"),
    "import cryptography.fernet": (eager, "cryptography"),
    "if True:\n    from cryptography.hazmat import primitives": (eager, "cryptography"),
    "class A:\n    import dp_accounting": (eager, "dp_accounting"),
    "def f():\n    from nacl import signing": (foreign, "nacl"),
    "np.dot(a, b)": (blas, "dot"),
    "a.dot(b)": (blas, "dot"),
    "np.einsum('ij,jk', a, b, optimize=True)": (blas, "einsum with options"),
    "setattr(role, 'step', outer)": (patched, "setattr"),
    "object.__setattr__(role, 'step', outer)": (patched, "object.__setattr__"),
    "role.step = outer": (patched, "role.step"),
    "self.role.fixed, other = outer, None": (patched, "self.role.fixed"),
    "import sys\nsys.modules['m'] = own": (patched, "sys.modules['m']"),
    "from a import model\nmodel.averages_of = listening": (patched, "model.averages_of"),
    "import numpy as np\ndef f():\n    np.rint += 1": (patched, "np.rint"),
    "vars(module)['name'] = new": (patched, "vars(module)['name']"),
    "role.__dict__['step'] = outer": (patched, "role.__dict__['step']"),
    "import pickle": (runs_data, "pickle"),
    "eval(text)": (runs_data, "eval"),
    "exec(text)": (runs_data, "exec"),
    "yaml.load(text)": (runs_data, "yaml.load"),
    "np.load(path, allow_pickle=True)": (runs_data, "np.load(allow_pickle)"),
}


@pytest.mark.parametrize("code", SLIPS)
def test_a_slip_would_be_found(code):
    look, name = SLIPS[code]
    assert name in look(ast.parse(code))


def test_what_is_harmless_is_not_found():
    lazy = ast.parse("class A:\n    def f(self):\n        import cryptography\n        from cryptography import fernet")
    assert [look(lazy) for look in (worldly, eager, foreign)] == [set(), set(), set()]
    code = "import numpy as np; np.einsum('i,i', a, a); np.load(path, allow_pickle=False); yaml.safe_load(text)"
    harmless = ast.parse(code)
    assert [look(harmless) for look in (worldly, blas, runs_data)] == [set(), set(), set()]
    own = ast.parse("self.role = role\nsetattr(self, name, value)\nsys.modules.get('numpy')\nfound['a'], b.c = 1, 2")
    assert patched(own) == set()


# --- what the schemes say -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_says_what_it_is_and_claims(name):
    scheme = SCHEMES[name]
    assert scheme.name == name
    for text in (scheme.title, scheme.source, scheme.unit, scheme.claims, *scheme.known_weaknesses):
        assert isinstance(text, str) and text.strip()
    assert scheme.known_weaknesses and scheme.leakage and scheme.servers
    assert scheme.messages[0] is Hello and len(set(scheme.messages)) == len(scheme.messages)
    for leak in scheme.leakage:
        assert leak.words.strip(), leak


@pytest.mark.parametrize("name", SCHEMES)
def test_the_leakage_policy_names_parties_messages_and_fields_that_exist(name):
    scheme = SCHEMES[name]
    real = {(cls.__name__, field.name) for cls in scheme.messages for field in fields(cls)}
    stated = [(leak.receiver, leak.kind, leak.field) for leak in scheme.leakage]
    assert len(set(stated)) == len(stated), "each is declared once"
    for receiver, kind, field in stated:
        assert receiver in ("user", *scheme.servers)
        assert (kind, field) in real


def one_leaves(iteration: int) -> list:
    """Return the events before an iteration: all users are online at first, and user 1 leaves before iteration 1."""
    if iteration == 1:
        return [("user:1", Churn(1, False)), ("recommender", Due(1, (1,)))]
    return everyone_stays(4)(iteration)


# options with which a scheme sends other messages
FORMS: dict[str, list[dict[str, Any]]] = {
    "covariance": [{}, {"predictor": "knn"}, {"ratings": [{0: 1.25, 1: 3.1}, {0: 4.0, 2: 2.2}, {1: 5.0}, {3: 1.0}]}],
    "hardened": [{}, {"rounds": 2}, {"selected": 3}, {"proof": "norm"}],
    "covariance-masked": [{}, {"predictor": "knn"}, {"form": "sparse"}],
}


def arrivals(name: str, folder: Path) -> Iterator[tuple[str, str, object, object]]:
    """Yield (receiver, its role, message, card) for everything that is received in a run of each form."""
    for wire in ("compact", "paper") if "wire" in SCHEMES[name].flags else ("compact",):
        for number, form in enumerate(FORMS.get(name, [{}])):
            place = folder / f"{wire}-{number}"
            card, seats = small_run(name, wire=wire, **form)
            everyone = frozenset(seat.party for seat in seats)
            options = {"events_for": one_leaves} if "join" in SCHEMES[name].flags else {}
            run = InProcess(card, seats, run_folder=str(place), with_view=everyone, **options)
            assert run.run().abort is None
            for party in everyone:
                for _, message in received(card, place, party):
                    yield party, role_of(party), message, card


@pytest.mark.parametrize("name", SCHEMES)
def test_every_field_that_arrives_is_declared_and_every_declared_field_arrives(name, tmp_path):
    arrived = {
        (role, type(message).__name__, field.name)
        for _, role, message, _ in arrivals(name, tmp_path)
        if not isinstance(message, Hello)
        for field in fields(message)
    }
    declared = {(leak.receiver, leak.kind, leak.field) for leak in SCHEMES[name].leakage}
    assert arrived - declared == set(), "undeclared"
    assert declared - arrived == set(), "declared, but it never arrives"


@pytest.mark.parametrize("name", SCHEMES)
def test_a_hello_tells_nothing_new(name, tmp_path):
    """A Hello is in no leakage policy, because its receiver sends the same."""
    hellos = [(message, card) for _, _, message, card in arrivals(name, tmp_path) if isinstance(message, Hello)]
    assert len(hellos) >= 8
    for hello, card in hellos:
        assert (hello.wire_version, hello.run_id, hello.params_digest) == (5, card.run_id, card.params_digest)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_kind_of_message_is_received_by_somebody(name, tmp_path):
    kinds = {type(message) for _, _, message, _ in arrivals(name, tmp_path)}
    assert kinds == set(SCHEMES[name].messages)
