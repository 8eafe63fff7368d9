"""The commands `keyhole run` and `keyhole resume`."""

from __future__ import annotations

import functools
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from protocol.errors import Reason
from sim.cli import audit_command as auditing
from sim.cli.endings import ABORTED, fail, fail_scheme
from sim.cli.flags import AsJson, Force, Out, Quiet, RunFolder, Verbose
from sim.console.console import emit, say
from sim.folder.folder import read_run
from sim.plan.config import RunConfig
from sim.plan.plan import Plan
from sim.run import run as running
from sim.tables.run_progress import RunProgress

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def resume(run: RunFolder, verbose: Verbose = False, quiet: Quiet = False, json_: AsJson = False) -> None:
    """Go on with a run that was stopped or aborted, from the views of its parties."""
    if not _live(functools.partial(running.resume, run), json_, verbose, quiet, resumes=True):
        say("This run was complete, so nothing was done; keyhole verify checks it.")


def _live(
    carry_out: Callable[..., dict[str, Any]], json_: bool, verbose: bool, quiet: bool, resumes: bool = False
) -> bool:
    """Say what the run spends, show a bar while `carry_out` runs, then the summary; return False if it was complete."""
    for signum in _STOPS:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # it is ignored under nohup
            signal.signal(signum, interrupt)
    plans: list[Plan] = []

    def on_plan(plan: Plan) -> None:
        plans.append(plan)
        for note in () if quiet else plan.notes:  # no party has started yet
            say(note)
        live.start(plan.card.params.n_users, plan.card.params.iterations)

    with RunProgress(quiet) as live:
        told = {"on_plan": on_plan, "on_line": live.line, "on_join": live.join}
        summary = carry_out(**told, **({"on_replay": live.replay} if resumes else {}))
        live.audit()
        answers = ("", None) if json_ else auditing.ask_briefly(summary)
    emit(summary, json_, lambda found: auditing.show_run(found, verbose, *answers))
    abort = summary["abort"]
    if abort and abort["reason"] == Reason.SCHEME_FAILED.name:
        fail_scheme(abort.get("traceback", ""), abort["sentence"])
    if abort:
        further = f" Go on with keyhole resume {shlex.quote(summary['run'])}."
        can_go_on = read_run(Path(summary["run"]))[0]["run"]["views"] == "full"  # else some parties would begin anew
        fail(f"The run was aborted: {abort['sentence']}.{further if can_go_on else ''}", ABORTED)
    return bool(plans)


def interrupt(signum: int, frame: Any) -> NoReturn:
    """End the run on the first signal; further ones are ignored while processes stop and the summary is written."""
    for stop in _STOPS:
        signal.signal(stop, signal.SIG_IGN)
    raise KeyboardInterrupt
