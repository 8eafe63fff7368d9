"""The schemes by name, and the custom schemes that the person has allowed (`actors/own_scheme.py` loads them).

A scheme's module is imported when the scheme is asked for: a user's process holds the code of one scheme, and a command
that only names schemes starts at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protocol.errors import BadInput, did_you_mean

if TYPE_CHECKING:
    from protocol.schemes.base import Leak, Scheme, Setting, Shape

__all__ = [
    "LISTED",
    "SCHEMES",
    "Leak",
    "Listed",
    "Scheme",
    "Setting",
    "Shape",
    "UntrustedScheme",
    "add_scheme",
    "find_scheme",
    "is_ours",
    "own_schemes",
]


@dataclass(frozen=True, slots=True)
class Listed:
    """A built-in scheme as a list shows it, and the place of its class."""

    module: str  # below protocol.schemes
    class_: str
    title: str
    parties: tuple[str, ...]


LISTED = {
    "plain": Listed("factorization.plain", "Plain", "Unprotected matrix factorization", ("user", "recommender")),
    "trusted": Listed(
        "factorization.trusted",
        "Trusted",
        "A trusted recommender publishes noisy item factors",
        ("user", "recommender"),
    ),
    "direct": Listed(
        "factorization.direct", "Direct", "Noisy gradients straight to the recommender", ("user", "recommender")
    ),
    "masked": Listed(
        "factorization.masked",
        "Masked",
        "Masked gradient sums with a semi-honest third party",
        ("user", "recommender", "third_party"),
    ),
    "dynamic": Listed(
        "factorization.dynamic",
        "Dynamic",
        "Masked sums with pre-committed noise, for users who come and go",
        ("user", "recommender", "third_party"),
    ),
    "covariance": Listed(
        "covariance.covariance",
        "Covariance",
        "A trusted recommender publishes noisy averages and covariances",
        ("user", "recommender"),
    ),
    "covariance-masked": Listed(
        "covariance.covariance_masked",
        "CovarianceMasked",
        "Noisy averages and covariances through a masked sum",
        ("user", "third_party", "recommender"),
    ),
    "hardened": Listed(
        "hardened.hardened",
        "Hardened",
        "One masked sum of unit vectors, noise of all users on integers",
        ("user", "third_party", "recommender"),
    ),
    "hybrid": Listed(
        "covariance.hybrid", "Hybrid", "Perturbed ratings, then noisy covariances of them", ("user", "recommender")
    ),
    "laplace-ratings": Listed(
        "collection.laplace_ratings",
        "LaplaceRatings",
        "Users add Laplace noise to ratings, and drop and invent some",
        ("user", "recommender"),
    ),
    "randomized-response": Listed(
        "collection.randomized_response",
        "RandomizedResponseRatings",
        "Users answer each entry of their rating vector by randomized response",
        ("user", "recommender"),
    ),
}


class _Schemes(Mapping[str, "type[Scheme]"]):
    """The built-in schemes by name, each imported on first use."""

    def __getitem__(self, name: str) -> type[Scheme]:
        where = LISTED[name]
        found: type[Scheme] = getattr(importlib.import_module(f"protocol.schemes.{where.module}"), where.class_)
        return found

    def __contains__(self, name: object) -> bool:
        return name in LISTED

    def __iter__(self) -> Iterator[str]:
        return iter(LISTED)

    def __len__(self) -> int:
        return len(LISTED)


SCHEMES: Mapping[str, type[Scheme]] = _Schemes()


def __getattr__(name: str) -> Any:
    """Import the interface of schemes on first use."""
    if name in ("Leak", "Scheme", "Setting", "Shape"):
        return getattr(importlib.import_module("protocol.schemes.base"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_OWN: dict[str, type[Scheme]] = {}  # by module:Class, as the person named it


class UntrustedScheme(BadInput):
    """A file names a custom scheme that the person has not allowed to be loaded."""


def is_ours(scheme: Scheme) -> bool:
    """Tell a built-in scheme from a custom one, whatever its name."""
    return scheme.name in LISTED and type(scheme) is SCHEMES[scheme.name]


def find_scheme(name: str) -> Scheme:
    """Make a scheme by its `name`: a built-in one, or a `module:Class` that `add_scheme` was given; load no other."""
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
    """Let `find_scheme` make the class `found` by `name`, from now on and in this process."""
    from protocol.schemes.base import Scheme

    if not (isinstance(found, type) and issubclass(found, Scheme)):
        raise BadInput(f"{name} is not a subclass of protocol.schemes.Scheme.")
    try:
        found()
    except TypeError as error:  # an abstract method is missing
        raise BadInput(f"The scheme {name} is not complete: {error}.") from error
    _OWN[name] = found


def own_schemes() -> tuple[str, ...]:
    """List the names that `add_scheme` was given."""
    return tuple(_OWN)
