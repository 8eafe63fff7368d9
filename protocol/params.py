"""The frozen parameters of a run, and the rules by which impossible ones are refused.

`Params` has what every run has. A family adds what its own roles need in a class of its own, made by `declared`: each
field says which values it may have, the sentence for any other, and its value where none is given.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import msgpack

from protocol.errors import BadInput

MOST_USERS = MOST_ITEMS = 2**32 - 1  # identifiers and counts travel in 32 bits at most
MOST_ITERATIONS = 10**7
MOST_SCALE = 1e18  # largest noise scale and clip: beyond it no ring could hold a sum
LEAST_EPSILON = 1e-9  # for schemes whose noise needs no ring
WIRES = ("compact", "paper")
RING_BITS = range(16, 65, 8)


class Rule(NamedTuple):
    """The values of one field."""

    holds: Callable[[Any], bool]
    words: str  # the sentence for any other value; {name} and {value} are the field's
    otherwise: Any  # the value where none is given, or a function of the fields before this one; None: it must be given

    def refusal(self, name: str, value: Any) -> str | None:
        return None if self.holds(value) else self.words.format(name=name, value=value)


class JointRule(NamedTuple):
    """A rule about several fields, `name` being the one that is blamed."""

    name: str
    holds: Callable[[Any], bool]  # of the parameters
    words: Callable[[Any], str]


def declared(holds: Callable[[Any], bool] = lambda _: True, words: str = "", otherwise: Any = None) -> Any:
    """Make a field of parameters; see `Rule`."""
    return dataclasses.field(metadata={"rule": Rule(holds, words, otherwise)})


def between(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: least <= value <= most


def among(known: tuple[str, ...], name: str = "{name}") -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in known, f"{name} must be one of {', '.join(known)}, not {{value!r}}."


POSITIVE = (lambda value: math.isfinite(value) and value > 0, "{name} must be above 0, not {value:g}.")
NOT_NEGATIVE = (lambda value: math.isfinite(value) and value >= 0, "{name} must be 0 or more, not {value:g}.")
RING_WIDTH = (
    lambda value: isinstance(value, int) and value in RING_BITS,
    f"--ring-bits must be one of {', '.join(map(str, RING_BITS))}, not {{value}}.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Everything that all parties of a run must agree on. Its digest opens every connection."""

    scheme: str = declared()
    n_users: int = declared(between(1, MOST_USERS), f"A run needs between 1 and {MOST_USERS} users, not {{value}}.")
    n_items: int = declared(between(1, MOST_ITEMS), f"A run needs between 1 and {MOST_ITEMS} items, not {{value}}.")
    iterations: int = declared(  # a scheme that does not factorize calls them rounds
        between(1, MOST_ITERATIONS), f"--iterations must be between 1 and {MOST_ITERATIONS}, not {{value}}."
    )
    rating_min: float = declared()
    rating_max: float = declared()
    epsilon: float = declared(  # as claimed; infinity: no noise
        lambda value: value >= LEAST_EPSILON,
        f"--epsilon must be at least {LEAST_EPSILON:g}, not {{value:g}}.",
        math.inf,
    )
    wire: str = declared(*among(WIRES, "--wire"), otherwise="compact")

    together: ClassVar[tuple[JointRule, ...]] = (
        JointRule(
            "rating_max",
            lambda one: math.isfinite(one.rating_min) and math.isfinite(one.rating_max) and one.rating_span > 0,
            lambda one: f"The rating range {one.rating_min}:{one.rating_max} is empty.",
        ),
    )

    @property
    def rating_range(self) -> tuple[float, float]:
        return self.rating_min, self.rating_max

    @property
    def rating_span(self) -> float:
        return self.rating_max - self.rating_min

    # --- what codec, drivers and tables ask of every run: a family in which one of these varies declares a field of
    # its name

    @property
    def dim(self) -> int:
        """Return how many numbers a row has that travels for one item."""
        return 1

    @property
    def ring_bits(self) -> int:
        """Return the width of the ring that roles are given."""
        return 64

    @property
    def ring_is_prime(self) -> bool:
        """Tell whether the ring is a prime field instead of the integers mod 2^ring_bits."""
        return False

    @property
    def fraction_bits(self) -> int:
        """Return the fractional bits of a number in the ring."""
        return 24

    @property
    def factor_bits(self) -> int:
        """Return the bits of each number that is sent to a user as `Factors`: 32 or 16."""
        return 32

    @property
    def digit_base(self) -> int:
        """Return the base of message fields of digits; a scheme that has none needs none."""
        return 0

    @property
    def publish(self) -> str:
        """Return about which items every user is told at the end: all, or those that it rated."""
        return "all"

    @property
    def min_contributors(self) -> int:
        """Return the fewest contributors of an item that is released."""
        return 1

    @property
    def dropout_allowance(self) -> float:
        """Return the share of an item's raters without whom it is still released."""
        return 0.0

    @property
    def online(self) -> int:
        """Return the most users that take part in an iteration."""
        return self.n_users

    @property
    def committers(self) -> int:
        """Return how many users commit to each item's noise before the first iteration."""
        return 0

    # --- making and checking

    @classmethod
    def make(cls, **given: Any) -> Self:
        """Make the parameters from what is `given`; None counts as not given. `BadInput` says which value is wrong."""
        values: dict[str, Any] = {}
        for one in dataclasses.fields(cls):
            value, rule = given.pop(one.name, None), rule_of(one)
            if value is None:
                value = rule.otherwise(values) if callable(rule.otherwise) else rule.otherwise
            if value is None:
                raise TypeError(f"{cls.__name__} needs {one.name}")
            value = float(value) if one.type in ("float", float) else value
            if refusal := rule.refusal(one.name, value):
                raise BadInput(refusal)
            values[one.name] = value
        made = cls(**values, **given)
        for _, refusal in made.faults():
            raise BadInput(refusal)
        return made

    @classmethod
    def check(cls, **values: Any) -> None:
        """Refuse `values` of single fields that no run can have."""
        for one in dataclasses.fields(cls):
            if one.name in values and (refusal := rule_of(one).refusal(one.name, values[one.name])):
                raise BadInput(refusal)

    @classmethod
    def defaults(cls, *names: str) -> dict[str, Any]:
        """Return the options of a scheme that are these fields; None: the value follows from others."""
        rules = {one.name: rule_of(one) for one in dataclasses.fields(cls)}
        return {name: None if callable(rules[name].otherwise) else rules[name].otherwise for name in names}

    @classmethod
    def of(cls, params: Params) -> Self:
        """Return `params`, which are of this class: a scheme is given those that it made."""
        assert isinstance(params, cls)
        return params

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (field, sentence) for values out of range; if there are none, for those that do not fit others."""
        alone = False
        for one in dataclasses.fields(self):
            if refusal := rule_of(one).refusal(one.name, getattr(self, one.name)):
                alone = True
                yield one.name, refusal
        for rule in () if alone else self.together:
            if not rule.holds(self):
                yield rule.name, rule.words(self)

    def digest(self) -> bytes:
        return hashlib.sha256(msgpack.packb(dataclasses.asdict(self))).digest()


def rule_of(one: dataclasses.Field[Any]) -> Rule:
    """Return the rule of a field; a field without one may have any value."""
    default = None if one.default is dataclasses.MISSING else one.default
    rule: Rule = one.metadata.get("rule", Rule(lambda _: True, "", default))
    return rule


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BadInput(sentence)
