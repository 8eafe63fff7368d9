"""Run every command on run folders that an attacker has altered:

    python -m tests.hostile.folders.fuzz_folder --cases 20000

Each case copies a small true run, makes one to three changes, most of them with regard to the structure of a file, and
runs one command on it. The command must exit with 0, 2, 3, 4 or 5, within its limits of time and memory. It must not
show a bug, write or read outside, import or run code from the folder, or print control characters. `--seed S --case N`
repeats one case.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

os.environ["NO_COLOR"] = "1"  # colours are control characters too
os.environ["TERM"] = "dumb"
os.environ["COLUMNS"] = "120"

from sim.report import reported_run
from tests.hostile.folders.cases import Fuzzer, Result
from tests.hostile.folders.child import Limits
from tests.hostile.folders.commands import API, COMMANDS, call
from tests.hostile.folders.seeds import Seed, make_seeds

_FUZZER: Fuzzer | None = None  # of a worker process, which inherits it when it is forked
WORKER_BYTES = 5 << 30  # of address space; the command itself has less
STALLED_SECONDS = 300.0  # one case takes a minute at most
_UNTIL = math.inf  # no case begins after this time


def warm_up(seeds: list[Seed], work: Path) -> None:
    """Do everything once in this process, so that no case has to import or compile anything."""
    folder = str(next(seed.folder for seed in seeds if seed.name == "masked"))
    commands = [["verify", folder], ["replay", folder], ["view", folder, "user:0"], ["bandwidth", folder]]
    commands += [["pair", folder]]
    commands += [["audit", folder, "--only", "inventory"], ["report", folder, "--out", str(work / "warm.html")]]
    commands += [["run", "--config", f"{folder}/run.toml", "--out", str(work / "warm")], ["api", folder, *API]]
    commands += [["verify", folder, "--json"], ["view", folder, "user:0", "--json"], ["bandwidth", folder, "--csv"]]
    argv, asking = sys.argv, reported_run.ask_for_page
    handlers = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        for words in commands:
            with contextlib.suppress(SystemExit):
                call(words)
    sys.argv, reported_run.ask_for_page = argv, asking
    for name, handler in handlers.items():  # a run replaces them, and a pool stops its workers with a signal
        signal.signal(name, handler)


@contextlib.contextmanager
def prepared(seed: int, limits: Limits, only: str | None = None) -> Iterator[Fuzzer]:
    """Give a fuzzer with seeds in a temporary folder and everything imported."""
    with tempfile.TemporaryDirectory(prefix="keyhole-fuzz-") as name:
        work = Path(name).resolve()
        (work / "seeds").mkdir()
        seeds = make_seeds(work / "seeds")
        warm_up(seeds, work)
        gc.collect()
        gc.freeze()
        yield Fuzzer(seeds, work, seed, limits, only)


def _bound() -> None:
    """Limit the memory of this process, so that a mutation that grows without end does not stop the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_BYTES, WORKER_BYTES))


def _work(number: int) -> Result | None:
    assert _FUZZER is not None
    if time.monotonic() > _UNTIL:
        return None
    result = _FUZZER.try_case(number)
    result.printed = None  # the parent process does not need it
    return result


def run_cases(
    fuzzer: Fuzzer, numbers: Iterable[int], jobs: int, tell: bool = False, until: float = math.inf
) -> list[Result]:
    """Try the cases with these numbers in `jobs` processes; begin none after the time `until`."""
    global _FUZZER, _UNTIL
    _FUZZER, _UNTIL = fuzzer, until
    results = []
    with multiprocessing.get_context("fork").Pool(jobs, _bound) as pool:
        coming = pool.imap_unordered(_work, numbers)
        while True:
            try:
                result = coming.next(timeout=STALLED_SECONDS)
            except StopIteration:
                break
            except multiprocessing.TimeoutError:
                under_way = ", ".join(sorted(place.name for place in fuzzer.work.glob("case-*")))
                sys.exit(f"The fuzzer itself has not moved for {STALLED_SECONDS:.0f} s: {under_way} are under way.")
            if result is None:
                continue
            results.append(result)
            if tell and result.findings:
                kinds = ", ".join(sorted({each.kind for each in result.findings}))
                print(f"case {result.number}: {result.command} on {result.seed}: {kinds}", file=sys.stderr, flush=True)
    return sorted(results, key=lambda result: result.number)


