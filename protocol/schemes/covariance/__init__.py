"""Differentially private averages and covariances of ratings, and prediction from them (McSherry and Mironov 2009).

    options.py      the typed options                 sensitivity.py  how far one record moves each sum; noise scales
    parts.py        what a user adds to the sums      totals.py       the same for all users at once
    round_noise.py  noise of the same shape           averages.py     noisy sums -> global and item averages
    similarity.py   noisy sums -> item covariances    predicting.py   prediction from them, at the user
    model.py        all that may be published

There are two rounds, because round 2 needs ratings that are centred with the averages of round 1. Every quantity that
is summed over users is one flat vector, so that a trusted recommender and a masked sum add the same numbers in the
same places:

    round 1   [Σ w(r − c), Σ w, then per item Σ w(r − c), then per item Σ w]                 2d + 2 numbers
    round 2   the upper triangle, with the diagonal, of Σ w r̂ r̂ᵀ over the covered items,
              row after row, then that of Σ w e eᵀ                                           m(m + 1) numbers

c is the middle of the rating range. Constants that the paper gives for ratings of 1 to 5 are scaled to other ranges:
`unit` is one star of five, a quarter of the span.
"""
