"""Processes, sockets, clocks and files: what a role is run in."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # the folder that holds protocol, actors and sim
