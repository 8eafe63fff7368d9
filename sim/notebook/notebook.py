"""The objects that `sim.api` returns in a notebook: a run, its views, its audit and a comparison.

Each document is still the dictionary that the command prints as JSON. Slow imports, and pandas, which nothing else
needs, are made where they are used.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from protocol.errors import BadInput
from protocol.party.view import Broken
from sim.bandwidth import bandwidth as measuring
from sim.experiments import compare_files
from sim.folder import traffic
from sim.folder.byte_records import read_iterations
from sim.folder.folder import read_run, read_summary, trust_scheme
from sim.foreign import untrusted
from sim.foreign.plain_text import jsonable
from sim.runs import recommend as recommending
from sim.views import replay as replaying
from sim.views import verify as verifying
from sim.views import viewing
from sim.views.evidence import open_case

if TYPE_CHECKING:
    from pandas import DataFrame

    from sim.audit.audit import Audit

Document = dict[str, Any]

RECORD = ("record", "type", "iteration", "sender", "receiver", "kind", "bytes", "fields", "digest", "sender_head")
ITERATION = ("iteration", "seconds", "online", "contributors", "dropouts", "train_mae", "bytes")
PARTY = (
    "members", "stands_for", "saw", "determines", "works_out", "individuals", "smallest_group", "items", "of",
    "permitted", "claimed", "measured", "declared",
)  # fmt: skip


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    """Make a DataFrame with these `columns` of `rows`; the columns are there even if there are no rows."""
    try:
        import pandas
    except ImportError:
        words = "A table is given as a DataFrame, and pandas is not installed"
        raise BadInput(f"{words}: install it with pip install 'keyhole[notebook]'.") from None
    return pandas.DataFrame([[row.get(name) for name in columns] for row in rows], columns=list(columns))


# --- what the parties saw --------------------------------------------------------------------------------------------


class View:
    """The view of one party. Each iteration reads it anew from its file, record by record."""

    def __init__(self, folder: Path, party: str) -> None:
        self.folder, self.party = folder, party

    def __iter__(self) -> Iterator[Document]:
        return self.records()

    def __len__(self) -> int:
        return viewing.count_records(self.folder, self.party)

    def records(
        self, *, iteration: int | None = None, kind: str | None = None, sender: str | None = None, full: bool = False
    ) -> Iterator[Document]:
        """Iterate over the records that match, by default all; `full` gives arrays and keys with all their values."""
        wanted = viewing.Filter(iteration, kind, sender)
        return iter(viewing.Selection(viewing.read_view(self.folder, self.party, full), wanted))

    def kinds(self) -> dict[str, int]:
        """Count the records of each kind, in the order in which the kinds first occur."""
        return dict(Counter(record["kind"] for record in self))

    def frame(self, **wanted: Any) -> DataFrame:
        """Make a DataFrame of one row per record; `wanted` are keywords of `records`. Loads the view into memory."""
        return frame(self.records(**wanted), RECORD)

    def __repr__(self) -> str:
        return f"<View of {self.party} in {self.folder}: {len(self)} records>"

    def _repr_html_(self) -> str:
        from sim.notebook.cards import view_card

        return str(view_card(self))


class Views(Mapping[str, View]):
    """The views in a run folder by party, servers first; parties without a view file are left out."""

    def __init__(self, folder: Path) -> None:
        case = open_case(folder, unloaded=True)
        self.folder, self.asked = folder, case.config.views
        self._parties = [party for party in case.parties if party in case.kept and case.path(party).is_file()]
        self._known = frozenset(self._parties)

    def __getitem__(self, party: str) -> View:
        if party not in self._known:
            raise KeyError(f"{self.folder} has no view of {party}; it was run with --views {self.asked}")
        return View(self.folder, party)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parties)

    def __len__(self) -> int:
        return len(self._parties)

    def __repr__(self) -> str:
        few = ", ".join(self._parties[:4]) + (" …" if len(self) > 4 else "")
        return f"<{len(self)} views (--views {self.asked}) in {self.folder}{': ' if few else ''}{few}>"


# --- what follows from it --------------------------------------------------------------------------------------------


class AuditDocument(Document):
    """The document that `keyhole audit --json` prints, except that infinity is a number in it."""

    @property
    def verdict(self) -> str:
        return str(self["verdict"])

    @property
    def findings(self) -> DataFrame:
        """Make one row per finding, the gravest first; `beyond` tells whether it contradicts the scheme's claims."""
        from sim.audit.findings import Finding

        return frame(self["findings"], [*(field.name for field in fields(Finding)), "beyond"])

    @property
    def parties(self) -> DataFrame:
        """Tabulate what each party, then each coalition, saw and can work out."""
        return frame(self["parties"], PARTY)

    def __repr__(self) -> str:
        return f"<Audit of {self['run']}: {self.verdict} (asked: {', '.join(self['questions'])})>"

    def _repr_html_(self) -> str:
        from sim.notebook.cards import audit_card

        return str(audit_card(jsonable(self)))


