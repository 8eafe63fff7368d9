"""`keyhole bench iteration-secagg`: the same vectors through Flower's SecAgg+, as an optional extra.

Flower's own workflow and its own mod for clients, unchanged, sum as many vectors of the same length as the users of an
iteration send. Messages are encoded as usual and handed directly to the clients, in one process: Flower's simulation
would add the time of its engine, and of polling for replies every tenth of a second. The other side is a whole
iteration of `masked`, with a process for every user, encrypted connections, and views. So the comparison favours
Flower. It says what two ways to compute a sum cost, not which of them protects more: SecAgg+ needs no second server and
tolerates users that drop out.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.arrays import Floats32
from protocol.errors import Bug
from sim.experiments.bench.measuring import run_real
from sim.experiments.bench.processes import DIM, ITEMS, Load, Measured, of_rounds, warm

USERS, ITERATIONS, ROUNDS = 30, 25, 3
FLOWER_TURNS = 6  # sums by Flower in a round; the first is left out
SHARES, THRESHOLD = 3, 2  # the fewest that SecAgg+ allows, and so the fastest
LIMIT, LEVELS, RANGE = 8.0, 1 << 22, 1 << 32  # clipping and quantization: Flower's defaults
FIRST = 2  # node of the first client; the server is node 1
MISSING = "Flower is not installed, so there is nothing to compare with: pip install 'keyhole[secagg]', then try again."
FLOOR = f"Flower's SecAgg+ in one process, its messages handed over without a network, {SHARES} shares of each key"



def bench_secagg(
    users: int = USERS, dim: int = DIM, items: int = ITEMS, iterations: int = ITERATIONS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds of an iteration of `masked` over those of a sum of as many and as long vectors by SecAgg+."""
    load = Load(users, dim, items, iterations)
    if importlib.util.find_spec("flwr") is None:
        config = {"users": users, "dim": dim, "items_per_user": items, "floor": FLOOR}
        nothing = dict.fromkeys(("median", "floor_median", "ratio"))
        return {"config": config, "samples": [], **nothing, "skipped": MISSING}

    def once() -> Measured:
        real = run_real(load.config())
        return real, warm(real.seconds), sum_by_flower(users, items * dim, FLOWER_TURNS)[1:]

    result = of_rounds(rounds, once, FLOOR, "seconds per iteration, or per sum")
    result["config"] |= {"flower": importlib.metadata.version("flwr"), "shares": SHARES, "threshold": THRESHOLD}
    return result


def sum_by_flower(users: int, length: int, turns: int) -> list[float]:
    """Measure the seconds of each sum; raise `Bug` if the result is not the mean of the vectors."""
    from flwr.app import Context, RecordDict
    from flwr.common import ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, FIRST - 1  # of Flower's server
    logging.getLogger("flwr").setLevel(logging.ERROR)
    vectors = np.random.default_rng(1).uniform(-1, 1, (users, length)).astype(np.float32)
    start = ndarrays_to_parameters([np.zeros(length, np.float32)])
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_available_clients=users,
        initial_parameters=start,
        fit_metrics_aggregation_fn=lambda _: {},
    )
    context = LegacyContext(Context(1, 0, {}, RecordDict(), {}), ServerConfig(num_rounds=turns), strategy)
    work = SecAggPlusWorkflow(
        SHARES, THRESHOLD, max_weight=1.0, clipping_range=LIMIT, quantization_range=LEVELS, modulus_range=RANGE
    )
    seconds: list[float] = []

    def timed(grid: Any, context: Any) -> None:
        before = time.perf_counter()
        work(grid, context)
        seconds.append(time.perf_counter() - before)

    DefaultWorkflow(fit_workflow=timed)(DirectGrid(vectors), context)
    check_mean(context.state.array_records["parameters"].to_numpy_ndarrays()[0], vectors)
    return seconds


def check_mean(found: npt.NDArray[Any], vectors: Floats32) -> None:
    """Check `found` against the mean of `vectors`.

    Each value is rounded to one of LEVELS values between ±LIMIT, so the mean is off by at most one step.
    """
    wanted = vectors.astype(np.float64).mean(axis=0)
    if found.shape != wanted.shape or float(np.abs(found - wanted).max()) > 2 * LIMIT / (LEVELS - 1) + 1e-6:
        raise Bug("What Flower's SecAgg+ gave is not the mean of the vectors.")


class DirectGrid:
    """The part of a Flower grid that a workflow needs: it calls each client directly, with the state of that client."""

    def __init__(self, vectors: Floats32) -> None:
        from flwr.app import Context, RecordDict

        nodes = range(FIRST, FIRST + len(vectors))
        self._app = _client_app(vectors)
        self._contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in nodes}
        self.run = SimpleNamespace(run_id=1)

    def get_node_ids(self) -> list[int]:
        return list(self._contexts)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        from flwr.common.serde import message_from_proto, message_to_proto

        def carried(message: Any) -> Any:
            return message_from_proto(message_to_proto(message))

        replies = []
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)  # as every grid of Flower does
            arrived = carried(message)
            replies.append(carried(self._app(arrived, self._contexts[arrived.metadata.dst_node_id])))
        return replies


def _client_app(vectors: Floats32) -> Any:
    """Make clients that train nothing: each returns its vector."""
    from flwr.client import NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp

    class Client(NumPyClient):  # type: ignore[misc]
        def __init__(self, user: int) -> None:
            self._user = user

        def fit(self, parameters: Any, config: Any) -> Any:
            return [vectors[self._user]], 1, {}

    return ClientApp(lambda context: Client(context.node_id - FIRST).to_client(), mods=[secaggplus_mod])
