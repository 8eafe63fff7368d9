"""The command line: `keyhole`, or `python -m sim`. Names, fields and exit codes are a contract with scripts."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: nothing here is faster with more

import typer

from actors.own_scheme import load_scheme
from protocol.errors import BadInput, Reason
from sim import api
from sim.cli import audit_command as auditing
from sim.cli import bandwidth_command, experiments_command, recommend_command, reproduce_command, runs_command
from sim.cli import report_command as reporting
from sim.cli.endings import ABORTED, DONE, UNVERIFIED, fail, fail_scheme, guarded
from sim.cli.scheme_flags import NamedScheme, TrustScheme, reads_a_run
from sim.console import console
from sim.data.fetch import fetch as fetch_data
from sim.folder.folder import read_run
from sim.folder.naming import resolve
from sim.foreign.plain_text import json_text, one_line, visible
from sim.plan.config import RunConfig, parse_assignments, parse_packing, parse_range, read_config
from sim.plan.plan import Plan
from sim.run import manual_start
from sim.run import run as running
from sim.tables import check_tables
from sim.tables.run_progress import Live
from sim.views import replay as replaying
from sim.views import verify as verifying
from sim.views import viewing

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(
    name="keyhole",
    help="Runs privacy-preserving recommender protocols as processes; shows what each party saw and what it cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Command = TypeVar("Command", bound=Callable[..., None])


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]


def configuration(
    config: Annotated[Path | None, typer.Option(help="A TOML file with these flags, such as a run.toml.")] = None,
    scheme: Annotated[str | None, typer.Option(help="A name from keyhole schemes, or module:Class. (dynamic)")] = None,
    trust_scheme: TrustScheme = False,
    trust: Annotated[str | None, typer.Option(help="Of covariance: recommender or masked. (recommender)")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Of the scheme.")] = None,
    data: Annotated[str | None, typer.Option(help="A name from keyhole datasets, or a path. (demo)")] = None,
    rating_range: Annotated[str | None, typer.Option(metavar="LOW:HIGH", help="Of a file's ratings. (1:5)")] = None,
    columns: Annotated[str | None, typer.Option(metavar="USER,ITEM,RATING", help="In a file's header. (found)")] = None,
    on_duplicate: Annotated[str | None, typer.Option(help="A pair twice: refuse, last or mean. (refuse)")] = None,
    on_missing: Annotated[str | None, typer.Option(help="No user, item or rating: refuse or drop. (refuse)")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The scheme's published parameter; inf: no noise. (8)")] = None,
    dim: Annotated[int | None, typer.Option(help="Of the factors. (10)")] = None,
    iterations: Annotated[int | None, typer.Option(help="(60 on demo, 20 on demo-small, else 100)")] = None,
    users: Annotated[int | None, typer.Option(help="Only the first N users of the data. (all)")] = None,
    users_per_process: Annotated[str | None, typer.Option(help="A number packs; auto: 1 if it fits. (auto)")] = None,
    transport: Annotated[str | None, typer.Option(help="tcp, ipc or inprocess. (tcp)")] = None,
    wire: Annotated[str | None, typer.Option(help="compact or paper. (compact)")] = None,
    ring_bits: Annotated[int | None, typer.Option(help="Of masked values: 16, 24 … 64. (32, or 64 if need be)")] = None,
    factor_bits: Annotated[int | None, typer.Option(help="Of each factor sent to users: 32 or 16. (32)")] = None,
    publish: Annotated[str | None, typer.Option(help="At the end, to every user: all items or rated. (all)")] = None,
    online: Annotated[int | None, typer.Option(help="The most users in an iteration. (all)")] = None,
    join: Annotated[float | None, typer.Option(help="Probability to come online. (.005; .2 on demo)")] = None,
    leave: Annotated[float | None, typer.Option(help="Probability to go offline. (.01; .02 on demo)")] = None,
    no_rho: Annotated[bool | None, typer.Option("--no-rho", help="Leave the iteration noise out (direct).")] = None,
    on_death: Annotated[str | None, typer.Option(help="Of a user's process: restart or drop. (restart)")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds that an iteration may wait for users. (60)")] = None,
    faults: Annotated[str | None, typer.Option(metavar="SEED[:RATE]", help="Lost frames, ended processes.")] = None,
    views: Annotated[str | None, typer.Option(help="Kept for: full, servers, sample:K, none. (full)")] = None,
    test_fraction: Annotated[float | None, typer.Option(help="Of each user's ratings, held out. (.2)")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat a run; its masks are then not private. (fresh)")] = None,
) -> RunConfig:
    """Flags over the configuration file over the defaults."""
    given = {name: value for name, value in locals().items() if value is not None}
    given.pop("config", None)
    trusted = given.pop("trust_scheme")
    if "set_" in given:
        given["options"] = parse_assignments(given.pop("set_"))
    if "rating_range" in given:
        given["rating_range"] = parse_range(given["rating_range"])
    if "users_per_process" in given:
        given["users_per_process"] = parse_packing(given["users_per_process"])
    made = dataclasses.replace(read_config(config) if config else RunConfig(), **given)
    if scheme is not None or trusted:  # what the file alone names is not loaded
        load_scheme(made.scheme)
    return made


def takes_configuration(command: Command) -> Command:
    """Give a command all flags of `configuration`; it receives the `RunConfig`."""
    import inspect

    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "config"]
    flags = list(inspect.signature(configuration, eval_str=True).parameters.values())
    names = {flag.name for flag in flags}

    @functools.wraps(command)
    def wrapper(**kwargs: Any) -> None:
        flagged = {name: kwargs.pop(name) for name in names}
        command(config=configuration(**flagged), **kwargs)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*flags, *own]]
    wrapper.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in keyword}
    return wrapper  # type: ignore[return-value]


Out = Annotated[Path | None, typer.Option(help="The run folder. (runs/<time>-<scheme>)")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in that folder.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="All tables and digests besides the first screen.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing while it works.")]


@app.command(epilog="Example: keyhole run --data synthetic:100x80 --epsilon 4 --seed 1 --out runs/first")
@guarded
@takes_configuration
def run(
    config: RunConfig,
    out: Out = None,
    force: Force = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Run a scheme with one process per party, and keep every party's view. Defaults stand in parentheses."""
    _live(functools.partial(running.run, config, out=out, force=force), json_, verbose, quiet)


