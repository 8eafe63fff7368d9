"""Many runs in one process each: benchmarks, and what a scheme costs in accuracy."""
