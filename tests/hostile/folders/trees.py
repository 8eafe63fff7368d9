"""Mutations of the files that hold text: TOML, JSON, lines of JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from tests.hostile.folders.values import TEXTS, Chance, near, odd_value

Tree = Any
MOST = 10_000_000  # bytes, about: how long a file becomes when its lines are repeated
_PARAMS = ("n_users", "n_items", "dim", "iterations", "ring_bits", "fraction_bits", "max_raters", "rounds", "epsilon")


def mutate_text(path: Path, chance: Chance) -> str:
    """Change a text file; return words that say how."""
    if chance.one_in(8):
        return _by_bytes(path, chance)
    if path.name == "iterations.jsonl":
        return _lines(path, chance)
    text = path.read_text("utf-8")
    toml = path.suffix == ".toml"
    if chance.one_in(8):
        made, words = (_toml_text if toml else _json_text)(text, chance)
        path.write_text(made, "utf-8", errors="surrogateescape")
        return words
    tree = tomllib.loads(text) if toml else json.loads(text)
    words = [mutate_tree(tree, chance) for _ in range(1 + chance.one_in(4))]
    write_tree(path, tree)
    return "; ".join(words)


def write_tree(path: Path, tree: Tree) -> None:
    made = to_toml(tree) if path.suffix == ".toml" else json.dumps(tree)
    path.write_text(resolved(made, path), "utf-8", errors="surrogateescape")


def resolved(text: str, path: Path) -> str:
    """Replace the placeholders @OUTSIDE@ and @FOLDER@ in `text` by true paths."""
    folder = next((each for each in path.parents if (each / "run.toml").exists()), path.parent)
    return text.replace("@OUTSIDE@", str(folder.parent.parent / "outside" / "secret")).replace("@FOLDER@", str(folder))


def mutate_tree(tree: Tree, chance: Chance) -> str:
    """Change one place of a tree."""
    place = _place(tree, chance)
    if place is None:
        return "nothing to change"
    parent, key, trail = place
    change = chance.of(_CHANGES)
    change(parent, key, chance)
    return f"{change.__name__.strip('_')} at {'.'.join(trail)[:200]!r}"


def _place(tree: Tree, chance: Chance) -> tuple[Any, Any, list[str]] | None:
    """Choose a place by a random walk from the root that prefers names of parameters."""
    parent, trail = tree, []
    while True:
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        if not keys:
            return None
        wanted = [key for key in keys if key in _PARAMS or key in ("scheme", "data", "seed")]
        key = chance.of(wanted) if wanted and chance.one_in(3) else chance.of(keys)
        trail.append(str(key))
        child = parent[key]
        if not isinstance(child, (dict, list)) or not child or chance.one_in(6):
            return parent, key, trail
        parent = child


def _replace(parent: Any, key: Any, chance: Chance) -> None:
    parent[key] = odd_value(chance, str(key))


def _alter(parent: Any, key: Any, chance: Chance) -> None:
    parent[key] = odd_value(chance, key) if key in ("scheme", "data") else near(chance, parent[key])


def _delete(parent: Any, key: Any, chance: Chance) -> None:
    del parent[key]


def _add(parent: Any, key: Any, chance: Chance) -> None:
    if isinstance(parent, dict):
        parent[chance.of((*TEXTS, *_PARAMS))] = odd_value(chance)
    else:
        parent.insert(chance.below(len(parent) + 1), odd_value(chance))


def _rename(parent: Any, key: Any, chance: Chance) -> None:
    if isinstance(parent, dict):
        parent[chance.of(TEXTS)] = parent.pop(key)
    else:
        parent.append(parent[key])


def _as_text(parent: Any, key: Any, chance: Chance) -> None:
    parent[key] = str(parent[key]) if not isinstance(parent[key], str) else _number_in(parent[key])


def _number_in(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 1000 else len(text)


def _wrap(parent: Any, key: Any, chance: Chance) -> None:
    parent[key] = chance.of(([parent[key]], {"x": parent[key]}, [[parent[key]] * 2]))


def _swap(parent: Any, key: Any, chance: Chance) -> None:
    keys = list(parent) if isinstance(parent, dict) else range(len(parent))
    other = chance.of(list(keys))
    parent[key], parent[other] = parent[other], parent[key]


def _fill(parent: Any, key: Any, chance: Chance) -> None:
    """Repeat an entry 2000 times, unless it is too long."""
    if len(repr(parent[key])) > 1000:
        return
    if isinstance(parent, dict):
        parent.update({f"{key}{n}": parent[key] for n in range(2000)})
    else:
        parent.extend([parent[key]] * 2000)


_CHANGES: list[Callable[[Any, Any, Chance], None]] = [
    _replace, _replace, _replace, _alter, _alter, _alter, _alter, _delete, _add, _rename, _as_text, _wrap, _swap, _fill,
]  # fmt: skip


# --- as text ---------------------------------------------------------------------------------------------------------


def to_toml(tree: Tree) -> str:
    """Write `tree` as TOML; replace values that TOML cannot express."""
    return tomli_w.dumps(_sayable(tree))


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key).encode("utf-8", "replace").decode(): _sayable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(each) for each in value]
    if value is None:
        return "null"
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _toml_text(text: str, chance: Chance) -> tuple[str, str]:
    """Change the text in a way that no tree can express: doubled keys, deep nesting, dotted keys, odd numbers."""
    deep = chance.of((100, 1000, 100_000))
    forms = {
        "deep arrays": f"{text}\nx = {'[' * deep}{']' * deep}\n",
        "deep tables": f"{text}\nx = {'{a=' * deep}1{'}' * deep}\n",
        "deep dotted key": f"{text}\n[{'.'.join('a' * deep)}]\n",
        "doubled table": f"{text}\n[run]\nscheme = 'evil:Evil'\n",
        "doubled key": text.replace("n_users", "n_users = 3\nn_users", 1),
        "a date": text.replace('scheme = "', 'x = 1979-05-27T07:32:00Z\nscheme = "', 1),
        "scheme is a date": text.replace("scheme = ", "scheme = 1979-05-27\n#", 1),
        "quoted keys": text.replace("dim =", '"dim" =').replace("seed =", "'\\u0073eed' ="),
        "not closed": text + "\n[params",
        "control characters": text + "\n# \x00\x1b[31m\n",
        "a long line": f"{text}\nx = '{'y' * 3_000_000}'\n",
        "a number of many digits": text.replace("iterations = ", "iterations = 9" + "9" * 5000 + " #", 1),
        "only a table": "[run]\n",
        "an array of tables": text.replace("[params]", "[[params]]"),
        "other line ends": text.replace("\n", "\r"),
        "byte order mark": "\ufeff" + text,
    }
    words = chance.of(list(forms))
    return forms[words], f"as text: {words} ({deep})" if words.startswith("deep") else f"as text: {words}"


def _json_text(text: str, chance: Chance) -> tuple[str, str]:
    deep = chance.of((100, 1000, 100_000))
    forms = {
        "deep lists": f'{{"x": {"[" * deep}{"]" * deep}, {text.lstrip()[1:]}',
        "deep objects": '{"a":' * deep + "1" + "}" * deep,
        "only deep lists": "[" * deep + "]" * deep,
        "doubled keys": f'{{"views": 3, "format": [], "scheme": "evil:Evil", {text.lstrip()[1:]}',
        "doubled at the end": f'{text.rstrip()[:-1]}, "views": 3, "bytes": {{}}, "scheme": "os:system", "rows": 1}}',
        "NaN": text.replace(": 1", ": NaN"),
        "Infinity": text.replace(": 2", ": -Infinity"),
        "too large": text.replace(": 1", ": 1e999"),
        "many digits": text.replace(": 1", ": 1" + "0" * 5000, 1),
        "a lone surrogate": text.replace(": ", ': "\\ud800", "y": ', 1),
        "two documents": text + text,
        "null": "null",
        "a number": "3",
        "a text": '"' + "x" * 3_000_000 + '"',
        "a list": f"[{text}]",
        "true": "true",
        "not closed": text[: len(text) // 2],
        "byte order mark": "\ufeff" + text,
        "an empty object": "{}",
        "comments": "// x\n" + text,
    }
    words = chance.of(list(forms))
    return forms[words], f"as text: {words} ({deep})" if "deep" in words else f"as text: {words}"


def _lines(path: Path, chance: Chance) -> str:
    lines = path.read_text("utf-8").splitlines()
    if not lines:
        return _by_bytes(path, chance)
    at = chance.below(len(lines))
    kind = chance.below(9)
    if kind < 5:
        tree = json.loads(lines[at])
        words = mutate_tree(tree, chance)
        lines[at] = json.dumps(tree)
    elif kind == 5:
        lines[at], words = _json_text(lines[at], chance)
    elif kind == 6:
        lines.insert(chance.below(len(lines) + 1), lines[at])
        words = "doubled"
    elif kind == 7:
        del lines[at]
        words = "removed"
    else:
        lines = lines * min(3000, 1 + MOST // (1 + sum(map(len, lines))))
        words = "all of them many times"
    path.write_text(resolved("\n".join(lines) + "\n", path), "utf-8", errors="surrogateescape")
    return f"line {at}: {words}"


def _by_bytes(path: Path, chance: Chance) -> str:
    """Change bytes of the file, whatever they mean."""
    data = path.read_bytes()
    at, odd = chance.below(len(data) + 1), chance.bytes(1 + chance.below(8))
    forms = {
        "cut": data[:at],
        "without its beginning": data[at:],
        "bytes put in": data[:at] + odd + data[at:],
        "bytes replaced": data[:at] + odd + data[at + len(odd) :],
        "not UTF-8": data[:at] + b"\xff\xfe\x80" + data[at:],
        "UTF-16": data.decode("latin-1").encode("utf-16"),
        "zeros": bytes(len(data)),
        "empty": b"",
        "doubled": data * 2,
        "spaces before": b" " * 2_000_000 + data,
    }
    words = chance.of(list(forms))
    path.write_bytes(forms[words])
    return f"bytes: {words}"
