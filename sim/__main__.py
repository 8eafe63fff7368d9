"""`python -m sim` is `keyhole`."""

from sim.cli import main

main()
