"""Project predicted bytes to totals per server and day, and to the least time of an iteration on given links.

    least time  =  what the servers must pass for all users (the slowest of sending and receiving, which overlap)
                 + one user's own transfer, down and up
                 + what the servers send each other, one message after the other
                 + the latencies of all message rounds, at both ends of each

Computing is left out, and so are the headers of TCP and IP.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.errors import BadInput
from protocol.params import require
from protocol.wire.framing import Flow, wire_size
from sim.folder.traffic import Row

SECONDS_PER_DAY = 86_400
ITERATION_SECONDS = 5.0  # what the paper assumes
SERVERS = "datacentre"  # the link of the servers
FORMULA = (
    "least time = what the servers must pass for all users (the slowest of sending and receiving, which overlap) "
    "+ one user's own transfer + what the servers send each other + the latencies of {rounds} message rounds "
    "({names}), at both ends of each; computing is left out"
)
LEAST_SPEED = 1e-3  # Mbit/s
LEAST_SECONDS, MOST_SECONDS = 1e-6, 1e9
HEADERS = "The headers of TCP and IP are not included."


@dataclass(frozen=True, slots=True)
class Link:
    name: str
    down: float  # Mbit/s
    up: float
    latency: float  # milliseconds, one way

    def down_seconds(self, count: float) -> float:
        return 8 * count / (1e6 * self.down)

    def up_seconds(self, count: float) -> float:
        return 8 * count / (1e6 * self.up)


DEFAULTS = (Link("mobile", 20, 5, 50), Link("wifi", 100, 40, 10), Link(SERVERS, 10_000, 10_000, 0.5))


def parse_link(text: str) -> Link:
    name, equals, rest = text.partition("=")
    parts = rest.split("/")
    wanted = f"--link takes NAME=DOWN/UP/LATENCY_MS such as mobile=20/5/50 (Mbit/s and milliseconds), not {text!r}."
    require(bool(name and equals) and len(parts) == 3, wanted)
    try:
        down, up, latency = map(float, parts)
    except ValueError:
        raise BadInput(wanted) from None
    fast = all(math.isfinite(speed) and speed >= LEAST_SPEED for speed in (down, up))
    require(fast, f"The speeds of the link {name} must be {LEAST_SPEED:g} Mbit/s or more, not {down:g} and {up:g}.")
    prompt = math.isfinite(latency) and latency >= 0
    require(prompt, f"The latency of the link {name} must be 0 ms or more, not {latency:g}.")
    return Link(name, down, up, latency)


def links_of(given: Iterable[str]) -> list[Link]:
    """Add the `given` links to the defaults; a given link replaces the default of the same name."""
    links = {link.name: link for link in DEFAULTS}
    for text in given:
        link = parse_link(text)
        links[link.name] = link
    return list(links.values())


# --- what a user exchanges in an iteration ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserBytes:
    down_median: float
    down_max: float
    up_median: float
    up_max: float


def user_bytes(flows: Iterable[Flow], invited: Any) -> UserBytes:
    """Compute the bytes of a user that takes part in an iteration; `invited` is the number of such users by group.

    Messages that only some of them exchange, because they have just come or gone, are left out.
    """
    sums = {"down": np.zeros(len(invited)), "up": np.zeros(len(invited))}
    for flow in flows:
        if "user" in (flow.sender, flow.receiver) and np.allclose(flow.messages, invited):
            sums["down" if flow.receiver == "user" else "up"] += wire_size(flow.frame)
    figures = {}
    for way, sizes in sums.items():
        figures[f"{way}_median"], figures[f"{way}_max"] = _median_and_most(sizes, invited)
    return UserBytes(**figures)


def _median_and_most(sizes: Any, users: Any) -> tuple[float, float]:
    there = users > 0
    if not there.any():
        return 0.0, 0.0
    order = np.argsort(sizes[there], kind="stable")
    sizes, ends = sizes[there][order], np.cumsum(users[there][order])
    half = ends[-1] / 2
    # the mean of the two middle sizes where the half falls between them
    middle = [sizes[min(np.searchsorted(ends, half, side), len(sizes) - 1)] for side in ("left", "right")]
    return float(np.mean(middle)), float(sizes[-1])


# --- the least time of an iteration ----------------------------------------------------------------------------------


def rounds_of(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Group `flows`, in protocol order, into rounds: what one role sends without waiting for another."""
    sent = [flow for flow in flows if flow.total()[0] >= 0.5]
    return [list(group) for _, group in itertools.groupby(sent, key=lambda flow: flow.sender)]


def _kinds(flows: list[Flow]) -> str:
    return " and ".join(dict.fromkeys(flow.kind for flow in flows))


