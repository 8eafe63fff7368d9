"""The terms of Keyhole that a newcomer may not know: what each means, what it means for the user, and where to see it.

The texts are data: `keyhole explain` shows all of them, the page and the README only the dozen in `TERMS`.
"""

from __future__ import annotations

import difflib

from protocol.errors import BadInput
from sim.console.glossary_findings import FINDINGS
from sim.console.term import Term

__all__ = ["BASICS", "FINDINGS", "TERMS", "Term", "find_term"]

_TERMS = (
    Term(
        "release",
        "a number that leaves the protocol in the clear",
        "A release is a number that a party may read at the end of an iteration: in most schemes the noisy sum of all "
        "gradients of one item. The published ε is about one release. A run with 20 iterations makes up to 20 releases "
        "of every item, and together they give away more than one.",
        "The more often an item that you rated is released, the more can be worked out about your rating.",
        "keyhole audit RUN",
        ("released", "released sum"),
    ),
    Term(
        "envelope",
        "random numbers that decide how large the noise is",
        "Users add the noise of an item together, each a Gaussian share. The shares are multiplied by the root of an "
        "envelope, an exponential random number, so that their sum has the Laplace form that the proof needs. The "
        "recommender deals the envelopes, so it knows how large the noise of each release is.",
        "Against the recommender an item with a small envelope has little noise: there the claimed ε does not hold.",
        "keyhole audit RUN --only accounting",
    ),
    Term(
        "mask",
        "a uniform random number that hides one value",
        "A mask is a uniform random number that is added to a value before it is sent. Alone, the masked value says "
        "nothing; the masks of all users add up to a number that the recommender knows, so that the sum can be read.",
        "The third party sees your masked gradient and learns nothing from it, as long as it does not share its view "
        "with the recommender, who dealt the mask.",
        "keyhole view RUN third_party --iteration 0",
        ("masking", "masked value"),
    ),
    Term(
        "ring",
        "whole numbers that wrap around, such as modulo 2³²",
        "Masked values are whole numbers that wrap around like the digits of a mileage counter, modulo 2³² in most "
        "runs. In such a ring a uniform mask hides a value perfectly, and sums are exact. Ratings and gradients are "
        "rounded to a fixed unit to fit.",
        "Its size decides how much you upload: at 32 bits, four bytes for each masked number.",
        "keyhole bandwidth RUN",
        ("ring element", "modulus"),
    ),
    Term(
        "contributor",
        "a user whose numbers are in a sum",
        "A contributor to an item is a user who rated it, was invited to the iteration and answered in time. A sum of "
        "many contributors hides each of them; a sum of one is that user's own number, with noise alone to hide it.",
        "If you are the only contributor to an item, its sum is about you.",
        "keyhole view RUN recommender --kind Contributors",
        ("contribution",),
    ),
    Term(
        "floor",
        "the least number of contributors that noise counts on",
        "The floor of an item is the number of contributors that its noise is divided among, and the least number with "
        "which it is released (option min_contributors). With fewer the sum is kept back, or it would carry too little "
        "noise.",
        "A higher floor hides you among more people, and items that few rated are learned later or never.",
        "keyhole schemes masked",
    ),
    Term(
        "canary",
        "a test that measures ε instead of believing it",
        "A canary is one rating that is set once to the lowest and once to the highest value, thousands of times. How "
        "well an observer can tell the two apart gives an ε that is at least there, with a stated confidence. If it "
        "is above the claimed ε, the claim is refuted.",
        "It is an experiment, not a promise: it finds leaks, and its silence proves nothing.",
        "keyhole audit RUN --only empirical",
    ),
    Term(
        "seal",
        "a mask that keeps committed noise unread until it is used",
        "In the scheme dynamic users commit to the objective noise before the first iteration. Each share is blinded, "
        "and the total is under a seal, a mask that the other server holds: no party alone can read the noise, and it "
        "is the same in every iteration.",
        "Users may come and go without their noise being drawn anew, which would let it be averaged away.",
        "keyhole view RUN recommender --kind SealedTotal",
        ("sealed", "commitment"),
    ),
    Term(
        "anchor",
        "a digest of all views, to be kept elsewhere",
        "The anchor is one digest over the last entries of all views, printed when a run ends. A change to a view, "
        "even a consistent change to all of them, gives another anchor.",
        "Write it down in another place, and no other views can be handed to you as those of this run.",
        "keyhole verify RUN --anchor HEX",
    ),
    Term(
        "view",
        "the file with everything that one party saw",
        "A view is the record of one party: its input, every message received, what it sent, in order, in a hash chain "
        "with a signature at its end. What a party can have learned is in its view and nowhere else.",
        "What the third party knows about you is what its view holds; you can read it.",
        "keyhole view RUN PARTY",
    ),
    Term(
        "coalition",
        "parties that put their views together",
        "A coalition is a set of parties that share everything they saw, such as the recommender with three users. The "
        "schemes assume that some parties do not collude; the audit says what follows if they do.",
        "Ask about the parties that you do not trust to stay apart.",
        "keyhole audit RUN --coalition recommender+user:3",
        ("collusion", "colluder"),
    ),
    Term(
        "claim",
        "what the authors of a scheme say that it gives",
        "A claim is what was published about a scheme, such as ε = 8 for each release. Keyhole prints it as a claim, "
        "never as a result: beside it stand what an accountant makes of all releases and what a canary measured.",
        "Do not read the claimed ε as your protection in the whole run before you have seen the other two.",
        "keyhole schemes NAME",
        ("claimed", "published claim"),
    ),
)
_BASICS = (
    Term(
        "epsilon",
        "how much one rating may change what others see; small is private",
        "With ε = 1 a changed rating makes any outcome at most e ≈ 2.7 times as likely, with ε = 8 about 3,000 times. "
        "A figure at δ = 1e-5 may fail with about that probability. Two ε can be compared only if they are about the "
        "same thing, such as one rating in one release.",
        "Ask for whom and for what an ε holds: one release or the whole run, a server or another user.",
        "keyhole audit RUN --only accounting",
        ("ε", "eps", "delta", "δ"),
    ),
    Term(
        "gradient",
        "how a user would change the factors of an item to predict better",
        "A gradient is a short list of numbers, one for each dimension of the factors, that a user computes for every "
        "item that the user rated. The recommender moves an item's factors by the sum of its gradients. A gradient "
        "without noise or mask betrays the rating that it was made from.",
        "It is what you send instead of your rating, and it has to be hidden like one.",
        "keyhole view RUN user:3 --kind MaskedGradient",
    ),
    Term(
        "noise",
        "random numbers added so that one rating cannot be read off a result",
        "Noise is added to gradients, sums or ratings before a party reads them. How large it is follows from ε: half "
        "the ε, twice the noise. Objective noise (η) is drawn once for a run, iteration noise (ρ) anew in every "
        "iteration.",
        "More noise hides your ratings better and makes recommendations worse.",
        "keyhole compare --schemes plain,masked",
        ("noisy", "objective noise", "iteration noise"),
    ),
    Term(
        "aggregate",
        "a result of several users together, such as a sum",
        "Aggregate is one of four levels of what a party can work out about other users: nothing, aggregate, "
        "noisy-individual, exact-individual. It means sums of two or more users and no number of a single one.",
        "In an aggregate you are hidden among the others who are in it.",
        "keyhole audit RUN --only algebra",
        ("noisy individual", "exact individual", "individual"),
    ),
    Term(
        "declared",
        "what a scheme says beforehand that it gives away",
        "A scheme declares which fields each party receives, how much each may work out, and which weaknesses are "
        "known. What an audit finds is as declared or beyond it; a declared weakness is still a weakness.",
        "Read what is declared before you take part: the audit does not warn of it as news.",
        "keyhole schemes NAME",
        ("declared leakage", "leakage", "as declared", "known weakness", "weakness", "beyond claims", "within claims"),
    ),
)
TERMS: dict[str, Term] = {term.name: term for term in _TERMS}  # on the page and in the README
BASICS: dict[str, Term] = {term.name: term for term in _BASICS}  # too frequent for a link at each mention
_NAMES = {name: term for term in (*_TERMS, *_BASICS) for name in (term.name, *term.aliases)}
_NAMES |= {name.replace("-", " "): term for name, term in FINDINGS.items()}


def find_term(word: str) -> Term:
    """Find a term or a finding by its name, an alias or a plural; `BadInput` suggests the nearest match."""
    asked = " ".join(word.lower().replace("-", " ").replace("_", " ").split())
    for name in (asked, asked.removesuffix("es"), asked.removesuffix("s")):
        if name in _NAMES:
            return _NAMES[name]
    near = [_NAMES[name].name for name in difflib.get_close_matches(asked, _NAMES, 1, 0.5)]
    hint = f"did you mean {near[0]}?" if near else "keyhole explain lists the terms."
    raise BadInput(f"The glossary has no {word!r}: {hint}")
