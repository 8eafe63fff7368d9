"""A proof to two servers, who hold shares of a user's vector, that it is no longer than its bound.

    norm_statement.py    what is proved, how long it is, and how its numbers stand in a table
    norm_prover.py       the user's three messages
    norm_verifier.py     what a server computes of its shares, and the decision
    norm_roles.py        the roles of a run with `--set proof=norm`

It is in the manner of Prio3 and PINE: a fully linear proof over a prime field, and a test by random projections that
no sum of squares wraps. `keyhole bench norm-proof` measures it outside of runs.

## Steps

A user has parts v_1, v_2, … of integers (unit vectors, and its noise), and a bound B_i on the sum of squares of each.
Everything that it sends is split in two mod p: the recommender's half follows from the mask key, the third party gets
the rest. Each challenge is the third party's, for each user its own, drawn from its tape and sent once the message
before has arrived from that user.

    1  user -> third party   all v_ij, and the binary digits of every slack B_i − Σ v_ij²
    2  third party -> user   key of the tests: 64 rows of w_j in {−1, 0, 0, 1}
    3  user -> third party   the binary digits of every Σ w_j v_j + 2^h
    4  third party -> user   key of the weights, random field elements
    5  user -> third party   blinds, and a polynomial P
    6  third party -> recommender   all keys, a point ρ, and its halves of the numbers below
    7  recommender -> third party   who is accepted

Step 1 carries x + e and e, each under its own mask; the parts are e and the unit vectors in the difference.

The wires of the proof are all v_ij times a weight τ_i, and all digits, each times a weight of its own. They stand in
rows of N − 1; f_r is the polynomial of row r, with a random blind at the power 0 of an N-th root of unity and the
wires at the powers 1 to N − 1. P = Σ f_r². The servers open every f_r(ρ), P(ρ), and one sum

    Σ_(1 ≤ k < N) P(ω^k) − Σ_i τ_i² (B_i − slack_i) − Σ τ_d² d + Σ σ_t (Σ w_tj v_j + 2^h − digits of test t)

over all parts i, digits d and tests t. All of it is linear in what they hold shares of. They accept if P(ρ) = Σ f_r(ρ)²
and the sum is 0. Who is not accepted, or does not answer, is no contributor; the floor of contributors stays.

## Soundness against users

Claim: if the servers follow the steps, a user for whom some part has Σ_j v_ij² > B_i as integers in (−p/2, p/2) is
accepted with probability at most 2^-64 + (2N − 2)/(p − N) + 2/p for each upload: below 2^-56 on MovieLens-100k, and at
most 2^-52, as larger statements are refused. Of k hostile users in r rounds, one gets through k·r times as often.

*The point.* P and all f_r are fixed before ρ. If P ≠ Σ f_r², both of degree at most 2N − 2, they agree at no more than
2N − 2 points, and ρ is one of p − N.

*The weights.* Otherwise Σ_k P(ω^k) is the sum of all squared wires, and the opened sum is a polynomial in the weights,
Σ τ_i² (Σ_j v_ij² + slack_i − B_i) + Σ τ_d² (d² − d) + Σ σ_t (…), whose coefficients were fixed before them. If one of
these is not 0, it vanishes with probability at most 2/p. So all digits are 0 or 1, every test lies in a set I of
2^(h+1) consecutive residues, and Σ_j v_ij² ≡ B_i − slack_i mod p with 0 ≤ slack_i < 2^b.

*The tests.* Let |v_j| ≥ 2^(h+1) for some j, and fix all other terms of a test. No two elements of I differ by ±v_j. So
if the test passes with w_j = 0, it fails with 1 and with −1; it passes with probability 1/2 at most. The rows are
independent and drawn after step 1: all 64 pass with probability at most 2^-64.

*Integers.* Otherwise Σ_j v_ij² + slack_i ≤ L 4^(h+1) + 2^b < p, which `NormStatement` checks, so the congruence is an
equation and the part keeps its bound. A slack alone would not do: p ≡ 1 mod 4, so −1 has a root ι, and X and ιX have
squares that add up to 0, whatever X is.

Challenges come after each message, so no random oracle is assumed, and a user has one try: its second message of a kind
is refused. The third party must keep its tape from users, and use it for one run: who starts the parties of one roster
twice, each time from nothing, asks the same again, and a user that has seen the keys of the tests and weights can then
choose a vector that passes. A run that goes on from its views is one run.

## Completeness

An honest user is refused if a test leaves ±2^h, with probability below 2^-60 over the tests (`reach`), or if its noise
is longer than its bound, with probability below 2^-60 over its shares (`noise_square`). It then is a drop-out, and the
recommender reads which test or bound it was: n users in r rounds add less than n·r·2^-59 to δ.

## Zero knowledge to each server

The third party sees its halves, which are uniform, and who is accepted; the recommender sees its own, which it can make
itself, the challenges, and the third party's halves of the opened numbers. Of an honest user that is accepted these can
be simulated without its vector: choose f_r(ρ) uniform, P(ρ) = Σ f_r(ρ)², the sum 0, and subtract the own halves. That
is their exact law: ρ is no N-th root of unity, so the weight of its blind in f_r(ρ) is not 0. (Blinds and masks are
streams of SHAKE-256: exact if these are random, else as far as they cannot be told from it.) Hence nothing is spent of
ε. This is for servers that follow the steps and do not collude. A user answers one challenge of each kind, as a second
would be under the same mask and the same blinds. The price is what both servers together read: the vector itself, where
without proofs a share of the noise lies on it.

## What the noise can carry, and why it is turned

The noise of an honest user is several times as long as its unit vectors: with a share scale of 185 at 3,364 places,
which is MovieLens-100k at ε = 1, about 10,730 where √2·A is 1,448. A proof about x + e, or about x and e apart, leaves
a user free to send e of that length and any direction. The remedy is that the servers add e with its places permuted
and its signs flipped, by a key for each user that the third party draws and never tells it (`turned`). Shares are
independent, with one law that is symmetric but for 2^-128, so an honest user's noise keeps its law, whatever the key. A
dishonest e, fixed before the key is used, becomes a vector with mean 0 and covariance |e|²/L times the identity: no
more variance, in any direction, than the noise it stands for, up to the room in its bound (a factor of 1.25 at 3,364
places). Its law need not be Gaussian: all of it may lie on one place, but not on a place that anybody chose.
"""
