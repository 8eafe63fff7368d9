"""A recommender that is not trusted: one masked sum of unit vectors, under noise that all users make together.

    budget.py            ε of the whole run -> μ -> the scale of one share; sensitivities; colluders
    share_law.py         the law of one share, from integers alone, and draws from it
    unit_vectors.py      what a user adds to the sum
    dense_sum.py         the third party's side: it adds, closes a round once, and enforces the floor
    item_sketch.py       the round before the table, where items are many: which of them it is about
    item_counts.py       public numbers of raters, likewise: with the unit value alone
    item_features.py     public descriptions of items, as part of the parameters
    item_posterior.py    noisy sums -> quality and popularity of every item
    item_table.py        what is published; each user predicts from it at home (`party/home_ridge.py`)
    taste.py             the second round: directions of taste, where n·μ says that it pays
    norm_proof/          a proof to both servers that a vector keeps its bound, and the roles that carry it
    hardened_params.py   the parameters        hardened_roles.py   the roles        hardened.py   the scheme

A round carries one vector of integers x_i from each of n users. `unit` says for whom the promise is made:

    user     x_i = (A·1_R/|1_R|, A·q/|q|), rounded so that each half has a norm of at most A; Δ = √2·A
    rating   x_i = (A at each rated item, the residual clipped to ±1.5 A); Δ ≈ 1.92 A
    value    x_i = the residual clipped to ±A alone, as counts are public; Δ ≈ 2.12 A

    round 2  x_i = one unit matrix over items and directions, unit `user` alone; Δ = A

Above 8192 items, unit `user`, the first round selects items instead, with a fifth of μ², and the second is that of the
table over these, with the rest; so a user's places take 48,000 bytes, however many items there are:

    sketch   x_i = one unit vector, 4 rows of signed counts of items by a public hash; Δ = A
    table    x_i as above, each half a unit vector over the selected items; Δ = √2·A

R are the items that the user rated, q its ratings less its own shrunk mean, A a power of two. Every user adds a share
e_i of noise at every place, round(N(0, s²)), and a mask; the third party adds up, the recommender subtracts the masks
and is left with Σ x_i + Σ e_i. Everything that is published follows from that and from public facts.

## Why the accounting is exact

Let C be the contributors of a round. The parameters fix a floor f = n − c, the third party releases nothing below it,
and the users that collude or leave out their noise are, with those that drop out, at most c. So at least f shares are
honest and unknown. Write Δ for the sensitivity in integers; s is chosen, upwards, with s ≥ Δ/(μ√f).

*Lemma 1 (rounding).* Let x be an integer vector and G any random vector. Then x + round(G) = round(x + G), because
rounding commutes with adding integers. So x + round(G) is computed from x + G without x: with G ~ N(0, σ²) it is a
post-processing of the Gaussian mechanism, and every (ε, δ) of that holds for it.

*Lemma 2 (sum of shares).* The sum of f independent shares has the law of round(G + U_1 + … + U_(f−1)), G ~ N(0, f s²),
U_i uniform on [−½, ½], up to an error in each probability of about 2 f e^(−a(1 − 1/f)) with a = 2π²s².

Proof. One share has the law p(k) = (φ_s ∗ b)(k), with φ_s the density of N(0, s²) and b that of U. By Poisson summation
its Fourier series is P(t) = Σ_j g(t + j), with g(t) = e^(−at²) sin(πt)/πt the transform of φ_s ∗ b. A sum of f shares
has the series P(t)^f. The law on the right has the probabilities (φ_(s√f) ∗ b ∗ … ∗ b)(k), f times b because rounding
is the last one, and so the series Q(t) = Σ_j g(t + j)^f. For |t| = τ ≤ ½ let r = P − g; then |g| ≤ e^(−aτ²) and
|r| ≤ 2.1 e^(−a(1−τ)²). The term of |P^f − g^f| with i factors r is at most C(f, i) 2.1^i e^(−a((f−i)τ² + i(1−τ)²)),
and (f−i)τ² + i(1−τ)² is least at τ = i/f (or ½, if that is smaller), where it is i(1 − i/f). So i = 1 leads, with
2.1 f e^(−a(1 − 1/f)), and the terms of Q with j ≠ 0 are of the size of i = f. Fourier coefficients differ by at most
the largest difference of the series.

For s ≥ 2 (else A is doubled) the error is 3·10⁻¹⁷ at f = 2 and 10⁻³¹ at f = 100; few users have a far larger s. By
lemma 1 a released sum is thus round((x + G) + U_1 + … + U_(f−1)): a post-processing of x + N(0, f s²). `slack_of` in
`budget.py` adds up the errors of a whole run, and parameters with a slack that δ would notice are refused.

*Theorem.* A round is μ_t-Gaussian-private with μ_t = Δ_t/(s_t√f), rounding included, and a run of adaptive rounds with
μ² = Σ μ_t². Its ε at δ solves δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ). Shares beyond the floor only add independent noise;
a user in the coalition takes its own share away, which the floor has counted. Sums are opened mod P: a wrap would
cost accuracy and no privacy, as reduction mod P is post-processing too.

Scales stand in the parameters, and no user takes them on trust: each computes this itself before it adds anything
(`keeps_claim` in `hardened_params.py`), and ends the run where they fall short.

The table of the law (`share_law.py`) has thresholds of 128 bits and is cut at 13 s, which is part of the slack.

## What is not promised

Both servers together read x_i + e_i of every user, and one share is small: they must not collude. That a user takes
part, and when, is open. A user that sends x_i beyond its bound is not noticed, unless `--set proof=norm` has every user
prove that it keeps it (`norm_proof`); the README of the experiments measures what it does, and what the proof costs.
"""
