"""The entry points: `import keyhole` for scripts, `from protocol import …` for authors; both import on first use."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import keyhole
import pytest
from setuptools.config.pyprojecttoml import apply_configuration
from setuptools.dist import Distribution

import protocol
from sim import api

ROOT = Path(__file__).parents[2]


def imported_by(code: str) -> set[str]:
    """Run `code` in a fresh interpreter, and return the top-level modules that were imported."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(ended.stdout.split())


def test_keyhole_has_every_verb_of_the_api_and_no_other():
    assert keyhole.__all__ == api.__all__ == dir(keyhole)
    assert all(getattr(keyhole, verb) is getattr(api, verb) for verb in keyhole.__all__)
    assert keyhole.__version__ == metadata.version("keyhole")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = keyhole.nothing


def test_every_name_of_the_kit_is_there():
    for name in protocol.__all__:
        found = getattr(protocol, name)
        assert found is not None and sorted(protocol.__all__) == sorted(protocol._MODULES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = protocol.nothing


@pytest.mark.parametrize("code", ["import keyhole", "import protocol", "import protocol.schemes"])
def test_an_open_door_costs_nothing(code):
    assert not imported_by(code) & {"numpy", "scipy", "zmq", "cryptography", "typer", "rich"}


def test_one_scheme_does_not_import_the_others():
    code = "import sys; from protocol import Masked; assert 'protocol.schemes.factorization.dynamic' not in sys.modules"
    assert "numpy" in imported_by(code)


def test_every_package_is_installed():
    """A folder that is not found would be missing in a wheel, and only there."""
    built = Distribution()
    apply_configuration(built, ROOT / "pyproject.toml")
    folders = {path.parent for top in ("protocol", "actors", "sim") for path in (ROOT / top).rglob("__init__.py")}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders} - {"sim.keyhole"} | {"keyhole"}
    assert set(built.packages) == names and built.package_dir == {"keyhole": "sim/keyhole"}


def test_every_file_that_code_reads_is_installed():
    """A file that no pattern names would be missing in a wheel, and only there; CHANGES.md is not read by code."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    named = {
        path
        for package, globs in patterns.items()
        for glob in globs
        for path in (ROOT.rglob(glob) if package == "*" else (ROOT / package.replace(".", "/")).glob(glob))
    }
    tops = [ROOT / top for top in ("protocol", "actors", "sim")]
    files = {path for top in tops for path in top.rglob("*.*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {path.name for path in files - named} == {"CHANGES.md"}
    assert {"covariance_table.json", "page.css", "py.typed"} <= {path.name for path in files & named}
