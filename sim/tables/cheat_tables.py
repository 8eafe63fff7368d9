"""Print what a party that cheats learned, what it cost, and who noticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.markup import escape
from rich.table import Table

from sim.console.console import figure, out

_FAR, _FEW = 2, 3  # raters of one item are dealt the same envelope, so users reject together also by chance


def show_cheat(cheat: dict[str, Any]) -> None:
    """Print the answers about `cheat`, as `keyhole audit --json` gives them."""
    out.print(f"[bold]A party cheats[/]: {escape(cheat['name'])}: {escape(cheat['does'])}.", emoji=False)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=11, no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for question, answer in (
        ("Learned", learned_words(cheat["learned"])),
        ("Cost", cost_words(cheat["cost"])),
        ("Noticed", "; ".join(noticed_words(cheat)) or "by nobody"),
    ):
        grid.add_row(question, escape(f"{answer}."))
    if cheat["unnoticed"]:
        grid.add_row("Unseen", escape(f"{cheat['unnoticed']}."))
    out.print(grid)


def learned_words(learned: dict[str, Any] | None) -> str:
    """Write what was learned in a sentence, each figure beside its chance."""
    if learned is None:
        return "not measured for this scheme"
    parts = [learned["what"]]
    if learned.get("ratings"):
        share, chance = learned["within_half_a_star"], learned["chance"]
        parts.append(f"{share:.0%} of {learned['ratings']:,} within half a star, chance {chance:.0%}")
    if "cosine" in learned:
        parts.append(f"|cos| with u_i {figure(learned['cosine'])}, chance {figure(learned['chance_cosine'])}")
    if "correlation" in learned:
        parts.append(f"correlation {figure(learned['correlation'])}, chance 0")
    if "sums_of_one_honest_user" in learned:
        parts.append(f"{learned['sums_of_one_honest_user']:.0%} of sums hold one honest user")
    if learned.get("noise_left") is not None:
        parts.append(f"the noise is {figure(learned['noise_left'])} of what it should be")
    if learned.get("envelope_spread") is not None:
        spread, chance = figure(learned["envelope_spread"]), figure(learned["spread_chance"])
        parts.append(f"its envelopes spread by {spread} of their mean, {chance} where all users are dealt the same")
    return "; ".join(parts)


def cost_words(cost: dict[str, Any] | None) -> str:
    """Write how much worse users predict than in the honest run."""
    if cost is None or cost["increase"]["test_rmse"] is None:
        return "not measured"
    return f"test RMSE {cost['increase']['test_rmse']:+.3f} against {cost['honest']['test_rmse']:.3f} of the honest run"


def noticed_words(cheat: dict[str, Any]) -> Iterator[str]:
    """Write who noticed, from which message; a check by chance counts for nothing."""
    for row in cheat["noticed"]:
        whom = f" of {row['from']}" if row["from"] else ""
        yield f"{row['by']}, {row['times']:,} {row['kind']}{whom}: {row['why']}"
    checks = cheat["checks"]
    if checks and checks["noticing"] > _FAR * checks["expected_by_chance"] + _FEW:
        yield (
            f"{checks['noticing']} of {checks['users']:,} users reject their envelopes at {checks['level']:.0%}, "
            f"{figure(checks['expected_by_chance'])} by chance"
        )
