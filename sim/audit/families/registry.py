"""Find the family that the audit asks about a scheme; its code is imported when it is asked for.

A scheme belongs to the family that is listed for the module, or the folder, of its class or of the nearest class that
it extends: a scheme of a person's own that extends `Masked` is asked what `Masked` is asked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from protocol.schemes import Scheme

if TYPE_CHECKING:
    from sim.audit.families.family import Family

FAMILIES = {  # module or folder below protocol.schemes -> module below sim.audit.families, and its class
    "factorization.plain": "direct.direct_family:DirectFamily",
    "factorization.direct": "direct.direct_family:DirectFamily",
    "factorization.trusted": "trusted.trusted_family:TrustedFamily",
    "factorization.masked": "masked.masked_family:MaskedFamily",
    "covariance": "covariance.covariance_family:CovarianceFamily",
    "hardened": "hardened.hardened_family:HardenedFamily",
    "collection": "collection.collection_family:CollectionFamily",
}
FACTORIZATION = "factorization.factorization_family:FactorizationFamily"  # of no listed kind
UNKNOWN = "family:Family"


def family_of(scheme: Scheme) -> Family:
    """Make the family object of `scheme`."""
    module, _, name = _place_of(scheme).partition(":")
    found: type[Family] = getattr(importlib.import_module(f"sim.audit.families.{module}"), name)
    return found(scheme)


def _place_of(scheme: Scheme) -> str:
    for kind in type(scheme).__mro__:
        module = kind.__module__.removeprefix("protocol.schemes.")
        for place in (module, module.rpartition(".")[0]):
            if place in FAMILIES:
                return FAMILIES[place]
    return FACTORIZATION if scheme.factorizes else UNKNOWN
