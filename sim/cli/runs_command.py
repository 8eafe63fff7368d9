"""The commands that list and explain: ls, diff, watch, recommend, explain, schemes, new, datasets, fetch."""

from __future__ import annotations

import difflib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from protocol.errors import BadInput
from protocol.schemes import LISTED, find_scheme
from sim.cli.flags import AsJson, RunFolder
from sim.console import console
from sim.console.console import emit, say
from sim.console.glossary import find_term
from sim.tables import run_tables

if TYPE_CHECKING:
    from sim.runs.following import Watched

ABORTED = 5  # the exit code of `watch` for a run that was aborted or stopped


def ls(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with runs in it.")] = Path("runs"),
    json_: AsJson = False,
) -> None:
    """List runs, newest first: scheme, data, ε, RMSE on held-out ratings, verdict, age."""
    from sim.runs.listing import list_runs

    emit(list_runs(folder), json_, lambda rows: run_tables.show_list(rows, str(folder)))


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN1", help="The folder of a run.")],
    second: Annotated[Path, typer.Argument(metavar="RUN2", help="Another: other wire, scheme, seed, anything.")],
    json_: AsJson = False,
) -> None:
    """Put two runs side by side: configuration, accuracy, ε, bytes by edge and kind, who learns what."""
    from sim.runs.listing import diff_runs

    emit(diff_runs(first, second), json_, run_tables.show_diff)


def watch(run: RunFolder) -> None:
    """Show a run while it goes on: who is online, error, bytes, ε so far. It ends with the run, or with Ctrl-C.

    Without a terminal it prints a line for each iteration. The run does not notice.
    """
    try:
        watched = _on_terminal(run) if console.out.is_terminal else _in_lines(run)
    except KeyboardInterrupt:  # the person stops watching; the run goes on
        return
    if watched.summary is None:
        further = f"go on with keyhole resume {shlex.quote(str(run))}"
        _end_with(f"No process of {run} is running, and it did not complete: {further}.")
    if not watched.summary["completed"]:
        _end_with(f"The run was aborted: {watched.summary['abort']['sentence']}.")
    run_tables.show_end(watched)


def _end_with(sentence: str) -> NoReturn:
    say(sentence)
    raise typer.Exit(ABORTED)


def _on_terminal(run: Path) -> Watched:
    from rich.live import Live

    from sim.runs.following import follow

    with Live(console=console.out, auto_refresh=False) as live:
        for watched, _ in follow(run):
            live.update(run_tables.watch_table(watched), refresh=True)
    return watched


def _in_lines(run: Path) -> Watched:
    from sim.runs.following import follow

    told = False
    for watched, lines in follow(run):
        if not (told or lines or watched.done):
            say(f"{run} has no iteration yet: its parties are joining.")
            told = True
        for line in lines:
            console.out.print(run_tables.watch_line(watched, line), markup=False, soft_wrap=True)
        sys.stdout.flush()
    return watched


def recommend(
    run: RunFolder,
    user: Annotated[
        str | None, typer.Argument(metavar="USER", help="user:17, or as the data calls it. (the first that finished)")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of items.")] = 10,
    json_: AsJson = False,
) -> None:
    """Show what a user would be shown: the items that it has not rated, with the stars that it predicts itself.

    With the user's view this is what the party computed at home, checked against the end of its view.

    Without it the profile is fitted again from the model and the data.
    """
    from sim.runs.recommend import recommend as find
    from sim.tables.recommend_tables import show_recommendations

    emit(find(run, user, top), json_, show_recommendations)


def explain(
    term: Annotated[
        list[str] | None, typer.Argument(metavar="TERM", help="A word, or the id of a finding. (all of them)")
    ] = None,
) -> None:
    """Explain a word of Keyhole or a finding of an audit: what it means, also for you, and which command shows it."""
    if term:
        run_tables.show_term(find_term(" ".join(term)))
    else:
        run_tables.show_terms()


def schemes(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of them, or module:Class. (all)")] = None,
    json_: AsJson = False,
) -> None:
    """List the schemes, or show one with its claims, weaknesses and options."""
    if name is None and not json_:
        run_tables.list_schemes()
        return
    from sim import api

    found = api.schemes() if name is None else one_scheme(name)
    emit(found, json_, lambda row: run_tables.show_scheme({**row, "run_as": name}))


def one_scheme(name: str) -> dict[str, Any]:
    """Describe the scheme `name`; for an unknown name, `BadInput` proposes the nearest one."""
    from actors.own_scheme import load_scheme
    from sim import api

    if ":" not in name and name not in LISTED:
        near = difflib.get_close_matches(name.lower(), LISTED, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(LISTED)}, or module:Class."
        raise BadInput(f"There is no scheme {name!r}: {hint}")
    load_scheme(name)
    return api.describe_scheme(find_scheme(name))


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the module, such as my_scheme.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for both files.")] = Path(),
) -> None:
    """Write a scheme of your own that runs, and its test: two files to change."""
    from sim.runs.scaffold import make_scaffold

    scheme, test = make_scaffold(name, out)
    print(scheme)
    print(test)
    cls = next(line for line in scheme.read_text("utf-8").splitlines() if line.startswith("class "))
    where = "" if out == Path() else f"cd {out} && "
    print(f"Run it:  {where}keyhole run --scheme {name}:{cls[6:].partition('(')[0]}", file=sys.stderr)
    alone = "-c /dev/null"  # ignores the pytest settings of an enclosing repository, which may need plugins
    print(f"Test it: {where}python -m pytest {alone} {test.name}  (needs: pip install pytest)", file=sys.stderr)


def datasets(json_: AsJson = False) -> None:
    """List the data sets that --data knows by name; it also takes any path."""
    from sim import api

    emit(api.datasets(), json_, console.show_datasets)


def fetch(dataset: Annotated[str, typer.Argument(metavar="DATASET")]) -> None:
    """Download a data set into the cache folder."""
    from sim.data.fetch import fetch as fetch_data

    folder = fetch_data(dataset, report=lambda sentence: print(sentence, file=sys.stderr))
    print(folder)
