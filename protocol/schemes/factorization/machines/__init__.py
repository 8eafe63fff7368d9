"""The small machines that the roles of `masked` and `dynamic` are composed of: each owns one noun."""
