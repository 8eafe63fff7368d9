"""`keyhole new`: a custom scheme that runs, with its test, as a starting point."""

from __future__ import annotations

import importlib.util
import keyword
import sys
from pathlib import Path

from protocol.errors import BadInput
from protocol.params import require
from protocol.schemes import SCHEMES

_SCHEME = '''"""A scheme of my own. Run it with: keyhole run --scheme {module}:{cls}"""

from protocol import Masked

# Masked is one choice to start from. Others are in protocol too: Plain (nothing is hidden), Direct (users add noise
# themselves), Dynamic (users come and go). A protocol with messages of its own subclasses protocol.Scheme;
# README.md, "A scheme of your own", says what that takes.


class {cls}(Masked):
    """As masked, but no item is released with fewer than three contributors. CHANGE: say what yours does."""

    name = "{name}"  # as it stands in tables and in run folders
    title = "Masked sums of at least three"  # CHANGE: a line for a list
    source = "your own, after Hua, Xia, Zhong 2015"  # CHANGE: where it is described
    # CHANGE: what you claim. It is printed as a claim, and the audit holds the run against it.
    claims = (
        "No server alone learns a user's gradient; every released sum has at least three contributors and carries "
        "Laplace noise of scale 2Δ√d/ε, claimed to give ε-differential privacy per release."
    )
    # CHANGE: what --set takes, with the defaults (keyhole run --scheme {module}:{cls} --set min_contributors=5)
    options = {{**Masked.options, "min_contributors": 3}}

    def make_params(self, shape, **settings):
        """CHANGE: the parameters of a run; `settings` are the flags and options that were given."""
        return super().make_params(shape, **{{"min_contributors": 3, **settings}})

    # Further things to change: make_role(party, setting, tape, inputs) gives each party its behaviour; leakage lists
    # what each receiver may learn, field by field; known_weaknesses names the findings that you know of; formula
    # says how many bytes every message has.
'''

_TEST = '''"""The test of {module}.py: python -m pytest -c /dev/null test_{module}.py (needs: pip install pytest)"""

from pathlib import Path

from {module} import {cls}
from keyhole import audit, bandwidth, run

NAME = "{module}:{cls}"


def small_run(folder: Path):
    flags = {{"data": "synthetic:12x10:.5", "iterations": 2, "dim": 2, "seed": 1, "transport": "inprocess"}}
    return run(scheme=NAME, out=folder, **flags)


def test_it_runs_to_its_end(tmp_path):
    summary = small_run(tmp_path / "run")
    assert summary["completed"] and summary["scheme"] == {cls}.name


def test_every_byte_is_what_the_formula_gives(tmp_path):
    small_run(tmp_path / "run")
    assert bandwidth(tmp_path / "run", scheme=NAME)["match"] is True


def test_no_party_learns_more_than_is_declared(tmp_path):
    small_run(tmp_path / "run")
    found = audit(tmp_path / "run", only=["inventory", "algebra"], scheme=NAME)
    assert found.verdict == "within-claims", [finding["id"] for finding in found["findings"]]
'''


def make_scaffold(name: str, out: Path) -> tuple[Path, Path]:
    """Write the scheme `name` and its test into the folder `out`; an existing file is never replaced."""
    usable = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    require(usable, f"{name!r} cannot be the name of a module: use letters, digits and underscores, as in my_scheme.")
    taken = f"Something named {name!r} is installed already and would be found first: take another name."
    require(not _is_taken(name), taken)
    require(out.is_dir(), f"{out} is not a folder: make it first, or name another with --out.")
    cls = "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)
    require(cls.isidentifier(), f"{name!r} gives no name for a class: use one such as my_scheme.")
    texts = {out / f"{name}.py": _SCHEME, out / f"test_{name}.py": _TEST}
    for path in texts:
        there = path.exists() or path.is_symlink()
        require(not there, f"{path} exists already: take another name, or another --out.")
    for path, text in texts.items():
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
