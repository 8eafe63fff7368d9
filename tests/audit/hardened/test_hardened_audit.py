"""The audit of `hardened`: its claim holds, up to the provisioned number of colluders; planted faults show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.audit import made

from protocol.arithmetic.tape import Tape
from protocol.party.role import Send
from protocol.schemes import find_scheme
from protocol.schemes.base import Shape
from protocol.schemes.composition import gaussian_epsilon
from protocol.schemes.hardened import hardened_params, share_law
from protocol.schemes.hardened.hardened import Hardened
from protocol.schemes.hardened.hardened_roles import HardenedRecommender, HardenedUser, masks_of
from sim.audit import audit as audit_module
from sim.audit import questions
from sim.audit.algebra.solve import library_of, solve_one
from sim.audit.audit import Audit, audit, brief
from sim.audit.canary.empirical import measure
from sim.audit.families.hardened import hardened_family
from sim.audit.families.hardened.hardened_family import HardenedFamily
from sim.audit.families.hardened.own_presence import measure_own
from sim.console.console import out
from sim.folder.folder import read_summary
from sim.tables.audit_tables import show_audit, show_parties
from sim.tables.pair_tables import show_losses
from sim.tables.run_figures import show_figures

QUICK = ["inventory", "algebra", "attacks", "accounting", "statistics"]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Make a run of two rounds: whatever is asked of one is asked of both."""
    return made(tmp_path_factory.mktemp("hardened") / "run", "hardened", options={"rounds": 2})


def test_the_claim_holds_and_nothing_beyond_what_is_declared_leaks(case):
    asked = Audit(case.folder)
    asked.repetitions = 800
    document = asked.ask()
    assert document["verdict"] == "within-claims" and document["not_shown"] == []
    claim = document["published_claim"]
    assert claim["status"] == "holds" and 7.999 < claim["shown"] <= 8.0
    assert {one["id"] for one in document["findings"] if one["severity"] == "weak"} == {"unmasking"}
    rows = {"+".join(row["members"]): row for row in document["parties"]}
    assert rows["recommender"]["determines"] == rows["recommender"]["permitted"] == "aggregate"
    assert rows["third_party"]["determines"] == "nothing"
    assert rows["recommender+third_party"]["determines"] == "noisy-individual"
    assert not any(row["support"] for row in rows.values())
    rows = [row for row in document["empirical"]["rows"] if row["arm"] == "release" and "last" not in row["statistic"]]
    bounds = {tuple(row["coalition"]): row for row in rows}
    tight = bounds["recommender", "user"]
    assert 0.6 * tight["claimed_mu"] < tight["lower_bound_mu"] < tight["claimed_mu"], "the canary comes near the claim"
    assert bounds["recommender",]["lower_bound_mu"] < tight["lower_bound_mu"], "outsiders face one share more"
    assert all(0.98 < part <= 1.0 for part in document["accounting"]["sensitivity"]["largest"].values())
    assert 0.8 * 8.0 < document["accounting"]["sensitivity"]["worst_pair_epsilon"] <= 8.0
    pair, own_kind = document["pairs"]["epsilon"]
    assert document["pairs"]["shape"]["leaks"] == [] and pair["coalition"] == ["recommender"]
    assert pair["epsilon"] < 15.0 and pair["shift"] <= 1.0, "a changed value is two presences"
    assert "is there with its ratings or not" in own_kind["pair"] and 0.8 * 8.0 < own_kind["epsilon"] <= 8.0
    own = document["empirical"]["own_ratings"]
    assert (own["canaries"], own["users"], own["releases"]) == (36, 36, 2), "all users but those that collude"
    rows = [row for row in document["empirical"]["rows"] if row["arm"] == "own ratings"]
    assert len(rows) == 2 and not any(row["exceeds"] for row in rows)
    assert 0.5 < document["pairs"]["shift"]["largest_release"] <= 1.0, "a changed value moves a vector by 2A at most"


