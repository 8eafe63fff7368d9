"""`keyhole new`: a custom scheme that runs, with its test, as a starting point (the `scaffold_*.txt` beside this)."""

from __future__ import annotations

import importlib.util
import keyword
import sys
from pathlib import Path

from protocol.errors import BadInput
from protocol.params import require
from protocol.schemes import SCHEMES


def make_scaffold(name: str, out: Path) -> tuple[Path, Path]:
    """Write the scheme `name` and its test into the folder `out`; an existing file is never replaced."""
    usable = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    require(usable, f"{name!r} cannot be the name of a module: use letters, digits and underscores, as in my_scheme.")
    taken = f"Something named {name!r} is installed already and would be found first: take another name."
    require(not _is_taken(name), taken)
    require(out.is_dir(), f"{out} is not a folder: make it first, or name another with --out.")
    cls = "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)
    require(cls.isidentifier(), f"{name!r} gives no name for a class: use one such as my_scheme.")
    texts = {out / f"{name}.py": "scheme", out / f"test_{name}.py": "test"}
    for path in texts:
        there = path.exists() or path.is_symlink()
        require(not there, f"{path} exists already: take another name, or another --out.")
    for path, kind in texts.items():
        text = Path(__file__).with_name(f"scaffold_{kind}.txt").read_text(encoding="utf-8")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text.format(module=name, cls=cls, name=name.replace("_", "-")))
        except OSError as error:
            raise BadInput(f"Cannot write {path}: {error.strerror}.") from error
    scheme, test = texts
    return scheme, test


def _is_taken(name: str) -> bool:
    """Tell whether `name` would find something else: an installed module takes precedence over the current folder."""
    if name in sys.stdlib_module_names or name.replace("_", "-") in SCHEMES:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, such as __main__
        return True
    return spec is not None and spec.origin is not None and Path(spec.origin).parent.resolve() != Path.cwd().resolve()
