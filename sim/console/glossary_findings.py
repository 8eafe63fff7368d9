"""The findings of an audit in plain sentences, by the stable ids that `sim.audit.findings` has.

The order is that of a reader: leaks of messages, then of noise, of sums, of uploads, and of proofs.
"""

from __future__ import annotations

from sim.console.term import Term

_FINDINGS = (
    Term(
        "undeclared-field",
        "a party received a field that the scheme does not declare",
        "Every scheme lists which fields each party may receive. The audit counts the fields of all messages in the "
        "views, and one that is not on the list breaks the claim.",
        "A party was told something that the scheme does not declare.",
        "keyhole audit RUN --only inventory",
    ),
    Term(
        "membership",
        "who took part in an iteration, or is in a sum, can be told",
        "Servers see who takes part in which iteration. Users are told counts at most; the audit tries how well they "
        "guess from these who else rated an item or took part.",
        "It may be known when you were there, even where it is not known what you sent.",
        "keyhole audit RUN --only attacks",
    ),
    Term(
        "support",
        "a party can tell which items a user rated, or how many users rated an item",
        "The support of a user is the set of items that the user rated. In most schemes a server reads it off the "
        "messages, whatever noise the ratings have; where it is randomized, the audit counts how many entries the best "
        "guess gets right. Exact counts of raters where noise is claimed are this finding as well.",
        "Which films you rated may say more about you, such as age or gender, than how you rated them.",
        "keyhole audit RUN --only attacks",
    ),
    Term(
        "known-envelope",
        "the party that dealt the envelopes knows how large the noise is",
        "The noise of an item is Laplace only for a party that does not know its envelope. The recommender deals the "
        "envelopes, so to it the noise is Gaussian of known size: an item with a small envelope has an ε far above the "
        "claimed one.",
        "Towards the recommender the claimed ε does not hold for every item.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "known-shares",
        "contributors who collude know their own shares of the noise and subtract them",
        "The noise of a sum is made of shares, one from each contributor. If c of k contributors collude, 1 − c/k of "
        "the variance is left; with the recommender and all contributors but one, the last one's number stands alone "
        "under its own share.",
        "You are protected by the noise of those who do not collude, which may be yours alone.",
        "keyhole audit RUN --coalition recommender+user:3",
    ),
    Term(
        "missing-noise",
        "a number has less noise than the scheme claims, or none",
        "The audit compares numbers with the noise that is claimed for them. Noise that is too small, absent or left "
        "out on some way breaks the claim.",
        "The claimed ε is false for these numbers: treat them as if they were in the clear.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "uniform-noise",
        "noise from a bounded interval rules out ratings for certain",
        "Uniform noise of ±γ has no finite ε: two ratings more than 2γ apart can never give the same number. An upload "
        "then rules out some ratings, or leaves only the true one; fresh uploads of the same rating narrow it further.",
        "Your rating may be known for certain, although it was perturbed.",
        "keyhole audit RUN --only attacks",
    ),
    Term(
        "composition",
        "all releases together give away more than the ε of one",
        "The published ε is about one release, or one entry. A rating is in many releases, and a user has many "
        "entries, so that the ε of all of them together is larger.",
        "Read the accounted ε of the whole run, not the claimed one of a release.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "diluted-sum",
        "the noise stays whole while only some of the raters are in the sum",
        "In the scheme dynamic the objective noise is made for all users who joined with an item, and is added to the "
        "gradients of the few who are online. Their weight against the noise is then smaller than published, by the "
        "factor k/k': accuracy suffers, not privacy.",
        "It costs you recommendations, not secrecy.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "single-contributor",
        "a released sum has one contributor only",
        "A sum over one user is no aggregate: it is that user's own number, with nothing but noise to hide it.",
        "If no other user rated what you rated, its sums are about you.",
        "keyhole audit RUN --only attacks",
    ),
    Term(
        "released-sums",
        "users can work out the sums from the item factors that they receive",
        "An item factor changes from one iteration to the next by a known multiple of the noisy sum. A user who has "
        "both can compute the sum, and users who subtract their own numbers can get at the last other contributor.",
        "Not only the servers see the sums that you are in: every user who rated the same item does.",
        "keyhole audit RUN --only algebra --only attacks",
    ),
    Term(
        "difference-attack",
        "two uploads of a user differ without noise, and that gives the ratings",
        "If the same noise is in two uploads, it cancels when one is subtracted from the other. What is left are exact "
        "differences of a user's gradients, from which the ratings follow.",
        "Your ratings can be computed, not just guessed.",
        "keyhole audit RUN --only attacks",
    ),
    Term(
        "unmasking",
        "masks are undone, and a single user's number is read",
        "Both servers together can always subtract the masks, since one dealt them and the other has the masked "
        "values; the schemes assume that they do not collude. If one server alone can do it, the claim is broken.",
        "Your numbers are hidden by masks only while the two servers keep apart.",
        "keyhole audit RUN --coalition recommender+third_party",
    ),
    Term(
        "mask-uniformity",
        "masked values are not uniform, as they must be",
        "A masked value says nothing only if it is uniform on the ring. Statistical tests of what a server received "
        "find masks that are missing, biased or used twice; silence means that they found nothing, not that masks are "
        "perfect.",
        "If this is found, what you uploaded can be told from random numbers.",
        "keyhole audit RUN --only statistics",
    ),
    Term(
        "rating-inference",
        "ratings are guessed from noisy numbers better than without them",
        "The audit computes the most probable rating, given what a coalition sees of one user, and counts how many it "
        "gets right. Chance is what guessing without the view gives; more than the noise permits breaks the claim.",
        "The share that is right is how well your ratings are known, whatever ε is printed.",
        "keyhole audit RUN --only attacks",
    ),
    Term(
        "moving-user-factors",
        "one rating moves the user factors, which the proof holds fixed",
        "The proof of the scheme trusted compares two data sets with the same user factors. In truth one changed "
        "rating changes these as well, and what the proof bounds by ε can be many times larger.",
        "The claimed ε rests on an assumption that does not hold when your rating changes.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "reacting-user-factors",
        "one rating changes the user's gradients of all items, not of one",
        "The proof bounds how far one rating moves one gradient. From the second iteration on the user's own factors "
        "have reacted to that rating, and with them the gradients of all items of the user: together they can move "
        "further than the bound.",
        "Your rating of one item shows in the sums of all items that you rated.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "sensitivity",
        "one user or one rating moves a sum further than its noise is made for",
        "Noise is made for a largest change, the sensitivity of a sum. The audit adds and removes users or ratings, "
        "and a change beyond the sensitivity breaks the claim.",
        "If a sum moves further than its noise allows for, the claimed ε is false.",
        "keyhole audit RUN --only accounting",
    ),
)
FINDINGS: dict[str, Term] = {term.name: term for term in _FINDINGS}
