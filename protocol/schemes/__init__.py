"""The schemes by name, and those of one's own that a person has allowed (`actors/own.py` loads them)."""

from __future__ import annotations

from protocol.errors import BadInput, did_you_mean
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

__all__ = [
    "SCHEMES", "Leak", "Scheme", "Setting", "Shape", "UntrustedScheme", "add_scheme", "find_scheme",
    "own_schemes",
]

_PAPER = (Plain, Trusted, Direct, Masked, Dynamic)
_SIBLINGS = (Covariance, CovarianceMasked, Hybrid, LaplaceRatings, RandomizedResponseRatings)
SCHEMES: dict[str, type[Scheme]] = {scheme.name: scheme for scheme in (*_PAPER, *_SIBLINGS)}

_OWN: dict[str, type[Scheme]] = {}  # by module:Class, as the person named it


class UntrustedScheme(BadInput):
    """A file names a scheme of somebody's own, and the person has not allowed to load it."""


def find_scheme(name: str) -> Scheme:
    """Make a scheme by its name: one of Keyhole's, or a `module:Class` that `add_scheme` was given. Imports nothing."""
    if name in SCHEMES:
        return SCHEMES[name]()
    if name in _OWN:
        return _OWN[name]()
    if ":" in name:
        words = "so its code is not loaded: add --trust-scheme if you trust it, or name it with --scheme"
        raise UntrustedScheme(f"The scheme {name!r} is not one of Keyhole's, {words}.")
    near = did_you_mean(name, SCHEMES)
    raise BadInput(f"There is no scheme {name!r}: use {', '.join(SCHEMES)} or module:Class{near}.")


def add_scheme(name: str, found: object) -> None:
    """Let `find_scheme` make this class by this name, from now on and in this process."""
    if not (isinstance(found, type) and issubclass(found, Scheme)):
        raise BadInput(f"{name} is not a subclass of protocol.schemes.Scheme.")
    try:
        found()
    except TypeError as error:  # an abstract method is missing
        raise BadInput(f"The scheme {name} is not complete: {error}.") from error
    _OWN[name] = found


def own_schemes() -> tuple[str, ...]:
    """List what `add_scheme` was given."""
    return tuple(_OWN)
