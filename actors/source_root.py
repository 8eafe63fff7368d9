"""The folder that holds the packages protocol, actors and sim of this Keyhole."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # no pathlib, which would cost memory
