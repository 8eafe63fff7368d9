"""Make the tables of the READMEs from the code: `python tests/house/tables.py` writes them into their files.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; `test_prose.py` compares each with the code.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import json
import re
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
ARROW = re.compile(r"^(user|recommender|third party) -> (user|recommender|third party|everyone)")
DEEPEST = 2  # levels of nested keys in a list of JSON keys
NAME = re.compile(r"[a-z][a-z0-9_]*")


def readmes(root: Path = ROOT) -> list[Path]:
    """Find every README of the source."""
    rooms = [root / name for name in ("protocol", "actors", "sim", "tests")]
    return [root / "README.md", *sorted(path for room in rooms for path in room.rglob("README.md"))]


def rows(heading: str, lines: Iterator[str] | list[str]) -> str:
    """Put lines under the heading of a Markdown table."""
    return "\n".join([heading, "|" + "---|" * (heading.count("|") - 1), *lines])


def commands() -> str:
    """List the commands by the question that each answers."""
    from sim.cli.commands import QUESTIONS

    lines = []
    for question, listed in QUESTIONS.items():
        for name, entry in listed.items():
            lines.append(f"| {question} | `keyhole {name}` | {entry.summary} |")
            question = ""
    return rows("| question | command | what it does |", lines)


def schemes() -> str:
    """List the schemes with their parties and titles."""
    from protocol.schemes import LISTED

    return rows(
        "| scheme | parties | what it is | from |",
        [
            f"| `{name}` | {', '.join(one.parties).replace('_', ' ')} | {one.title} | {_source(name)} |"
            for name, one in LISTED.items()
        ],
    )


def _source(name: str) -> str:
    from protocol.schemes import SCHEMES

    return SCHEMES[name].source


def messages() -> str:
    """List the messages in the order of their file: those of several schemes, then those beside the roles of one."""
    lines = list(_messages_in(ROOT / "protocol" / "wire" / "messages.py", lambda said: True))
    for path in sorted((ROOT / "protocol" / "schemes").rglob("*.py")):
        lines += _messages_in(path, lambda said: ARROW.match(said) is not None)
    return rows("| kind | from → to | fields |", lines)


def _messages_in(path: Path, is_one: Callable[[str], bool]) -> Iterator[str]:
    """Yield the rows of the messages in a file: sender, receiver, and each field with its comment."""
    text = path.read_text("utf-8")
    comments = comments_of(text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and _is_message(node) and is_one(said := comments.get(node.lineno, "")):
            found = ARROW.match(said)
            way = f"{found[1]} → {found[2]}" if found else said
            rest = said[found.end() :].lstrip(",: ") if found else ""
            fields = [_field(each, comments) for each in node.body if isinstance(each, ast.AnnAssign)]
            yield f"| `{node.name}` | {way} | {'; '.join(fields)}{f' — {rest}' if rest else ''} |"


def _is_message(node: ast.ClassDef) -> bool:
    """Tell a message from an event: only a message has `eq=False`, because it may hold arrays."""
    return any(isinstance(each, ast.Call) and len(each.keywords) == 3 for each in node.decorator_list)


def _field(node: ast.AnnAssign, comments: Mapping[int, str]) -> str:
    assert isinstance(node.target, ast.Name)
    said = comments.get(node.lineno)
    return f"`{node.target.id}`" + (f" ({said})" if said else "")


def comments_of(text: str) -> dict[int, str]:
    """Find the comment at the end of each line that has one."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def whole_protocol() -> str:
    """Quote `protocol/play.py`: a sentence for each party, and the loop."""
    text = (ROOT / "protocol" / "play.py").read_text("utf-8")
    parties = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[1].splitlines()
    return "\n".join([*(f"* {line}" for line in parties), "", "```python", f"{text[text.index('def play('):]}```"])


def keys_of(document: Any, depth: int = DEEPEST) -> str:
    """Write the keys of a JSON document, with nested keys in braces; a list shows the keys of all its objects."""
    if isinstance(document, list):
        objects = [each for each in document if isinstance(each, dict)]
        inner = keys_of({key: value for each in objects for key, value in each.items()}, depth) if objects else ""
        return f"[{inner}]" if inner else ""
    if not isinstance(document, dict) or not document:
        return ""
    if depth == 0 or not all(NAME.fullmatch(key) for key in document):
        return "{…}"  # too deep, or keys that are data, like names of parties
    inside = ((key, keys_of(value, depth - 1)) for key, value in document.items())
    return "{" + ", ".join(f"{key}: {inner}" if inner else key for key, inner in inside) + "}"


def json_keys() -> str:
    """List the keys of every JSON document, from a small run of the default scheme."""
    from sim import api

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = {"data": "synthetic:8x9:.6", "dim": 2, "iterations": 3, "seed": 1, "transport": "inprocess"}
        summary = api.run(out=out, **settings)
        documents = {
            "`run`, `summary.json`": summary,
            "`iterations.jsonl`, a line": json.loads((out / "iterations.jsonl").read_text("utf-8").splitlines()[0]),
            "`view`, a line": next(iter(api.view(out, "third_party"))),
            "`verify`": api.verify(out),
            "`replay`": api.replay(out),
            "`bandwidth`": api.bandwidth(out),
            "`audit`": api.audit(out, repetitions=400),
            "`recommend`": api.recommend(out, "user:0"),
            "`schemes`, a row": api.schemes()[0],
            "`datasets`, a row": api.datasets()[0],
            "`ls`, a row": api.ls(folder)[0],
            "`diff`": api.diff(out, out),
            "`explain`": api.explain("mask"),
        }
    lines = [f"| {name} | {keys_of(_plain(document))} |" for name, document in documents.items()]
    return rows("| document | keys |", lines)


def _plain(document: Any) -> Any:
    return dataclasses.asdict(document) if dataclasses.is_dataclass(document) else document


TABLES = {
    "commands": commands,
    "schemes": schemes,
    "messages": messages,
    "play": whole_protocol,
    "json-keys": json_keys,
}


def main() -> int:
    made = {name: make() for name, make in TABLES.items()}
    for path in readmes():
        text = path.read_text("utf-8")
        now = BLOCK.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[3]}", text)
        if now != text:
            path.write_text(now, "utf-8")
            print(f"{path.relative_to(ROOT)} was changed")
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]
    sys.exit(main())
