"""The commands `keyhole bench`, `keyhole evaluate`, `keyhole compare` and `keyhole reproduce`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from protocol.errors import BadInput
from protocol.params import require
from protocol.schemes import SCHEMES
from sim.cli.flags import AsJson
from sim.console import console
from sim.console.console import duration, emit, save, say
from sim.console.progress import Progress
from sim.experiments import compare_files, compare_tables
from sim.experiments.bench.benchmark import BENCHES, run_bench
from sim.experiments.compare import Comparison, parse_settings
from sim.experiments.compare import compare as run_comparison
from sim.experiments.grid import (
    audit_bounds,
    collection_table,
    covariance_table,
    envelope_power,
    hardened_table,
    hostile_table,
    noise_cost,
)
from sim.experiments.grid.evaluate import evaluate as run_grid
from sim.experiments.grid.evaluate import grid, means
from sim.experiments.grid.grid_cells import AS_PUBLISHED, ITERATE, Cell

_MEASURED = {"envelopes": envelope_power, "audit-bounds": audit_bounds}  # tables that need no data
TABLES = ("hardened", "hardened-hostile", "noise-cost", "collection", *_MEASURED, *covariance_table.CELLS)
READINGS_NOTE = (
    "u_i, solved: as each user fits it at home to the published V, with the λ that suits its own ratings; λ = .001: "
    "with that of the paper; iterate: as the last iteration left it. Over plain: plain is read in the same way."
)
NONE_COMPLETED = 5  # the exit code of a comparison in which no scheme completed


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(BENCHES)}.")],
    users: Annotated[int | None, typer.Option(metavar="N", help="Number of users. (1000 with processes)")] = None,
    dim: Annotated[int | None, typer.Option(metavar="D", help="Dimension of the factors. (50 with processes)")] = None,
    items: Annotated[int | None, typer.Option(metavar="K", help="Items of each user. (20)")] = None,
    iterations: Annotated[int | None, typer.Option(metavar="T", help="Iterations. (25 with processes)")] = None,
    rounds: Annotated[int | None, typer.Option(metavar="R", help="How often both sides are measured in turn.")] = None,
    hosts: Annotated[int | None, typer.Option(metavar="H", help="packed: processes that share the users. (2)")] = None,
    json_: AsJson = False,
) -> None:
    """Measure something beside its floor, interleaved in one run; the ratio is what counts."""
    given = {"users": users, "dim": dim, "items": items, "iterations": iterations, "rounds": rounds, "hosts": hosts}
    result = run_bench(name, {option: value for option, value in given.items() if value is not None})
    emit(result, json_, _show_bench)


def _show_bench(result: dict[str, Any]) -> None:
    if "fits" in result:
        _show_growth(result)
    elif result["ratio"] is None:
        console.out.print(result["skipped"], markup=False)
    elif "commands" in result:
        _show_commands(result)
    else:
        _show_beside_floor(result)


def _show_beside_floor(result: dict[str, Any]) -> None:
    config = result["config"]
    if config["note"]:
        console.out.print(config["note"])
    sizes = f"{config['users']} users with {config['items_per_user']:.0f} items each, dim {config['dim']}"
    console.out.print(f"{result['name']} on {config['data']}: {sizes}")
    console.out.print(
        f"median of {len(result['samples'])}: {duration(result['median'])}; floor: {duration(result['floor_median'])} "
        f"({config['unit']})"
    )
    console.out.print(f"floor: {config['floor']}")
    if "peer_median" in result:
        peer = f"{duration(result['peer_median'])}, ratio {result['peer_ratio']:.2f}"
        console.out.print(f"peer: {config['peer']}: {peer}")
    if "memory" in result and result["memory"]["user_process_uss_mean"]:
        mean, most = (console.size(result["memory"][f"user_process_uss_{name}"]) for name in ("mean", "max"))
        console.out.print(f"a user process: {mean} of its own (most: {most}); started in {result['startup']:.1f} s")
    if "peak" in result:
        peaks = ", ".join(f"{server} {console.size(most)}" for server, most in sorted(result["peak"].items()))
        console.out.print(f"most memory: {peaks}; everyone had joined after {result['startup']:.0f} s")
    if "proof" in result:
        _show_proof(result["proof"])
    if config["load_average"] > (os.cpu_count() or 1):
        console.out.print(
            f"The machine was busy before (load average {config['load_average']:.0f}): the ratio may be too high."
        )
    console.out.print(_ratio(result))


def _show_proof(proof: dict[str, Any]) -> None:
    sizes = {name: console.size(count) for name, count in proof["bytes"].items()}
    console.out.print(
        f"a user sends {sizes['up']}, without a proof {sizes['up_without_proof']}; the servers exchange "
        f"{sizes['between_servers']} about it (a proof without noise: {sizes['up_if_servers_make_the_noise']})"
    )
    console.out.print(", ".join(f"{name} {duration(seconds)}" for name, seconds in proof["seconds"].items()))
    console.out.print(f"a vector beyond its bound is accepted with a probability below 2^-{int(proof['error_bits'])}")
    for kind, (refused, tried) in proof["refused"].items():
        console.out.print(f"refused: {refused} of {tried} {kind}")


def _show_commands(result: dict[str, Any]) -> None:
    floor = f"floor: {result['config']['floor']}, {duration(result['floor_median'])}"
    console.out.print(f"{floor} ({result['config']['unit']}, median of {result['config']['rounds']})", markup=False)
    for name, found in result["commands"].items():
        console.out.print(f"keyhole {name}: {duration(found['median'])}, ratio {found['ratio']:.2f}", markup=False)


def _ratio(result: dict[str, Any]) -> str:
    known, rounds = result["config"].get("interval"), result.get("by_round", [])
    if known:
        return f"ratio {result['ratio']:.3f} (95 % confidence: {known[0]:.3f} to {known[1]:.3f})"
    each = ", ".join(f"{one['ratio']:.2f}" for one in rounds)
    return f"ratio {result['ratio']:.2f}" + (f" (by round: {each})" if len(rounds) > 1 else "")


def _show_growth(result: dict[str, Any]) -> None:
    config = result["config"]
    words = f"{config['users']} users, {config['items']} items, dim {config['dim']}, but for what grows"
    columns = ("what grows", "user processes", "bytes", "of users", "seconds", "a user")
    samples, lines = [], []
    for row in result["samples"]:
        one = f"{console.size(row['user_down'])} down, {console.size(row['user_up'])} up"
        sizes = console.size(row["bytes"]), console.size(row["user_bytes"])
        samples.append((f"{row['axis']} {row['size']}", row["processes"], *sizes, f"{row['seconds']:.4f}", one))
    console.print_table(f"An iteration of {config['scheme']}: {words}", columns, samples)
    for axis, fits in result["fits"].items():
        ends = config["fitted"].get(axis)
        span = f", {ends[0]} to {ends[1]}" if ends else ""
        for what, found in fits.items():
            sure = found["exponent_interval"]
            known = "" if sure is None else f", 95 %: {sure[0]:.3f} to {sure[1]:.3f}"
            power = f"b = {found['exponent']:.3f} ({100 * found['exponent_residual']:.1f} %{known})"
            line = f"a = {found['fixed']:.4g}, b = {found['slope']:.4g} ({100 * found['line_residual']:.1f} %)"
            lines.append((f"{what.replace('_', ' ')} against {axis}{span}", power, line))
    names = ("y against x", "y = c x^b", "y = a + b x")
    console.print_table("Fits, with the largest relative residual", names, lines)
    for row in result["skipped"]:
        console.out.print(f"{row['axis']} {row['size']} was left out. {row['why']}", markup=False)


def evaluate(
    flags: dict[str, Any],
    schemes: Annotated[str | None, typer.Option(metavar="A,B", help="Names from keyhole schemes. (masked)")] = None,
    epsilon: Annotated[str, typer.Option(metavar="X,Y", help="inf: no noise.")] = "8",
    dim: Annotated[str, typer.Option(metavar="D,E", help="Dimensions of the factors.")] = "10",
    iterations: Annotated[str, typer.Option(metavar="T,U", help="Numbers of iterations.")] = "100",
    seeds: Annotated[int, typer.Option(help="Runs of each configuration, with seeds 1, 2, …")] = 3,
    data: Annotated[str, typer.Option(help="A name from keyhole datasets, or a path.")] = "ml-100k",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Lines of JSON; a table goes to FILE.md.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes at a time. (as many as cores)")] = None,
    table: Annotated[str | None, typer.Option(metavar="NAME", help="A preset, such as noise-cost.")] = None,
    json_: AsJson = False,
) -> None:
    """Run a grid of schemes and parameters, and compare the errors with plain; a second call runs what is missing."""
    require(seeds >= 1, f"--seeds must be 1 or more, not {seeds}.")
    require(jobs is None or jobs >= 1, f"--jobs must be 1 or more, not {jobs}.")
    require(table is None or table in TABLES, f"There is no table {table!r}: use {', '.join(TABLES)}.")
    chosen = None if schemes is None else _listed("schemes", schemes, str)
    page = (out or Path(str(table))).with_suffix(".md")  # of a table, beside its lines
    if table == "hardened":
        _hardened(seeds, data, page, jobs, json_)
        return
    if table == "hardened-hostile":
        _hostile(seeds, data, page, jobs, json_)
        return
    if table in _MEASURED:
        _measured(_MEASURED[table], page, json_)
        return
    if table == "collection":
        _collection(seeds, data, page, json_)
        return
    if table is not None and table in covariance_table.CELLS:
        _covariance(table, seeds, data, page, json_)
        return
    if table:
        target = out or Path(f"{table}.jsonl")
        cells = noise_cost.cells(chosen or [name for name in ("masked", "trusted") if name in SCHEMES], seeds=seeds)
    else:
        target = out or Path("evaluation.jsonl")
        sizes, lengths = _listed("dim", dim, int), _listed("iterations", iterations, int)
        schemes_, epsilons = chosen or ["masked"], _listed("epsilon", epsilon, float)
        cells = grid(schemes_, epsilons, sizes, lengths, seeds, data, **flags)
    _carry_out(cells, target, jobs, table, json_)


def _collection(seeds: int, data: str, page: Path, as_json: bool) -> None:
    found = collection_table.rows(seeds=range(1, seeds + 1), data=data)
    save(collection_table.markdown(found, data, seeds), page)
    emit({"table": str(page), "rows": [row.document() for row in found]}, as_json, _show_tolerances)


def _measured(table: Any, page: Path, as_json: bool) -> None:
    found = table.rows()
    save(table.markdown(found), page)
    emit({"table": str(page), "rows": found}, as_json, lambda document: console.out.print(f"Table: {page}"))


def _hardened(seeds: int, data: str, page: Path, jobs: int | None, as_json: bool) -> None:
    splits, lines = range(1, seeds + 1), page.with_suffix(".jsonl")
    found = hardened_table.hardened_table(splits, hardened_table.DRAWS, data, lines, jobs, as_json)
    below = hardened_table.floor_rows(splits, data)
    save(hardened_table.markdown(found, below, data), page)
    emit({"table": str(page), "rows": found, "floors": below}, as_json, _show_tolerances)


def _hostile(seeds: int, data: str, page: Path, jobs: int | None, as_json: bool) -> None:
    found = hostile_table.hostile_table(range(1, seeds + 1), data, page.with_suffix(".jsonl"), jobs, as_json)
    text = hostile_table.hostile_markdown(found)
    save(text, page)
    emit({"table": str(page), "rows": found}, as_json, lambda _: console.out.print(text, markup=False))


def _covariance(table: str, seeds: int, data: str, page: Path, as_json: bool) -> None:
    found = covariance_table.table(table, range(1, seeds + 1), data=data)
    save(covariance_table.markdown(found, data), page)
    emit({"table": str(page), "rows": found}, as_json, _show_tolerances)


def _show_tolerances(document: dict[str, Any]) -> None:
    rows, page = document["rows"], document["table"]
    inside = sum(row["within"] for row in rows)
    console.out.print(f"{inside} of {len(rows)} figures are within their tolerance. Table: {page}", soft_wrap=True)


def _carry_out(cells: list[Cell], out: Path, jobs: int | None, table: str | None, as_json: bool) -> None:
    lines = run_grid(cells, out, jobs, quiet=as_json)
    document: dict[str, Any] = {"out": str(out), "means": means(lines), "cells": lines}
    if table:
        page = out.with_suffix(".md")
        save(noise_cost.markdown(lines), page)
        document["table"] = str(page)
    emit(document, as_json, _show_means)


def _show_means(document: dict[str, Any]) -> None:
    columns = ("run", "u_i", "train MAE", "over plain", "P(|e| ≤ .5, 1, 2)", "test RMSE")
    made: list[Any] = []
    for row in document["means"]:
        epsilon = "" if row["epsilon"] is None else f", ε = {console.figure(row['epsilon'])}"
        aborted = f" ({row['aborted']} aborted)" if row["aborted"] else ""
        run = (
            f"{row['scheme']}{epsilon}",
            f"dim {row['dim']}, T {row['iterations']}",
            f"seeds: {row['seeds']}{aborted}",
        )
        readings = (("solved", row), ("λ = .001", row[AS_PUBLISHED]), ("iterate", row[ITERATE]))
        for words, (name, found) in zip(run, readings, strict=True):
            within = " ".join(console.number(found["within"].get(threshold)) for threshold in ("0.5", "1", "2"))
            errors = [console.number(found["train_mae"]), console.number(found["mae_increase"]), within]
            made.append((words, name, *errors, console.number(found["test_rmse"])))
        made.append(None)
    console.print_table("Means over the seeds (predictions clipped to the range)", columns, made)
    console.out.print(READINGS_NOTE)
    table = f", table: {document['table']}" if "table" in document else ""
    console.out.print(f"Results: {document['out']}{table}", soft_wrap=True)


def compare(
    flags: dict[str, Any],
    schemes: Annotated[str | None, typer.Option(metavar="A,B", help="Names from keyhole schemes. (all)")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first run of each scheme.")] = 1,
    seeds: Annotated[int, typer.Option(metavar="N", help="Runs of each scheme, with the seeds that follow.")] = 1,
    epsilon: Annotated[
        str | None, typer.Option(metavar="A,B", help="Published ε; of several, a row for each; inf: no noise. (8)")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SCHEME:OPTION=VALUE", help="May be given several times.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also into .json, .csv, .html, or charts: .svg, .png.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Run all schemes on the same ratings: errors, ε with its unit, what the recommender sees, bytes and seconds.

    Beside them stands what can be predicted when nothing leaves the device.

    --epsilon is for every scheme that takes one, --dim and --iterations for every factorization.
    """
    if out is not None:
        compare_files.check_file(out)
    chosen = None if epsilon is None else tuple(_listed("epsilon", epsilon, float))
    asked = Comparison(
        **flags,
        epsilon=chosen[0] if chosen and len(chosen) == 1 else chosen,
        schemes=() if schemes is None else tuple(_listed("schemes", schemes, str)),
        seed=seed,
        seeds=seeds,
        options=parse_settings(set_ or ()),
    )
    _carry_out_comparison(asked, out, json_)


