"""A data pair: messages to other users may depend on one user's rating only where noise covers it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.audit import audited, made

from protocol.arithmetic.tape import Tape
from protocol.party.role import RECOMMENDER, Send
from protocol.schemes.factorization.trusted import Trusted, TrustedRecommender, fresh_item_factors
from protocol.wire.messages import Publication
from sim.audit.accounting.data_pair import FreshNoise, choose_flip, compare, data_pair
from sim.audit.audit import audit
from sim.views.exhibits import Exhibits

OLD = "support.schemes.broken:TellsProfiles"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return made(tmp_path_factory.mktemp("old") / "run", OLD)


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    return made(tmp_path_factory.mktemp("new") / "run", "trusted")


def test_profiles_that_were_trained_on_everybodys_ratings_are_found(old):
    document, found = data_pair(old)
    others = old.card.params.n_users - 1
    fields = {row["field"]: row for row in document["fields"]}
    assert fields["user_factors"]["bare"] == others  # every other user's
    assert fields["factors"]["changed"] == others and fields["factors"]["bare"] == 0  # covered by η
    assert [(one.id, one.severity, one.coalition) for one in found] == [("missing-noise", "break", ("user",))]
    assert found[0].measured["messages"] == found[0].measured["others"] == others
    assert f"{others} of {others} other users" in found[0].title and "up to" in found[0].evidence


def test_the_old_form_is_beyond_its_claims_and_the_new_one_within(old, new):
    verdicts = [audit(case.folder, only=["accounting"]) for case in (old, new)]
    assert [one["verdict"] for one in verdicts] == ["beyond-claims", "within-claims"]
    assert not verdicts[0]["unanswered"]
    (row,) = verdicts[1]["accounting"]["data_pair"]["fields"]
    assert (row["kind"], row["field"], row["bare"]) == ("Publication", "factors", 0)
    assert row["changed"] == row["messages"] == verdicts[1]["accounting"]["data_pair"]["others"] > 0


@pytest.mark.parametrize("scheme", ["masked", "dynamic", "direct", "plain", "laplace-ratings", "hybrid"])
def test_nothing_is_asked_where_no_rating_is_handed_over_as_it_is(tmp_path, scheme):
    assert data_pair(made(tmp_path / "run", scheme)) == ({}, [])


@pytest.mark.parametrize("publish", ["all", "rated"])
@pytest.mark.parametrize(("factor_bits", "epsilon"), [(32, 8.0), (16, 8.0), (16, 1e6)])
def test_a_correct_trusted_recommender_is_never_accused(tmp_path, publish, factor_bits, epsilon):
    """This includes a recommender whose noise is lost in 16 bits."""
    case = made(tmp_path / "run", "trusted", publish=publish, factor_bits=factor_bits, epsilon=epsilon, seed=7)
    document, found = data_pair(case)
    assert document["fields"] and not found


@pytest.mark.parametrize("flags", [{}, {"options": {"predictor": "knn"}}, {"epsilon": 1e6}])
def test_a_correct_covariance_recommender_is_never_accused(tmp_path, flags):
    document, found = data_pair(made(tmp_path / "run", "covariance", **flags))
    assert document["fields"] and not found


class OneItemBare(TrustedRecommender):
    """Publishes the most rated item from a minimiser without η."""

    def _publish(self):
        from protocol.schemes.factorization.trusted import RatingBook, noisy_item_factors

        *sends, done = super()._publish()
        book = RatingBook(self.handed, self.params.n_items)
        exact = dataclasses.replace(self.params, epsilon=float("inf"))
        item = int(book.n_raters.argmax())
        row = noisy_item_factors(book, self.profiles, exact, self.tape)[item]
        factors = sends[0].message.factors.copy()
        factors[item] = row
        return [*(Send(one.to, Publication(one.message.iteration, factors)) for one in sends), done]


class BareItem(Trusted):
    name = "bare-item"

    def make_role(self, party, setting, tape, inputs):
        if party == RECOMMENDER:
            return OneItemBare(setting, tape)
        return super().make_role(party, setting, tape, inputs)


def test_one_item_without_noise_among_many_with_noise_is_found(tmp_path):
    _, found = data_pair(made(tmp_path / "run", "test_data_pair:BareItem"))
    assert [(one.id, one.severity) for one in found] == [("missing-noise", "break")]


def test_the_flip_goes_to_the_other_end_of_the_scale(tmp_path):
    """Item 1 has the most raters; user 2 has the fewest ratings among them."""
    case = audited(tmp_path, [{0: 5, 1: 3, 2: 1}, {1: 2, 2: 4}, {1: 5}], "trusted")
    flip = choose_flip(case.card.params, list(Exhibits(case, (RECOMMENDER,)).received(RECOMMENDER)))
    assert (flip.user, flip.item, flip.rating, flip.other) == (2, 1, 5.0, 1.0)
    assert flip.message.values.tolist() == [1.0]


def test_the_fresh_tape_begins_with_the_same_factors_and_draws_other_noise(new):
    params, own = new.card.params, Tape(bytes(32))
    fresh = FreshNoise(own)
    assert np.array_equal(fresh_item_factors(params, own), fresh_item_factors(params, fresh))
    assert not np.array_equal(own.normal(3, 2, "eta"), fresh.normal(3, 2, "eta"))
    assert own.key("noise") != fresh.key("noise")


def test_rows_are_judged_one_by_one():
    base, other = np.zeros((3, 2)), np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    fresh = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 0.0]])  # noise that moves the second row only
    assert compare(base, other, base, fresh) == (2.0, 2.0)
    flipped = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 7.0]])  # and with the flipped rating the third
    assert compare(base, other, base, fresh, other, flipped) == (2.0, 0.0)
    assert compare(base, base, base, fresh) == (0.0, 0.0)
    assert compare(base, other[:2], base, fresh)[1] == float("inf")  # a length that follows the rating alone