@pytest.mark.parametrize("unit", ["user", "rating", "value"])
def test_the_worst_pair_comes_near_the_claim_of_each_unit_and_stands_in_the_table(unit, tmp_path):
    made(tmp_path / "run", "hardened", unit=unit, epsilon=4.0)
    document = audit(tmp_path / "run", only=["pairs", "accounting"])
    assert document["verdict"] == "within-claims"
    assert 0.8 * 4.0 < document["accounting"]["sensitivity"]["worst_pair_epsilon"] <= 4.0
    rows = document["pairs"]["epsilon"]
    assert len(rows) == (1 if unit == "value" else 2), "with the unit value, a changed value is the pair of the claim"
    assert 0.8 * 4.0 < rows[-1]["epsilon"] <= 4.0 and rows[-1]["shift"] <= 1.0
    with out.capture() as shown:
        show_losses(rows, "ε of the worst pairs found")
    words = " ".join(shown.get().split())
    assert f"{rows[-1]['epsilon']:.3g}" in words and ("or not" in words) == (unit == "user")


def test_no_rating_is_told_from_the_totals_beyond_what_the_noise_permits(case, tmp_path):
    """The recommender, alone and with users, has at a small ε what a coin has; without noise it has everything."""
    for unit in ("user", "rating", "value"):
        folder = made(tmp_path / unit, "hardened", unit=unit, epsilon=0.5).folder
        document = audit(folder, only=["algebra", "attacks"])
        told = [one for one in document["findings"] if one["id"] == "membership"]
        assert [one["coalition"] for one in told] == [["recommender"], ["recommender", "user:0", "user:1", "user:2"]]
        for one in told:
            assert one["severity"] == "info" and one["measured"]["at_chance"]
            assert one["measured"]["permitted"] < 0.56
        silent = made(tmp_path / f"silent-{unit}", "test_hardened_audit:Silent", unit=unit, epsilon=0.5)
        document = audit(silent.folder, only=["algebra", "attacks"])
        told = [one for one in document["findings"] if one["id"] == "membership"]
        assert len(told) == 2 and document["verdict"] == "beyond-claims"
        for one in told:
            assert one["severity"] == "break" and one["measured"]["accuracy"] == 1.0


@pytest.mark.parametrize("options", [{}, {"unit": "rating"}, {"unit": "value"}, {"options": {"rounds": 2}}], ids=str)
def test_own_canaries_stay_below_the_claim_and_find_too_little_noise(options, tmp_path):
    case = made(tmp_path / "run", "hardened", epsilon=1.0, **options)
    shown = []
    for number in range(20):
        rows, own = measure_own(case, 2000, bytes([number]) * 32)
        shown += [row.alone.mu for row in rows]
        assert own["canaries"] == len(rows[0].observed) and own["largest_loss"]["most"] <= 1.0
        assert not any(row.exceeds for row in rows), "an alarm of this has a probability of .001"
    claimed = rows[0].statistic.claimed_mu
    assert sum(mu > claimed for mu in shown) <= 4, "of 40 at 95 %"
    fault = made(tmp_path / "fault", "test_hardened_audit:Silent", epsilon=1.0, **options)
    rows, _ = measure_own(fault, 2000, bytes(32))
    assert any(row.exceeds for row in rows)


def test_known_shares_of_the_provisioned_users_leave_the_noise_that_the_claim_needs(case):
    library, params = library_of(case), case.card.params
    assert (params.n_users, params.spare) == (40, 4)
    for colluding, least in ((0, 40 / 36), (4, 1.0), (8, 32 / 36)):
        members = ("recommender", *(f"user:{user}" for user in range(colluding)))
        answer = solve_one(case, library, members).answer
        assert (answer.determines, answer.smallest_group) == ("aggregate", 40 - colluding)
        assert answer.noise_left == {"share": pytest.approx(least)}


def test_what_is_left_with_colluders_is_the_same_everywhere_and_is_shown(case):
    """None, one, a tenth and half of 40 users: in the summary, in the audit and on both screens; others on demand."""
    summary, params = read_summary(case.folder), case.card.params
    left = summary["privacy"]["accounted"]["colluders"]
    document = audit(case.folder, ["recommender+user:1+user:2", "recommender+user:4"], only=["algebra", "accounting"])
    assert document["accounting"]["colluders"] == left and list(left) == ["0", "1", "10 %", "50 %"]
    assert list(left.values()) == [gaussian_epsilon(params.mu(40 - users), 1e-5) for users in (0, 1, 4, 20)]
    figures = [f"{epsilon:.3g}" for epsilon in left.values()]
    assert figures[2] == "8" and len(set(figures)) == 4
    for show in (lambda: show_audit(document, False), lambda: show_figures(summary, case.card)):
        with out.capture() as shown:
            show()
        rows = [line.split() for line in shown.get().splitlines()]
        found = [row[-2] for row in rows if len(row) > 3 and row[1] in ("none", "1", "10", "50")]
        assert [row for row in found if row in figures][:4] == figures, shown.get()
    account = HardenedFamily(case.card.scheme).accounted
    two = account(document["accounting"], ("recommender", "user:1", "user:2"))
    assert two.figure == f"≤ {gaussian_epsilon(params.mu(38), 1e-5):.3g}" and "2 shares" in two.why
    assert "∞" in account(document["accounting"], ("recommender", *(f"user:{u}" for u in range(40)))).figure


