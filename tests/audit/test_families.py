"""Every scheme is asked what its family knows; a scheme without one is asked nothing, in words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from example_shares import Shares
from support.audit import made

from protocol.schemes import SCHEMES, Scheme
from protocol.schemes.factorization.dynamic import Dynamic
from sim.audit.accounting.epsilon_cells import EpsilonEntry
from sim.audit.audit import audit
from sim.audit.families.direct.direct_family import DirectFamily
from sim.audit.families.registry import family_of
from sim.report.verdict.three_epsilons import accounted
from sim.tables.audit_tables import show_audit

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "plain": "DirectFamily",
    "trusted": "TrustedFamily",
    "direct": "DirectFamily",
    "masked": "MaskedFamily",
    "dynamic": "MaskedFamily",
    "covariance": "CovarianceFamily",
    "covariance-masked": "CovarianceFamily",
    "hardened": "HardenedFamily",
    "hybrid": "CovarianceFamily",
    "laplace-ratings": "CollectionFamily",
    "randomized-response": "CollectionFamily",
}


class Own(Dynamic):
    """Changes nothing."""


class Unknown(Shares):
    """Is neither a factorization nor of a family that is known."""

    flags = frozenset({"epsilon"})


class Stepping(Shares):
    """Is a factorization of no kind that is known."""

    factorizes = True


def name_of(scheme: Scheme) -> str:
    return type(family_of(scheme)).__name__


def test_every_scheme_has_a_family():
    assert {name: name_of(scheme()) for name, scheme in SCHEMES.items()} == FAMILIES


def test_a_scheme_of_ones_own_has_the_family_of_what_it_extends():
    family = family_of(Own())
    assert name_of(Own()) == "MaskedFamily" and family.masks and family.commits
    assert not family_of(SCHEMES["masked"]()).commits
    assert (name_of(Stepping()), name_of(Unknown())) == ("FactorizationFamily", "Family")


def test_what_a_family_accounts_is_shown_by_terminal_and_page_without_their_knowing_it(tmp_path, capsys, monkeypatch):
    rows = [{"to": "a passer-by", "median": 1.25, "p99": None, "worst": 2.5}]
    own = {"method": "by heart", "composed": {"tight": 2.5}, "rows": rows}
    monkeypatch.setattr(DirectFamily, "account_claim", lambda self, case, head: ({**head, **own}, []))
    monkeypatch.setattr(DirectFamily, "accounted", lambda self, found, members: EpsilonEntry("2.5", found["method"]))
    monkeypatch.setattr(DirectFamily, "bound", lambda self, found, findings: None)
    case = made(tmp_path / "run", "direct")
    document = audit(case.folder, only=["accounting"])
    show_audit(document, everything=False)
    assert "a passer-by 1.25 2.5" in " ".join(re.sub("[│–]", " ", capsys.readouterr().out).split())
    assert accounted(document, case, ["recommender"]) == EpsilonEntry("2.5", "by heart")


def test_a_scheme_without_a_family_is_asked_nothing_in_words(tmp_path):
    made(tmp_path / "run", "test_families:Unknown", dim=1, iterations=1)
    document = audit(tmp_path / "run", only=("accounting", "empirical", "statistics"), repetitions=400)
    assert "nothing is known of what its users send" in document["nothing_to_ask"]["empirical"]
    assert "nothing is accounted" in document["nothing_to_ask"]["accounting"]
    assert document["unanswered"] == {} and document["accounting"]["sensitivity"] == {}


def test_a_family_that_knows_nothing_offers_the_attack_on_what_users_name_alone():
    class Of:
        members = ("recommender",)

    family = family_of(Unknown())
    names = [attack.__name__ for attack in family.attacks(Of(), frozenset({"recommender"}))]
    assert names == ["attack_support", "attack_identity"] and list(family.attacks(Of(), frozenset())) == []
    assert family.channel(None, np.zeros(1)) is None and list(family.uploads(Of())) == []


@pytest.mark.parametrize(
    "code",
    [
        "from sim.cli.app import app",
        "import sim.run.run",
        "import sim.audit.families.registry",
        "from sim.audit.families.registry import family_of; from protocol import Masked; family_of(Masked())",
    ],
)
def test_the_code_of_other_families_is_not_imported(code):
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    found = {name.split(".")[3] for name in ended.stdout.split() if name.count(".") == 4 and ".families." in name}
    assert found == ({"factorization", "masked"} if "Masked" in code else set())
