"""The schemes by name, and loading a scheme of one's own."""

from __future__ import annotations

import importlib

from protocol.errors import BadInput
from protocol.schemes.base import Leak, Scheme, Setting, Shape
from protocol.schemes.covariance import Covariance
from protocol.schemes.covariance_masked import CovarianceMasked
from protocol.schemes.direct import Direct
from protocol.schemes.dynamic import Dynamic
from protocol.schemes.hybrid import Hybrid
from protocol.schemes.laplace_ratings import LaplaceRatings
from protocol.schemes.masked import Masked
from protocol.schemes.plain import Plain
from protocol.schemes.randomized_response import RandomizedResponseRatings
from protocol.schemes.trusted import Trusted

__all__ = ["SCHEMES", "Leak", "Scheme", "Setting", "Shape", "find_scheme"]

_PAPER = (Plain, Trusted, Direct, Masked, Dynamic)
_SIBLINGS = (Covariance, CovarianceMasked, Hybrid, LaplaceRatings, RandomizedResponseRatings)
SCHEMES: dict[str, type[Scheme]] = {scheme.name: scheme for scheme in (*_PAPER, *_SIBLINGS)}


def find_scheme(name: str) -> Scheme:
    """A scheme by its name, or `module:Class` for a subclass of `Scheme` that can be imported."""
    if name in SCHEMES:
        return SCHEMES[name]()
    module, colon, attribute = name.partition(":")
    if not colon:
        raise BadInput(f"There is no scheme {name!r}: use {', '.join(SCHEMES)} or module:Class.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a person's module raises, from a missing name to a syntax error
        raise BadInput(f"The scheme {name} cannot be imported: {type(error).__name__}: {error}.") from error
    if not (isinstance(found, type) and issubclass(found, Scheme)):
        raise BadInput(f"{name} is not a subclass of protocol.schemes.Scheme.")
    try:
        return found()
    except TypeError as error:  # an abstract method is missing
        raise BadInput(f"The scheme {name} is not complete: {error}.") from error