def _carry_out_comparison(asked: Comparison, out: Path | None, as_json: bool) -> None:
    with Progress("loading the ratings", quiet=as_json) as progress:
        document = run_comparison(asked, lambda scheme, seed: progress.begin(f"{scheme}, seed {seed}"))
    if out is not None:
        compare_files.write(document, out)
    emit(document, as_json, compare_tables.show_comparison)
    if not any(row["completed"] for row in document["rows"]):
        say("No scheme completed; the reason of each stands in its note.")
        raise typer.Exit(NONE_COMPLETED)


def _listed(flag: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    try:
        values = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        raise BadInput(f"--{flag} takes numbers with commas between them, not {text!r}.") from None
    require(bool(values), f"--{flag} must name at least one value.")
    return values




def reproduce(
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help="fig1 … fig10, table-bytes or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller runs, said on each figure: all in about a minute.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where figures, numbers and cells go.")] = Path("reproduced"),
    jobs: Annotated[int | None, typer.Option(help="Processes at a time. (as many as cores)")] = None,
    json_: AsJson = False,
) -> None:
    """Make the figures of the paper again, its claims beside ours: PNG, SVG, CSV. A second call goes on."""
    from sim.experiments.reproduce.reproduce import reproduce as make  # slow to import

    require(jobs is None or jobs >= 1, f"--jobs must be 1 or more, not {jobs}.")
    emit(make(figure, out, quick=quick, jobs=jobs, quiet=json_), json_, _show_figures)


def _show_figures(document: dict[str, Any]) -> None:
    for made in document["figures"]:
        console.out.print(f"{made['figure']}: {made['title']}", style="bold", markup=False, highlight=False)
        console.out.print(f"  {made['sentence']}", markup=False, highlight=False)
        files = "  " + " ".join(made["files"].values())
        console.out.print(files, markup=False, highlight=False, soft_wrap=True)
    for row in document["skipped"]:
        console.out.print(f"{row['figure']} was not made. {row['why']}", markup=False)
    cells = document["cells"]
    console.out.print(f"{cells['run']} cells were run, {cells['found']} were there already.")
    if document["index"]:
        console.out.print(f"See all: {document['index']['page']}", soft_wrap=True)
