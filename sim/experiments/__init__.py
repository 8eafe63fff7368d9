"""Experiments of many runs: benchmarks, grids of parameters, comparisons of schemes, and the paper's figures."""
