"""Measure the source: `python tests/house/house.py [ROOT]` (modules per folder, lines, cycles, homonyms).

`test_rooms.py` uses the functions here too. TYPE_CHECKING blocks import nothing and are left out.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGES = ("protocol", "actors", "sim")

Graph = Mapping[str, set[str]]


def modules_of(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, Path]:
    """Find every module of the packages: its dotted name, its file."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph_of(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Find which of these modules each imports, at its top or inside a function."""
    return {name: imports_of(ast.parse(path.read_text("utf-8")), modules) - {name} for name, path in modules.items()}


def imports_of(tree: ast.AST, modules: Iterable[str]) -> set[str]:
    found = set()
    for node in _running(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found |= {full} if full in modules else {node.module} & set(modules)
    return found


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the code that runs, which leaves out what is under `if TYPE_CHECKING`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield from _running(child)


def cycles(graph: Graph) -> list[list[str]]:
    """Find the groups of modules that import each other, directly or through others."""
    reach = {name: _reachable(graph, name) for name in graph}
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in graph}
    return sorted(list(group) for group in groups if group)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += graph[name]
    return found


def crowded(modules: Mapping[str, Path], most: int) -> dict[str, int]:
    """Find the folders with more modules than `most`."""
    counts = Counter(str(path.parent) for path in modules.values() if path.name != "__init__.py")
    return {folder: count for folder, count in counts.items() if count > most}


def homonyms(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Find the names that several modules have."""
    by_name = defaultdict(list)
    for name, path in modules.items():
        if path.stem not in ("__init__", "__main__"):
            by_name[path.stem].append(name)
    return {stem: names for stem, names in by_name.items() if len(names) > 1}


def shared_classes(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Find the names of classes that several modules have; names with an underscore are private to a module."""
    by_name = defaultdict(list)
    for module, path in modules.items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name[node.name].append(module)
    return {name: found for name, found in by_name.items() if len(found) > 1}


def functions(modules: Mapping[str, Path]) -> list[int]:
    """Count the lines of every function."""
    trees = (ast.parse(path.read_text("utf-8")) for path in modules.values())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds))
    return [(node.end_lineno or 0) - node.lineno + 1 for node in found]


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def main(root: Path) -> None:
    modules = modules_of(root)
    folders = Counter(str(path.parent.relative_to(root)) for path in modules.values() if path.name != "__init__.py")
    lengths = [lines(path) for path in modules.values() if path.name != "__init__.py"]
    knots = cycles(graph_of(modules))
    same = homonyms(modules)
    fullest, count = folders.most_common(1)[0]
    print(f"folders {len(folders)}, fullest {fullest} with {count} modules; tests not counted")
    print(f"files {len(lengths)}, lines {sum(lengths)}, median {statistics.median(lengths):g}, longest {max(lengths)}")
    print(f"functions {len(functions(modules))}, median {statistics.median(functions(modules)):g} lines")
    print(f"modules in import cycles {sum(map(len, knots))}, homonyms {len(same)}: {', '.join(sorted(same)) or 'none'}")
    print(f"names of classes in several modules: {', '.join(sorted(shared_classes(modules))) or 'none'}")
    print(f"README.md {lines(root / 'README.md')} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[2])
