"""The items that each user rated, as each server reads them in its messages; and what they alone reveal about a person.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit, log_expit
from scipy.stats import rankdata

from protocol.arrays import Flags, Floats
from protocol.party.role import RECOMMENDER, THIRD_PARTY, user_index
from protocol.party.view import Broken
from sim.audit.attacks.coalition_views import Scene
from sim.audit.findings import Finding
from sim.audit.scoring import CONFIDENCE, generator
from sim.data.ratings import NAMED, find
from sim.foreign import untrusted

# server -> the messages in which users name the items they rated
_NAMING = {
    RECOMMENDER: ("Join", "RatingsHandover", "GradedRatings", "PerturbedRatings"),
    THIRD_PARTY: ("MaskedGradient", "MaskedPart"),
}

FOLDS = 5
RIDGE = 0.3
FEWEST_PEOPLE = 50
MOST_PEOPLE = 1 << 24  # largest u.user that is read, in bytes
DRAWS = 500


def supports_seen(scene: Scene, server: str) -> dict[int, set[int]]:
    """Collect the items that users name: to the recommender on joining, to the third party with every upload."""
    kinds = _NAMING[server]
    seen: dict[int, set[int]] = {}
    for found in scene.exhibits.received(server, *kinds):
        user = user_index(found.sender)
        if user not in seen:  # a user names the same items every time
            seen[user] = set(map(int, found.message.items))
    return seen


def attack_support(scene: Scene) -> list[Finding]:
    findings = []
    for server in (RECOMMENDER, THIRD_PARTY):
        if server in scene.members:
            findings += _attack(scene, server)
    return findings


def _attack(scene: Scene, server: str) -> list[Finding]:
    seen = supports_seen(scene, server)
    true = {user_index(name): set(map(int, own.items)) for name, own in scene.truth.ratings.items()}
    right = sum(len(seen.get(user, set()) & items) for user, items in true.items())
    named, rated = sum(len(seen.get(user, set())) for user in true), sum(map(len, true.values()))
    if not named:
        return []
    density = rated / (len(true) * scene.params.n_items)
    predicted, words = _predictions(scene, seen)
    measured: dict[str, Any] = {"precision": right / named, "recall": right / rated, **predicted}
    who = server.replace("_", " ")
    title = f"The {who} knows who rated what: precision {right / named:.3f}, recall {right / rated:.3f}."
    claimed = "declared: which items each user rated"
    chance = {"precision": density}
    chance |= {name: 0.5 for name in predicted if name.endswith(("_gender", "_age_over_30"))}
    evidence = f"Items named in {scene.case.file(server)} against what {len(true)} users brought. {words}"
    return [Finding("support", title, scene.members, "weak", claimed, measured, chance,
                    "precision and recall exact" + f"; AUC: {CONFIDENCE:.0%} bootstrap over users" * bool(predicted),
                    evidence)]  # fmt: skip


# --- predictions from support ----------------------------------------------------------------------------------------


def demographics(scene: Scene) -> dict[int, tuple[str, int]]:
    """Read (gender, age) of each user from `u.user` in the folder of the data set; empty if it has none."""
    data = scene.case.config.data
    folder = find(data) if data in NAMED else Path(data).expanduser()
    names = scene.case.folder / "names.json"
    file = None if folder is None else (folder if folder.is_dir() else folder.parent) / "u.user"
    if file is None or not file.is_file() or not names.is_file():
        return {}
    try:
        with untrusted.open_regular(file) as stream:
            text = untrusted.read_at_most(stream, MOST_PEOPLE).decode("latin-1")
        lines = [line.split("|") for line in text.split("\n")]
        users = untrusted.read_json(scene.case.folder, "names.json")["users"][: scene.params.n_users]
        people = {line[0]: (line[2], int(line[1])) for line in lines if len(line) >= 3}
        return {user: people[name] for user, name in enumerate(users) if name in people}
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(f"names.json or {file} is damaged ({type(error).__name__})") from error


def _predictions(scene: Scene, seen: dict[int, set[int]]) -> tuple[dict[str, Any], str]:
    people = {user: who for user, who in demographics(scene).items() if user in seen}
    if not people:
        return {}, "What support predicts was not measured: the data set has no u.user with the users' gender and age."
    if len(people) < FEWEST_PEOPLE:
        few = f"{len(people)} users are too few, {FEWEST_PEOPLE} are needed"
        return {}, f"What support predicts was not measured: {few}."
    matrix = _matrix([sorted(seen[user]) for user in people], scene.params.n_items)
    traits: dict[str, Callable[[tuple[str, int]], bool]] = {
        "gender": lambda who: who[0] == "M",
        "age_over_30": lambda who: who[1] > 30,
    }
    measured: dict[str, Any] = {"people": len(people)}
    for name, has in traits.items():
        labels = np.array([has(who) for who in people.values()])
        scores = cross_validated(matrix, labels, generator(scene.case, "support", name))
        measured[f"auc_{name}"] = auc(scores, labels)
        measured[f"auc_{name}_interval"] = _interval(scores, labels, generator(scene.case, "interval", name))
    words = (
        "AUC: logistic regression with a ridge on the 0/1 matrix (rows divided by the root, columns by the fourth root "
        f"of their sums), {FOLDS}-fold cross-validated; u.user of the data set is the truth."
    )
    return measured, words


def _matrix(rows: list[list[int]], n_items: int) -> csr_matrix:
    """Scale rows by the root and columns by the fourth root of their sums, and make the mean squared length 1.

    So neither active users nor popular items dominate.
    """
    items = np.concatenate([np.array(row, np.int64) for row in rows])
    lengths = np.array([len(row) for row in rows])
    popularity = np.bincount(items, minlength=n_items)
    entries = np.repeat(lengths, lengths) ** -0.5 * popularity[items] ** -0.25
    entries *= np.sqrt(len(rows) / (entries**2).sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return csr_matrix((entries, items, starts), shape=(len(rows), n_items))


def cross_validated(matrix: csr_matrix, labels: Flags, rng: np.random.Generator) -> Floats:
    """Score each user by a model that has not seen that user."""
    fold = rng.permutation(np.arange(len(labels)) % FOLDS)
    scores = np.zeros(len(labels))
    for part in range(FOLDS):
        held = fold == part
        weights = fit(matrix[~held], labels[~held])
        scores[held] = matrix[held] @ weights[1:] + weights[0]
    return scores


def fit(matrix: csr_matrix, labels: Flags) -> Floats:
    """Fit a ridge logistic regression: (intercept, weights)."""
    sign = np.where(labels, 1.0, -1.0)

    def loss(point: Floats) -> tuple[float, Floats]:
        margin = sign * (matrix @ point[1:] + point[0])
        pull = -sign * expit(-margin)
        slope = np.concatenate([[pull.sum()], matrix.T @ pull + RIDGE * point[1:]])
        return float(-log_expit(margin).sum() + RIDGE / 2 * (point[1:] ** 2).sum()), slope

    found = minimize(loss, np.zeros(matrix.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x)


def auc(scores: Floats, labels: Flags) -> float:
    """Compute P(a user with the trait scores higher than a user without it), ties counting half."""
    positive = int(labels.sum())
    ranks = rankdata(scores)[labels].sum()
    return float((ranks - positive * (positive + 1) / 2) / (positive * (len(labels) - positive)))


def _interval(scores: Floats, labels: Flags, rng: np.random.Generator) -> list[float]:
    drawn = []
    for _ in range(DRAWS):
        picked = rng.integers(len(labels), size=len(labels))
        if 0 < labels[picked].sum() < len(labels):
            drawn.append(auc(scores[picked], labels[picked]))
    return [float(end) for end in np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])]