@app.command(epilog="Example: keyhole resume runs/first")
@guarded
@reads_a_run
def resume(run: RunFolder, verbose: Verbose = False, quiet: Quiet = False, json_: AsJson = False) -> None:
    """Go on with a run that was stopped or aborted, from the views of its parties."""
    if not _live(functools.partial(running.resume, run), json_, verbose, quiet, resumes=True):
        print("keyhole: This run was complete, so nothing was done; keyhole verify checks it.", file=sys.stderr)


def _live(
    carry_out: Callable[..., dict[str, Any]], json_: bool, verbose: bool, quiet: bool, resumes: bool = False
) -> bool:
    """A bar while it runs, then the summary; whether there was anything to do."""
    for signum in _STOPS:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as under nohup
            signal.signal(signum, _interrupt)
    live = Live(quiet)
    plans: list[Plan] = []

    def on_plan(plan: Plan) -> None:
        plans.append(plan)
        live.start(plan.card.params.n_users, plan.card.params.iterations)

    try:
        told = {"on_plan": on_plan, "on_line": live.line, "on_join": live.join}
        summary = carry_out(**told, **({"on_replay": live.replay} if resumes else {}))
        live.audit()
        answers = None if json_ else auditing.ask_briefly(summary)
    finally:
        live.stop()
    if answers is None:
        print(json_text(summary))
    else:
        auditing.show_run(summary, read_run(Path(summary["run"]))[1].scheme, verbose, *answers)
    abort = summary["abort"]
    if abort and abort["reason"] == Reason.SCHEME_FAILED.name:
        fail_scheme(abort.get("traceback", ""), abort["sentence"])
    if abort:
        further = f" Go on with keyhole resume {shlex.quote(summary['run'])}."
        can_go_on = read_run(Path(summary["run"]))[0]["run"]["views"] == "full"  # else somebody would begin anew
        fail(f"The run was aborted: {abort['sentence']}.{further if can_go_on else ''}", ABORTED)
    return bool(plans)


def _interrupt(signum: int, frame: Any) -> NoReturn:
    """Once: the processes are being stopped then, and the summary is written."""
    for stop in _STOPS:
        signal.signal(stop, signal.SIG_IGN)
    raise KeyboardInterrupt