def least_seconds(rounds: list[list[Flow]], link: Link, servers: Link, down: float, up: float) -> float:
    """Compute the least time of an iteration for a user on `link` that receives `down` and sends `up` bytes."""
    seconds = 0.0
    for with_users, group in itertools.groupby(rounds, key=_touches_users):
        flows = [flow for flows in group for flow in flows]
        seconds += _passing(flows, servers) if with_users else _between(flows, servers)
    ends = {"user": link}
    for flows in rounds:
        waits = [ends.get(flow.sender, servers).latency + ends.get(flow.receiver, servers).latency for flow in flows]
        seconds += max(waits) / 1000
    return seconds + link.down_seconds(down) + link.up_seconds(up)


def _touches_users(flows: list[Flow]) -> bool:
    return any("user" in (flow.sender, flow.receiver) for flow in flows)


def _passing(flows: Iterable[Flow], servers: Link) -> float:
    """Compute the time of the slowest direction: while one user's message travels, servers pass those of the others."""
    sent: dict[str, float] = defaultdict(float)
    received: dict[str, float] = defaultdict(float)
    for flow in flows:
        sent[flow.sender] += flow.total()[2]
        received[flow.receiver] += flow.total()[2]
    times = [servers.up_seconds(count) for role, count in sent.items() if role != "user"]
    return max([*times, *(servers.down_seconds(count) for role, count in received.items() if role != "user")])


def _between(flows: Iterable[Flow], servers: Link) -> float:
    total = sum(flow.total()[2] for flow in flows)
    return max(servers.up_seconds(total), servers.down_seconds(total))


# --- all together ----------------------------------------------------------------------------------------------------


def project(
    rows: list[Row],
    flows: list[Flow],
    user: UserBytes | None,
    servers: tuple[str, ...],
    iterations: int,
    seconds: float,
    links: list[Link],
) -> dict[str, Any]:
    """Project the bytes of a run onto servers and `links`.

    `rows` are those of the whole run, `flows` those of one iteration, in order; `user` is None if there are no flows.
    """
    sane = LEAST_SECONDS <= seconds <= MOST_SECONDS
    require(sane, f"--iteration-seconds must be from {LEAST_SECONDS:g} to {MOST_SECONDS:g}, not {seconds:g}.")
    rounds = rounds_of(flows)
    inner = next(link for link in links if link.name == SERVERS)
    outer = [link for link in links if link.name != SERVERS]
    figures = [_on_link(link, inner, rounds, user) for link in outer] if user else []
    return {
        "iteration_seconds": seconds,
        "iterations_per_day": SECONDS_PER_DAY / seconds,
        "servers": {server: _server(rows, server, iterations, SECONDS_PER_DAY / seconds) for server in servers},
        "links": figures,
        "server_link": {"name": SERVERS, "down_mbit": inner.down, "up_mbit": inner.up, "latency_ms": inner.latency},
        "rounds": len(rounds),
        "formula": FORMULA.format(rounds=len(rounds), names="; ".join(map(_kinds, rounds))),
        "assumptions": [f"An iteration is begun every {seconds:g} seconds.", *map(_words, links), HEADERS],
        "warnings": _warnings(figures, seconds),
    }


def _words(link: Link) -> str:
    whose = " (the servers)" if link.name == SERVERS else ""
    return f"{link.name}{whose}: {link.down:g} Mbit/s down, {link.up:g} up, {link.latency:g} ms one way."


def _warnings(figures: list[dict[str, Any]], seconds: float) -> list[str]:
    return [
        f"An iteration takes at least {row['iteration_seconds_max']:.3g} s for the largest user on {row['name']}, "
        f"so that it cannot be begun every {seconds:g} s."
        for row in figures
        if row["iteration_seconds_max"] > seconds
    ]


def _server(rows: list[Row], server: str, iterations: int, per_day: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, end in (("sent", "sender"), ("received", "receiver")):
        own = [row for row in rows if row[end] == server]
        setup = sum(row["predicted_bytes"] for row in own if row["iteration"] < 0)
        each = sum(row["predicted_bytes"] for row in own if 0 <= row["iteration"] < iterations) / max(iterations, 1)
        figures |= {f"{name}_setup": setup, f"{name}_per_iteration": each, f"{name}_per_day": each * per_day}
    return figures


def _on_link(link: Link, servers: Link, rounds: list[list[Flow]], user: UserBytes) -> dict[str, Any]:
    return {
        "name": link.name,
        "down_mbit": link.down,
        "up_mbit": link.up,
        "latency_ms": link.latency,
        "down_seconds_median": link.down_seconds(user.down_median),
        "down_seconds_max": link.down_seconds(user.down_max),
        "up_seconds_median": link.up_seconds(user.up_median),
        "up_seconds_max": link.up_seconds(user.up_max),
        "iteration_seconds_median": least_seconds(rounds, link, servers, user.down_median, user.up_median),
        "iteration_seconds_max": least_seconds(rounds, link, servers, user.down_max, user.up_max),
    }
