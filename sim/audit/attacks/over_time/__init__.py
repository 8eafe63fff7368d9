"""Attacks that put the iterations of a run together: all sums, all readings of one user, all counts."""