@app.command(epilog="Example: keyhole view runs/first user:3 --iteration 0 --kind ItemFactors")
@guarded
@reads_a_run
def view(
    run: RunFolder,
    party: Annotated[str, typer.Argument(metavar="PARTY", help="recommender, third_party or user:17.")],
    iteration: Annotated[int | None, typer.Option(help="Only this one; -1 is the set-up.")] = None,
    kind: Annotated[str | None, typer.Option(help="A message kind, or received, sent, rejected, event.")] = None,
    sender: Annotated[str | None, typer.Option(metavar="PARTY", help="Only what this party sent.")] = None,
    records: Annotated[str | None, typer.Option(metavar="A:B", help="From record A up to but without B.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most records. (50; all in JSON)")] = None,
    full: Annotated[bool, typer.Option("--full", help="With --json: every value of arrays and keys.")] = False,
    json_: AsJson = False,
) -> None:
    """Show what a party saw, record by record, with the unit of every field."""
    asked, party = party, resolve(run, party)
    sender = None if sender is None else resolve(run, sender)
    span = viewing.parse_records(records) if records else (0, None)
    wanted = viewing.Filter(iteration, kind, sender, *span)
    most = limit if json_ else limit or console.RECORDS_OF_A_PAGE
    chosen = viewing.Selection(viewing.read_view(run, party, full and json_), wanted, most)
    if json_:
        _print_json_rows(_some(chosen, party))
        return
    console.show_records(_some(chosen, party), party if asked == party else f"{asked} ({party})")
    if chosen.next_record is not None:
        further = chosen.count_further(viewing.count_records(run, party))
        given = (("--iteration", iteration), ("--kind", kind), ("--sender", sender), ("--limit", limit))
        flags = [f"{flag} {shlex.quote(str(value))}" for flag, value in given if value is not None]
        place = f"{shlex.quote(str(run))} {party} --records {chosen.next_record}:{span[1] or ''}"
        console.show_further(further, " ".join(["keyhole view", place, *flags]))


def _some(chosen: viewing.Selection, party: str) -> Iterator[dict[str, Any]]:
    """`BadInput` in place of nothing at all."""
    yield from chosen
    if not chosen.shown:
        raise BadInput(chosen.nothing(party))


def _print_json_rows(records: Any) -> None:
    """One JSON array, written row by row: a view may be larger than the memory."""
    first, refused = True, False
    try:
        for record in records:
            print("[" if first else ",", one_line(record), sep="", end="\n")
            first = False
    except BadInput:
        refused = True
        raise
    finally:  # what could be read is one document, also if the rest is not what the party wrote
        if not refused:
            print("[]" if first else "]")


def _print_findings(found: dict[str, Any], json_: bool, display: Callable[[dict[str, Any]], None]) -> None:
    """The exit code stays the verdict also if a reader such as head has seen enough."""
    try:
        print(json_text(found)) if json_ else display(found)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command(epilog="Example: keyhole verify runs/first --anchor 71c3…")
@guarded
@reads_a_run
def verify(
    run: RunFolder,
    anchor: Annotated[str | None, typer.Option(metavar="HEX", help="That the run printed at its end.")] = None,
    json_: AsJson = False,
) -> None:
    """Check that views, model and summary are what the parties wrote; findings name file and record."""
    with check_tables.Reading(run, "verifying", enabled=not json_) as reading:
        found = verifying.verify(run, anchor, reading)
    _print_findings(found, json_, check_tables.show_verification)
    if not found["verified"]:
        fail(check_tables.sentence_of_findings(found), UNVERIFIED)


@app.command(epilog="Example: keyhole replay runs/first --party user:3")
@guarded
@reads_a_run
def replay(
    run: RunFolder,
    party: Annotated[str | None, typer.Option(metavar="PARTY", help="Only this one. (all that keep a view)")] = None,
    json_: AsJson = False,
) -> None:
    """Run every role again from its view: byte for byte the same, or the first difference."""
    with check_tables.Reading(run, "replaying", enabled=not json_) as reading:
        found = replaying.replay(run, None if party is None else resolve(run, party), reading)
    _print_findings(found, json_, check_tables.show_replay)
    if found["identical"]:
        return
    sentence = check_tables.sentence_of_difference(found)
    if found["platform"] == "same" or any(row["broken"] for row in found["parties"]):
        fail(sentence, UNVERIFIED)
    print(f"keyhole: {visible(sentence)}", file=sys.stderr)


@app.command(epilog="Example: keyhole datasets")
@guarded
def datasets(json_: AsJson = False) -> None:
    """List the data sets that --data knows by name; it also takes any path."""
    rows = api.datasets()
    if json_:
        print(json_text(rows))
        return
    console.show_datasets(rows)


@app.command(epilog="Example: keyhole fetch ml-100k")
@guarded
def fetch(dataset: Annotated[str, typer.Argument(metavar="DATASET")]) -> None:
    """Download a data set into the cache folder."""
    folder = fetch_data(dataset, report=lambda sentence: print(sentence, file=sys.stderr))
    print(folder)


