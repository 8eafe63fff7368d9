"""Attacks on the real bytes of the view files: made by a coalition from its own views, scored against the truth.

Every attack guesses first, from `Exhibits` of the coalition alone; only then are other views opened to score it. The
sizes and parameters of the run and the frequency of each rating value count as public, and are available before.
"""