# --- the results as text ---------------------------------------------------------------------------------------------


def table(results: list[Result]) -> str:
    """Format by command: the number of cases, their exit codes, the most time and memory, and the findings."""
    exits = "".join(f"{code:>7}" for code in (0, 2, 3, 4, 5))
    lines = [f"{'command':<12}{'cases':>7}{exits}     s    MB findings"]
    for name in [*COMMANDS, "all"]:
        rows = [result for result in results if name in (result.command, "all")]
        if rows:
            codes = Counter(result.code for result in rows)
            slowest, largest = max(row.seconds for row in rows), max(row.megabytes for row in rows)
            found = sum(len(row.findings) for row in rows)
            counts = "".join(f"{codes[code]:>7}" for code in (0, 2, 3, 4, 5))
            lines.append(f"{name:<12}{len(rows):>7}{counts}{slowest:>6.1f}{largest:>6.0f}{found:>9}")
    return "\n".join(lines)


def gathered(results: list[Result]) -> str:
    """Group the findings of the same kind and place, with the first cases in which they occurred."""
    groups: dict[tuple[str, str], list[tuple[Result, str]]] = defaultdict(list)
    for result in results:
        for finding in result.findings:
            groups[finding.key].append((result, finding.what))
    lines = []
    for (kind, where), found in sorted(groups.items(), key=lambda entry: -len(entry[1])):
        first, what = found[0]
        cases = ", ".join(dict.fromkeys(str(result.number) for result, _ in found[:6]))
        lines.append(f"{len(found):>5}  {kind} | {where}")
        lines.append(f"       {what[:220]}")
        lines.append(f"       case {cases}; {first.command} on {first.seed}: {' | '.join(first.words)[:300]}")
    return "\n".join(lines)


def write_findings(results: list[Result], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for result in results:
            about = {"case": result.number, "command": result.command, "seed": result.seed, "words": result.words}
            for each in result.findings:
                found = {"kind": each.kind, "key": each.key, "where": each.where, "what": each.what}
                file.write(json.dumps(about | found) + "\n")


def describe(result: Result) -> str:
    """Describe one case in full."""
    printed = result.printed
    lines = [f"case {result.number}: {result.command} on {result.seed}", *(f"  mutation: {w!r}" for w in result.words)]
    lines.append(f"  command: keyhole {' '.join(map(ascii, result.argv))}")
    lines.append(f"  exit {result.code} after {result.seconds:.2f} s with {result.megabytes:.0f} MB")
    for name, data in (("stdout", printed.stdout), ("stderr", printed.stderr)) if printed else ():
        lines.append(f"  {name}, {len(data)} bytes: {data[:3000].decode('utf-8', 'replace')!a}")
    lines += [f"  FINDING {each.kind}: {each.what} [{each.where}]" for each in result.findings]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", type=int, help="only this one, with everything about it")
    parser.add_argument("--keep", action="store_true", help="with --case: leave its folder")
    parser.add_argument("--only", choices=list(COMMANDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no case is begun after so many")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--findings", type=Path, help="a file for them, one line of JSON each")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    started = time.perf_counter()
    with prepared(options.seed, Limits(seconds=options.timeout), options.only) as fuzzer:
        if options.case is not None:
            return _one(fuzzer, options.case, options.keep)
        numbers = range(options.first, options.first + options.cases)
        until = time.monotonic() + 60 * options.minutes
        results = run_cases(fuzzer, numbers, options.jobs, not options.quiet, until)
    if options.findings:
        write_findings(results, options.findings)
    print(table(results))
    print(gathered(results))
    found = sum(len(result.findings) for result in results)
    print(f"{len(results)} cases in {time.perf_counter() - started:.1f} s, {found} findings (seed {options.seed})")
    return 1 if found else 0


def _one(fuzzer: Fuzzer, number: int, keep: bool) -> int:
    _bound()
    if keep:
        fuzzer = replace(fuzzer, work=Path(tempfile.mkdtemp(prefix="keyhole-case-")).resolve())
    result = fuzzer.try_case(number, keep)
    print(describe(result))
    if keep:
        print(f"  kept: {fuzzer.work}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
