"""The page: one HTML file that shows a run, from its own records, without a network."""