@app.command(epilog="Example: keyhole prepare --seed 1 --out runs/by-hand")
@guarded
@takes_configuration
def prepare(
    config: RunConfig,
    out: Out = None,
    force: Force = False,
    host: Annotated[str, typer.Option(help="The address at which the servers will listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Of the first server; the next ones follow.")] = manual_start.FIRST_PORT,
) -> None:
    """Make the roster and the keys of a run whose parties are started by hand."""
    folder, roster = manual_start.prepare(config, out, force, host, port)
    print("Start each of these in a terminal of its own, in any order:")
    trust = " --trust-scheme" if ":" in roster.scheme_name else ""
    for parties in (*roster.card.scheme.servers, "users"):
        print(f"  keyhole actor {parties} --roster {folder}/roster.json --keys {folder}/keys{trust}")


@app.command(epilog="Example: keyhole actor user:0-39 --roster runs/by-hand/roster.json --keys runs/by-hand/keys")
@guarded
def actor(
    party: Annotated[list[str], typer.Argument(metavar="PARTY...", help="recommender, user:3, user:0-9, users.")],
    roster: Annotated[Path, typer.Option(metavar="FILE", help="Who takes part, from keyhole prepare.")],
    keys: Annotated[Path, typer.Option(metavar="DIR", help="The folder with the keys of these parties.")],
    out: Annotated[Path | None, typer.Option(help="Where views and model go. (beside the roster)")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds that an iteration may wait for users.")] = 60.0,
    patience: Annotated[float, typer.Option(help="Seconds without a step, then it gives up.")] = manual_start.PATIENCE,
    scheme: NamedScheme = None,
    trust_scheme: TrustScheme = False,
) -> None:
    """Run one party, or a host of users, in this process."""
    signal.signal(signal.SIGTERM, _interrupt)
    read = manual_start.read_trusted(roster, scheme, trust_scheme)
    manual_start.act(party, read, keys, out or roster.parent, deadline, patience, _tell)


def _tell(event: dict[str, Any]) -> None:
    """What a server that was started by hand says while it works."""
    if event["event"] == "ready":
        print(f"{event['party']} listens at {event['endpoint']}", file=sys.stderr)
    elif event["event"] == "replaying":
        print(f"{event['party']} is reading back its view, at iteration {event['iteration']}", file=sys.stderr)
    elif event["event"] == "resumed":
        print(f"{event['party']} goes on from its view, at iteration {event['iteration']}", file=sys.stderr)
    elif event["event"] == "iteration" and event["seconds"] is not None:
        print(f"{event['party']} finished iteration {event['iteration']} in {event['seconds']:.3f} s", file=sys.stderr)
    elif event["event"] == "end":
        digest = f", item factors {event['result']}" if event.get("result") else ""
        print(f"{event['party']} is done{digest}")


app.command(epilog="Example: keyhole bandwidth runs/first --by kind, or keyhole bandwidth --predict --scheme masked")(
    guarded(takes_configuration(bandwidth_command.bandwidth))
)
app.command(
    epilog="Example: keyhole audit runs/first --coalition recommender+user:3 --strict=claims", cls=auditing.Auditing
)(guarded(reads_a_run(auditing.audit)))
app.command(epilog="Example: keyhole recommend runs/first user:3 --top 5")(
    guarded(reads_a_run(recommend_command.recommend))
)
app.command(epilog="Example: keyhole report runs/first --out first.html")(guarded(reads_a_run(reporting.report)))
app.command(epilog="Example: keyhole bench inprocess --json")(guarded(experiments_command.bench))
app.command(epilog="Example: keyhole evaluate --schemes masked --epsilon 1,8 --data demo --iterations 20")(
    guarded(experiments_command.evaluate)
)
app.command(epilog="Example: keyhole compare --data ml-100k --schemes trusted,masked --seeds 3 --out compared.csv")(
    guarded(experiments_command.compare)
)
app.command(epilog="Example: keyhole reproduce all --quick")(guarded(reproduce_command.reproduce))
for _command, _example in (
    (runs_command.ls, "ls runs"),
    (runs_command.diff, "diff runs/compact runs/paper"),
    (runs_command.watch, "watch runs/first"),
    (runs_command.explain, "explain canary"),
    (runs_command.schemes, "schemes masked"),
    (runs_command.new, "new my_scheme"),
):
    app.command(epilog=f"Example: keyhole {_example}")(guarded(_command))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"keyhole {metadata.version('keyhole')}")
        raise typer.Exit(DONE)


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Runs privacy-preserving recommender protocols as processes; shows what each party saw and what it cost."""


def main() -> None:
    app()