def test_which_items_round_two_is_about_follows_from_the_sums_and_is_declared(tmp_path, monkeypatch):
    monkeypatch.setattr(hardened_params, "TASTE_ITEMS", 20)  # fewer than there are
    made(tmp_path / "run", "hardened", options={"rounds": 2})
    document = audit(tmp_path / "run", only=["pairs"])
    assert document["verdict"] == "within-claims" and document["pairs"]["interference"]["leaks"] == []


def test_at_the_end_of_a_long_run_the_algebra_is_left_to_the_audit(case, monkeypatch):
    summary = {"run": str(case.folder), "ratings": {"train": 500}, "iterations": 2}
    assert brief(summary)["parties"], "so few numbers are followed"
    monkeypatch.setattr(audit_module, "MOST_IN_VECTORS", 100)
    monkeypatch.setattr(questions, "MOST_IN_PASSING", 40 * 120 - 1)
    document = brief(summary)
    assert "Users sent 4800 numbers in the first round" in document["unanswered"]["algebra"]
    assert document["parties"] == []


def test_of_long_vectors_the_algebra_asks_a_sample_and_says_so(case, tmp_path, monkeypatch):
    """A sample answers as all places do, and finds a fault of all places."""
    whole = library_of(case)
    monkeypatch.setattr(hardened_family, "FOLLOWED", 1000)
    monkeypatch.setattr(hardened_family, "PLACES", 5)
    monkeypatch.setattr(questions, "MOST_NUMBERS", 1000)
    sampled, servers = library_of(case), ("recommender", "third_party")
    assert (len(sampled.release_items), len(whole.release_items)) == (2 * 5, sum(case.card.params.lengths))
    colluding = tuple(f"user:{user}" for user in range(3))
    for members in (*((server,) for server in servers), servers, ("recommender", *colluding), colluding):
        one, other = (solve_one(case, library, members).answer for library in (sampled, whole))
        for name in ("determines", "smallest_group", "individuals", "noise_left", "noises", "undecided"):
            assert getattr(one, name) == getattr(other, name)
    words = "asked of 5 places, drawn by the run id, of 120: all are treated alike"
    document = audit(made(tmp_path / "run", "hardened").folder, only=["algebra"])
    assert document["verdict"] == "within-claims" and not document["unanswered"]
    assert all(row["sample"] == words and words in row["works_out"] for row in document["parties"])
    with out.capture() as shown:
        show_parties(document["parties"])
    assert words in " ".join(shown.get().split())
    naked = made(tmp_path / "naked", "test_hardened_audit:Naked")
    found = {(one["id"], one["severity"]) for one in audit(naked.folder, only=["algebra"])["findings"]}
    assert ("unmasking", "break") in found


# --- planted faults --------------------------------------------------------------------------------------------------


class HalfUser(HardenedUser):
    """Draws its share at half of the scale that the parameters state."""

    def scale(self):
        return self.params.first_scale // 2

    def _upload(self, iteration, vector):
        whole, self.params = self.params, dataclasses.replace(self.params, first_scale=self.scale())
        try:
            return super()._upload(iteration, vector)
        finally:
            self.params = whole


class SilentUser(HardenedUser):
    def _upload(self, iteration, vector):
        whole, self.params = self.params, dataclasses.replace(self.params, first_scale=0, second_scale=0)
        try:
            return super()._upload(iteration, vector)
        finally:
            self.params = whole


