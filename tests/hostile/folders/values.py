"""Odd values that a mutation puts in place of honest ones."""

from __future__ import annotations

import random
from typing import Any

MARKUP = "<img src=kh onerror=alert(1)></script><script>kh()</script>"
EVIL_MODULES = ("evil", "random", "numpy", "msgpack", "mine", "sitecustomize")  # planted modules that leave a mark
NAMED_MODULES = ("evil", "test.autotest", "os", "antigravity", "this", "mine", "views.evil", "keyhole_evil")
SCHEMES = (
    "plain", "trusted", "direct", "masked", "dynamic", "hybrid", "covariance", "covariance-masked",
    "laplace-ratings", "randomized-response", "evil:Evil", "test.autotest:x", "os:system", "antigravity:x", "this:s",
    "views.evil:Evil", "keyhole_evil:Evil", "mine:Careful", "builtins:eval", "evil", ":", "evil:", ":Evil",
    "evil.:Evil", "..evil:Evil", "protocol.schemes:Scheme", "protocol.schemes.base:Scheme", "sim.cli.app:app",
    "sys:exit",
    "a\0b:c",
    "protocol.schemes.factorization.masked:Masked", "protocol.schemes.factorization.masked:MaskedUser",
    "evil:Evil:x", "\ud800:x",
    "x" * 5000 + ":y",
)  # fmt: skip
DATA = (
    "synthetic:6x5:.6", "synthetic:100000x100000:.9", "synthetic:0x0", "synthetic:-1x5", "synthetic:6x5:nan",
    "synthetic:6x5:inf", "synthetic:9999999999999999999x9", "synthetic:6x5:.6:9", "synthetic:", "demo", "/dev/zero",
    "/dev/stdin", "@OUTSIDE@", "@FOLDER@/run.toml", "@FOLDER@", "../outside.csv", "ml-100k", "ml-1m", "netflix-shaped",
    "\0", "", "file:///etc/passwd", "http://127.0.0.1:1/x", "synthetic:٣x٣", "synthetic:1000000x10:.5",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 255, 256, 65535, 65536, 10**6, 10**7, 10**9, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1,
    2**63,
    2**64, 2**128, 10**400, -(2**63), -(2**31), 10**4000, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, 1e-9, 1.5, -1.5,
    float("nan"), float("inf"), float("-inf"), True, False,
)  # fmt: skip
TEXTS = (
    "", " ", "0", "-1", "1", "1e999", "nan", "inf", "-inf", "NaN", "Infinity", "0x10", "٣", "½", "1_000", "9" * 5000,
    "null", "true", "None", "0-999999999", "0-99999999999999999999", "0-5,0-5", "5-0", "-", ",", "0-1,", "0--1", "a-b",
    "\x1b[31mred\x1b[0m", "\x1b]0;owned\x07", "\x1b[2J\x1b[H", "\x9b31m", "\x85", "\x00", "\x08\x08\x08", "a\rb",
    "a\nb",
    "\u202egnp.exe", "\u2066x\u2069", "\u200f", "\ufeff", "\u2028", "\U0001f600" * 30, "e\u0301" * 50, "\ufffd\uffff",
    "[bold red]x[/]", "[/]", "[link=file:///etc/passwd]x[/link]", "[[", "[", "[/bold]", "\\[", "{0}",
    "{x!r:>999999999}",
    "%s%n", "%(x)s", "$(id)", "`id`", "=cmd|'/C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "=1", "\t=1", MARKUP,
    "'\"><", "&lt;",
    "../../../etc/passwd", "/etc/passwd", "/dev/zero", "@OUTSIDE@", "x" * 100_000, "a b " * 20_000, "\ud800", "\udcff",
    "user:0", "user:-1", "user:٣", "user:00", "user:99999999999999999999", "user:1000000", "user:", "users", "nobody",
    "recommender", "third_party", "recommender ", "sample:1", "sample:99999999999999999999", "sample:٣", "sample:0",
    "full",
    "servers", "none", "tcp", "ipc", "inprocess", "paper", "compact", "restart", "drop", "7:.3", "7:9", "00" * 32, "zz",
    "ff" * 32, "0" * 63, "INTERRUPTED", "DIVERGED", "__class__", "__proto__", "constructor", "toString",
)  # fmt: skip


class Chance:
    """Draws everything that a case needs from its number alone."""

    def __init__(self, seed: int, case: int) -> None:
        self._random = random.Random(f"{seed}:{case}")

    def below(self, bound: int) -> int:
        """Draw a number below `bound`, always with one draw.

        Some bounds are lengths of files that hold a time; they must not change the draws that follow.
        """
        return int(self._random.random() * bound)

    def of(self, choices: Any) -> Any:
        return choices[self.below(len(choices))]

    def weighed(self, weights: dict[Any, int]) -> Any:
        return self._random.choices(list(weights), list(weights.values()))[0]

    def one_in(self, many: int) -> bool:
        return self.below(many) == 0

    def bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)


def odd_value(chance: Chance, key: str = "") -> Any:
    """Draw a value of any type, often one that is made for `key`."""
    if key == "scheme" and not chance.one_in(4):
        return chance.of(SCHEMES)
    if key == "data" and not chance.one_in(4):
        return chance.of(DATA)
    kind = chance.below(10)
    if kind < 4:
        return chance.of(NUMBERS)
    if kind < 8:
        return chance.of(TEXTS)
    return chance.of(([], {}, [[]], {"": {}}, [1, 2, 3], ["a"], {"a": 1}, [{}], [0] * 300, [None], None, nested(60)))


def near(chance: Chance, value: Any) -> Any:
    """Change `value` a little or a lot, mostly to another value of its type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + chance.of((-2, -1, 1, 2, 2**31)) if not chance.one_in(3) else chance.of(NUMBERS[:25])
    if isinstance(value, float):
        return value * chance.of((-1.0, 0.5, 2.0, 1e300)) if not chance.one_in(3) else chance.of(NUMBERS[25:37])
    if isinstance(value, str):
        return near_text(chance, value)
    if isinstance(value, list):
        return chance.of((value * 2, value[:-1], value[1:], list(reversed(value)), [*value, None], value[:20] * 500))
    if isinstance(value, dict):
        return chance.of((list(value.items()), list(value), {str(k): [v] for k, v in value.items()}, {}))
    return odd_value(chance)


def near_text(chance: Chance, text: str) -> str:
    at = chance.below(len(text) + 1)
    odd = chance.of(TEXTS)
    within = text[:at] + odd + text[at:]
    return chance.of((text[:at], text + odd, odd + text, within, text.upper(), text * 3, text[::-1]))


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value
