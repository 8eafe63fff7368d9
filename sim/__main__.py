"""`python -m sim` is `keyhole`."""

from sim.entry import main

main()