class Compared(Document):
    """The document that `keyhole compare --json` prints."""

    def frame(self) -> DataFrame:
        """Make one row for each scheme and floor; every ε comes with the column of its unit."""
        rows = [compare_files.flat(row) for row in [*self["rows"], *self["floors"]]]
        return frame(rows, compare_files.COLUMNS)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(row['scheme'] for row in self['rows'])} on {self['data']}>"

    def _repr_html_(self) -> str:
        from sim.notebook.cards import compared_card

        return str(compared_card(self))


# --- a run -----------------------------------------------------------------------------------------------------------


class Run(Document):
    """The summary of a run, with access to everything else that its folder holds."""

    def __init__(self, folder: Path, summary: Mapping[str, Any]) -> None:
        super().__init__(summary)
        self.folder = folder
        self.audited: AuditDocument | None = None  # the latest result of `audit`

    @property
    def summary(self) -> Document:
        return dict(self)

    @functools.cached_property
    def live(self) -> Audit:
        """Return the live audit of this run: `audit` and `report` ask it, and it computes nothing twice."""
        from sim.audit.audit import Audit  # slow to import

        return Audit(self.folder)

    @property
    def views(self) -> Views:
        return Views(self.folder)

    @property
    def iterations(self) -> DataFrame:
        """Make one row for each iteration; −1 is the set-up. (`run["iterations"]` is the number that was asked for.)"""
        try:
            lines = read_iterations(self.folder, self["users"])
        except FileNotFoundError:
            raise BadInput(f"{self.folder} has no iterations.jsonl: the run ended before its set-up did.") from None
        return frame(lines, ITERATION)

    @property
    def item_factors(self) -> npt.NDArray[Any]:
        """Read V after the last iteration; for a scheme without factors, what it published, one row per item."""
        try:
            found: npt.NDArray[Any] = np.array(untrusted.map_array(self.folder, "model/item_factors.npy"))
        except FileNotFoundError:
            words = f"{self.folder} has no item factors: the run did not complete"
            raise BadInput(f"{words}. Go on with it: sim.api.resume({str(self.folder)!r}).") from None
        except ValueError as error:
            raise Broken(f"model/item_factors.npy is not an array of item factors ({error})") from None
        return found

    def bandwidth(self, by: str | None = None) -> DataFrame:
        """Tabulate the rows of `keyhole bandwidth`; `.attrs` has the totals, and whether count and formula match."""
        document = measuring.bandwidth(self.folder, by)
        made = frame(document["rows"], traffic.COLUMNS)
        made.attrs.update({name: document[name] for name in ("total", "match", "kernel_match")})
        return made

    def audit(self, *, coalitions: Iterable[str] = (), only: Iterable[str] = (), **settings: Any) -> AuditDocument:
        """Audit the run: what each party saw, and what `coalitions` can work out. Keywords as in `keyhole audit`."""
        self.audited = AuditDocument(self.live.ask(list(coalitions), only=list(only), **settings))
        return self.audited

    def verify(self, *, anchor: str | None = None) -> Document:
        return verifying.verify(self.folder, anchor)

    def replay(self, *, party: str | None = None) -> Document:
        return replaying.replay(self.folder, party)

    def recommend(self, user: str | None = None, *, top: int = recommending.TOP) -> Document:
        """List what `user`, or the first user that finished, would be shown, as `keyhole recommend --json` does."""
        return recommending.recommend(self.folder, user, top)

    def report(self, out: str | Path | None = None, **settings: Any) -> Path:
        """Write the page of this run to a file; no question that was answered before is asked again."""
        from sim.report.page import page_path, report_page, write_page
        from sim.report.reported_run import ask_for_page

        path = page_path(self.folder, None if out is None else Path(out))
        write_page(path, report_page(ask_for_page(self.live, **settings)))
        return path

    def __repr__(self) -> str:
        how = "completed" if self["completed"] else "aborted"
        return f"<Run in {self.folder}: {self['scheme']} on {self['data']}, {how}>"

    def _repr_html_(self) -> str:
        from sim.notebook.cards import run_card

        return str(run_card(self))


def load(folder: Path, scheme: str | None = None, trusted: bool = False) -> Run:
    """Load an earlier run, completed or aborted, from `folder`."""
    trust_scheme(folder, scheme, trusted)
    read_run(folder, unloaded=True)  # refuses a folder that holds no run
    summary = read_summary(folder)
    if summary is None:
        raise BadInput(f"{folder} has no summary: the run goes on, or was killed; end it with keyhole resume {folder}.")
    return Run(folder, summary)