class Silent(Hardened):
    """Nobody adds noise."""

    def make_role(self, party, setting, tape, inputs):
        return SilentUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class QuietEndUser(HardenedUser):
    """Draws the share of the second round at a fifth of its scale."""

    def _upload(self, iteration, vector):
        whole = self.params
        self.params = dataclasses.replace(whole, second_scale=whole.second_scale // 10)
        try:
            return super()._upload(iteration, vector)
        finally:
            self.params = whole


class QuietEnd(Hardened):
    def make_role(self, party, setting, tape, inputs):
        return QuietEndUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class Half(Hardened):
    def make_role(self, party, setting, tape, inputs):
        return HalfUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class NearlySilentUser(HalfUser):
    def scale(self):
        return 3 << share_law.SCALE_BITS


class OneSilent(Hardened):
    """One user of all has a share of hardly any size."""

    def make_role(self, party, setting, tape, inputs):
        silent = party == "user:7"
        return NearlySilentUser(setting, tape, inputs) if silent else super().make_role(party, setting, tape, inputs)


class Twins(Hardened):
    """Two users at a time draw the same share."""

    def make_role(self, party, setting, tape, inputs):
        if inputs is not None:
            tape = Tape(bytes([int(party.partition(":")[2]) // 2]) * 32)
        return super().make_role(party, setting, tape, inputs)


class NakedUser(HardenedUser):
    """Sends x + e without its mask."""

    def _upload(self, iteration, vector):
        send = super()._upload(iteration, vector)
        bare = self.setting.ring.subtract(send.message.values, masks_of(self.setting, self.mask_key, iteration))
        return Send(send.to, dataclasses.replace(send.message, values=bare))


class Naked(Hardened):
    def make_role(self, party, setting, tape, inputs):
        return NakedUser(setting, tape, inputs) if inputs else super().make_role(party, setting, tape, inputs)


class TellingRecommender(HardenedRecommender):
    """Publishes other numbers than those of the noisy sums."""

    def _open(self, total):
        effects = super()._open(total)
        told = next(each.message for each in effects if isinstance(each, Send))
        other = dataclasses.replace(told, qualities=told.qualities + np.float32(0.01))
        return [Send(each.to, other) if isinstance(each, Send) else each for each in effects]


class Telling(Hardened):
    def make_role(self, party, setting, tape, inputs):
        made_ = TellingRecommender(setting, tape) if party == "recommender" else None
        return made_ or super().make_role(party, setting, tape, inputs)


FAULTS = {
    "Half": "missing-noise",
    "OneSilent": "missing-noise",
    "Twins": "missing-noise",
    "Naked": "mask-uniformity",
    "Telling": "missing-noise",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, tmp_path):
    made(tmp_path / "run", f"test_hardened_audit:{name}", epsilon=1.0)
    document = audit(tmp_path / "run", only=QUICK)
    breaks = {one["id"] for one in document["findings"] if one["severity"] == "break"}
    assert FAULTS[name] in breaks
    assert document["verdict"] == "beyond-claims" and document["published_claim"]["status"] == "refuted"


def test_the_canary_finds_half_of_the_noise_and_unmasked_uploads():
    for scheme, worst in ((Half(), "missing-noise"), (Naked(), "mask-uniformity")):
        document, found = measure(None, scheme, epsilon=2.0, repetitions=1200, workers=1)
        assert worst in {one.id for one in found if one.severity == "break"}
        assert any(row["exceeds"] for row in document["rows"])
    document, found = measure(None, find_scheme("hardened"), epsilon=2.0, repetitions=1200, workers=1)
    assert not [one for one in found if one.severity != "info"] and len(document["rows"]) == 3


@pytest.mark.parametrize("options", [{"unit": "value"}, {"rounds": 2}, {"selected": 10}], ids=str)
def test_the_canary_plays_the_rounds_and_the_unit_of_the_run(options):
    shape = Shape(40, 60, (1.0, 5.0), (20,) * 40, np.full(60, 13))
    params, _ = Hardened().make_params(shape, epsilon=8.0, delta=1e-5, **options)
    document, found = measure(None, find_scheme("hardened"), params, repetitions=1200, workers=1)
    assert not [one for one in found if one.severity != "info"]
    (tight,) = [row for row in document["rows"] if row["statistic"] == "the sums less that share"]
    assert tight["releases"] == params.rounds == (1 if "unit" in options else 2)
    assert 0.6 * tight["claimed_mu"] < tight["lower_bound_mu"] < tight["claimed_mu"]
    if params.rounds == 2:  # too little noise in the second round alone
        document, found = measure(None, QuietEnd(), params, repetitions=1200, workers=1)
        assert "missing-noise" in {one.id for one in found if one.severity == "break"}
