"""A diagnosis of why nothing moves: the parties that each server waits for, and the state of their processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil

from actors.launch.reports import Waits
from actors.seats import describe_status

_AT_WORK = frozenset({psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP})
_COMPUTES_SECONDS = 0.1  # of processor time since the servers were asked: more means that a server computes

Statuses = Mapping[str, Waits]  # by server, its answer if it has answered


class Standstill:
    """The servers at a standstill; made before they are asked, so that it can tell which of them compute meanwhile."""

    def __init__(self, servers: Sequence[str], processes: Mapping[int, Sequence[str]]) -> None:
        """Note the processor time of `servers`; `processes` gives the parties by process id."""
        self._servers = servers
        self._process_of = {party: process for process, parties in processes.items() for party in parties}
        self._before = {server: self._processor_seconds(server) for server in servers}

    def is_computing(self, statuses: Statuses) -> bool:
        """Tell whether a server that is not in `statuses` does not answer because it is in the middle of a step."""
        return any(self._computes(server) for server in self._silent(statuses))

    def describe(self, statuses: Statuses) -> list[str]:
        silent = self._silent(statuses)
        words = [describe_status(status) for status in statuses.values()]
        words += [f"{server} {'computes and ' * self._computes(server)}does not answer" for server in silent]
        named = {party: None for status in statuses.values() for party in status.awaited} | dict.fromkeys(silent)
        return words + [matter for party in named if (matter := self._how_is(party))]

    def _silent(self, statuses: Statuses) -> list[str]:
        return [server for server in self._servers if server not in statuses]

    def _computes(self, server: str) -> bool:
        return self._processor_seconds(server) - self._before[server] > _COMPUTES_SECONDS

    def _how_is(self, party: str) -> str:
        """Describe the state of the process of `party`; "" if it works normally or there is no process."""
        if party not in self._process_of:
            return ""
        try:
            status = psutil.Process(self._process_of[party]).status()
        except psutil.Error:
            status = "gone"
        return "" if status in _AT_WORK else f"process {self._process_of[party]} of {party} is {status}"

    def _processor_seconds(self, party: str) -> float:
        try:
            times = psutil.Process(self._process_of[party]).cpu_times()
        except (KeyError, psutil.Error):
            return 0.0
        return float(times.user + times.system)
