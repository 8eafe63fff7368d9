"""Remove one guard at a time, and check that a test fails: `python tests/house/guards.py` (ten minutes on 2 cores).

Each entry is one change to one file in a copy of the project, and the tests that must notice it.
"""

from __future__ import annotations

import concurrent.futures
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from guards_of_folders import OF_FOLDERS, Guard
from guards_of_hardened import OF_HARDENED

ROOT = Path(__file__).parents[2]


GUARDS = [
    Guard(
        "the squares of a vector do not wrap mod p",
        "protocol/schemes/hardened/norm_proof/norm_verifier.py",
        "    off = add(off, _misread_tests(statement, shares, challenges, constants))\n",
        "",
        "tests/protocol/hardened/test_norm_proof.py",
    ),
    Guard(
        "no other vector once its tests are known",
        "protocol/schemes/hardened/norm_proof/norm_roles.py",
        "        require(user not in self.committed, Reason.DUPLICATE)\n",
        "",
        "tests/protocol/hardened/test_norm_roles.py",
    ),
    Guard(
        "the recommender agrees only with its own verdict",
        "protocol/schemes/hardened/norm_proof/norm_roles.py",
        "            if set(message.users.tolist()) != set(self.accepted or ()):\n",
        "            if False:\n",
        "tests/protocol/hardened/test_norm_roles.py",
    ),
    Guard(
        "the sum of squares is that of the rows",
        "protocol/schemes/hardened/norm_proof/norm_verifier.py",
        "whole[0] == at_point[0] and off[0] == 0",
        "off[0] == 0",
        "tests/protocol/hardened/test_norm_proof.py",
    ),
    Guard(
        "who holds a key holds what is derived from it",
        "sim/audit/algebra/held_keys.py",
        "                if child not in held and self._parts[child] <= held:",
        "                if False:",
        "tests/audit/algebra/test_algebra_limits.py",
    ),
    Guard(
        "floats of a server have a form, or are named",
        "sim/audit/algebra/symbolic_run.py",
        "        return not (name == \"envelopes\" and isinstance(message, ENVELOPES))",
        "        return False",
        "tests/audit/algebra/test_algebra_limits.py",
    ),
    Guard(
        "a row of noise that is all zero is missing",
        "sim/audit/algebra/linear_forms.py",
        "            elif block.bits is not None:",
        "            elif False:",
        "tests/audit/pairs/test_pairs_faults.py",
    ),
    Guard(
        "noise of all users is tried in later iterations",
        "sim/audit/pairs/retaping.py",
        "        if many >= self.iterations:",
        "        if False:",
        "tests/audit/pairs/test_pairs_faults.py",
    ),
    Guard(
        "whole inputs are exchanged for other items",
        "sim/audit/families/hardened/hardened_family.py",
        "    hides_items = True\n",
        "",
        "tests/audit/pairs/test_pairs_faults.py",
    ),
    Guard(
        "an average weighs each reading by its envelope",
        "sim/audit/attacks/over_time/averaging.py",
        "np.array([1 / (one.fresh + one.rounding) for one in readings])",
        "np.ones((len(readings), len(readings[0].value)))",
        "tests/audit/attacks/test_over_time.py -k weighs",
    ),
    Guard(
        "what is unknown of a user's path counts as noise of the sums",
        "sim/audit/families/masked/sum_regression.py",
        "(unknown[np.ix_(rows, users)] * there).sum(axis=1)[:, None]",
        "0 * there.sum(axis=1)[:, None]",
        "tests/audit/attacks/test_over_time.py -k 'regression or apart'",
    ),
    Guard(
        "the times of others are read from the counts, and not only popularity",
        "sim/audit/attacks/over_time/counts_over_time.py",
        "return told_by_changes + popular > 0,",
        "return 0 * told_by_changes + popular > 0,",
        "tests/audit/attacks/test_over_time.py -k 'infers or by_hand'",
    ),
    Guard(
        "a cheat that the wire form does not allow is refused",
        "protocol/cheats/cheat.py",
        "wire is not None and wire not in cheat.wires",
        "wire is None and wire not in cheat.wires",
        "tests/protocol/test_cheats.py -k wire_form",
    ),
    Guard(
        "a noisy count is published without its low bits",
        "protocol/schemes/covariance/averages.py",
        "float(np.float32(count / params.n_users))",
        "count / params.n_users",
        "tests/audit/canary/test_low_bits.py",
    ),
    Guard(
        "a frame must be canonical",
        "protocol/wire/codec.py",
        "        if msgpack.packb(body) != packed:\n            raise Rejected(Reason.NOT_CANONICAL)\n",
        "",
        "tests/protocol/wire/test_codec.py",
    ),
    Guard(
        "the size is checked before parsing",
        "protocol/wire/codec.py",
        "        if len(frame) > self.max_frame:\n            raise Rejected(Reason.OVERSIZED)\n",
        "",
        "tests/protocol/wire/test_codec.py",
    ),
    Guard(
        "a formula counts every field of its message",
        "protocol/wire/framing.py",
        "        if fields.keys() != entries.keys():\n",
        "        if entries.keys() - fields.keys():\n",
        "tests/protocol/wire/test_fields.py",
    ),
    Guard(
        "a number too far is a gap",
        "protocol/party/session.py",
        "        if sequence > expected:\n            raise Rejected(Reason.GAP)\n",
        "",
        "tests/protocol/party/test_session.py tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "other bytes under one number are a conflict",
        "protocol/party/session.py",
        "Reason.CONFLICT if known is not None and known != frame_digest(frame) else Reason.REPLAYED",
        "Reason.REPLAYED",
        "tests/protocol/party/test_session.py",
    ),
    Guard(
        "the first frame is a Hello of this run",
        "protocol/party/session.py",
        "        if sequence == 0 and not self._same_run(message):\n            raise Rejected(Reason.VERSION)\n",
        "",
        "tests/protocol/party/test_session.py tests/protocol/wire/test_vectors.py",
    ),
    Guard(
        "an iteration is closed once",
        "protocol/schemes/factorization/masked_sum.py",
        "require(iteration == self.iteration < self._iterations and self.closing is None, Reason.WRONG_ITERATION)",
        "require(iteration == self.iteration < self._iterations, Reason.WRONG_ITERATION)",
        "tests/protocol/schemes/test_masked_sum.py tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "one answer per user and iteration",
        "protocol/schemes/factorization/masked_sum.py",
        "        require(user not in self._parts, Reason.DUPLICATE)\n",
        "",
        "tests/protocol/schemes/test_masked_sum.py tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "nobody alone commits to an item's noise",
        "protocol/schemes/factorization/machines/commitment.py",
        "        require(everywhere(opening.counts >= 2), Reason.OUT_OF_RANGE)",
        "        pass",
        "tests/protocol/party/test_commitment.py",
    ),
    Guard(
        "a user answers an iteration once",
        "protocol/schemes/factorization/static_users.py",
        "require(iteration > self.iteration and iteration < self.params.iterations, Reason.WRONG_ITERATION)",
        "require(iteration < self.params.iterations, Reason.WRONG_ITERATION)",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "what is due is said once",
        "protocol/schemes/factorization/machines/roll_call.py",
        "        if iteration <= self._named:\n            return False\n",
        "",
        "tests/protocol/party/test_roll_call.py",
    ),
    Guard(
        "a record must fit the chain",
        "protocol/party/view.py",
        "        if head != stored:\n            raise Broken(f\"record {number} does not fit the hash chain\")\n",
        "",
        "tests/protocol/party/test_view.py",
    ),
    Guard(
        "what is done again must give the same chain",
        "protocol/party/party.py",
        "            if derived[-HASH_BYTES:] != record.head:",
        "            if False:",
        "tests/protocol/party/test_replay_party.py",
    ),
    Guard(
        "a frame carries the head of its sender's view",
        "protocol/party/party.py",
        "        return self.view.head if self.view else NO_HEAD",
        "        return NO_HEAD",
        "tests/protocol/party/test_replay_party.py tests/sim/views/test_verify.py",
    ),
    Guard(
        "write before you speak",
        "actors/stage.py",
        "        self.write(step)\n        if step.abort is not None:\n",
        "        if step.abort is None:\n            self.send(step)\n            step.sends = []\n"
        "        self.write(step)\n        if step.abort is not None:\n",
        "tests/survival/test_crashes.py",
    ),
    Guard(
        "a part of a long step is written before it is sent",
        "actors/stage.py",
        "            self.write(part)\n            self.send(part)\n",
        "            self.send(part)\n            self.write(part)\n",
        "tests/actors/test_host.py",
    ),
    Guard(
        "what is no message of the launcher's is refused",
        "actors/launch/reports.py",
        "    if len(fields) != len(_TAKES[name]) or not all(map(isinstance, fields, _TAKES[name])):",
        "    if False:",
        "tests/actors/test_reports.py",
    ),
    Guard(
        "a full disk is a reason",
        "actors/journal.py",
        "if error.errno in _FULL else error",
        "if False else error",
        "tests/survival/test_crashes.py",
    ),
    Guard(
        "a view begun with other data does not go on",
        "actors/journal.py",
        "    if begun != opening[: len(begun)]:",
        "    if False:",
        "tests/survival/test_resume.py -k other_ratings",
    ),
    Guard(
        "a view has one writer",
        "actors/journal.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        "tests/protocol/party/test_view.py -k writer",
    ),
    Guard(
        "a view is private",
        "actors/journal.py",
        "flags | os.O_CREAT | os.O_EXCL, 0o600)",
        "flags | os.O_CREAT | os.O_EXCL, 0o644)",
        "tests/protocol/party/test_view.py tests/hostile/test_secrets.py",
    ),
    Guard(
        "a key folder that others can read is refused",
        "sim/run/key_files.py",
        "    if mode & (stat.S_IRWXG | stat.S_IRWXO):",
        "    if False:",
        "tests/sim/cli/test_cli.py -k others_can_read",
    ),
    Guard(
        "nobody resumes a run while an actor lives",
        "sim/folder/folder.py",
        "            fcntl.flock(file, kind | fcntl.LOCK_NB)\n",
        "            pass\n",
        "tests/survival/test_resume.py -k while_an_actor_lives",
    ),
    Guard(
        "the servers let in the keys of the roster only",
        "actors/transport/zeromq.py",
        "        return key in self._allowed.get(domain, ())",
        "        return True",
        "tests/actors/test_transport.py",
    ),
    Guard(
        "a server that lets strangers in does not start",
        "actors/transport/zeromq.py",
        "    if not refused:\n        raise Bug(",
        "    if False:\n        raise Bug(",
        "tests/actors/test_transport.py",
    ),
    Guard(
        "a connection that names itself is refused",
        "actors/transport/zeromq.py",
        "        borrowed = bool(frame.get(\"Identity\"))",
        "        borrowed = False",
        "tests/actors/test_transport.py tests/hostile/test_strangers.py",
    ),
    Guard(
        "the key of a user that has gone is refused",
        "actors/transport/zeromq.py",
        "        self._allowed[server] -= {key}",
        "        pass",
        "tests/actors/test_transport.py tests/hostile/test_strangers.py",
    ),
    Guard(
        "the transport drops what is too large",
        "actors/transport/zeromq.py",
        "    socket.setsockopt(zmq.MAXMSGSIZE, max(max_frame + CURVE_OVERHEAD, _HANDSHAKE_BYTES))\n",
        "",
        "tests/actors/test_transport.py",
    ),
    Guard(
        "a frame's head is that of its sender's view",
        "sim/views/exchange.py",
        "        elif received.head == sent.head:",
        "        elif received.head:",
        "tests/sim/views/test_verify.py tests/sim/views/test_verify_cut.py",
    ),
    Guard(
        "a view ends where the summary says",
        "sim/views/viewcheck.py",
        "        elif known is not None and self._known_head != self._demand.head:",
        "        elif False:",
        "tests/sim/views/test_verify.py tests/sim/views/test_verify_cut.py tests/sim/views/test_verify_claims.py",
    ),
    Guard(
        "a finished view is signed by its party",
        "sim/views/viewcheck.py",
        "return None if is_signed(",
        "return None if True or is_signed(",
        "tests/sim/views/test_verify.py tests/sim/views/test_verify_cut.py tests/sim/views/test_verify_claims.py",
    ),
    Guard(
        "who asks again is given the frames that it lacks",
        "protocol/party/party.py",
        "            if number >= message.received:\n",
        "            if False:\n",
        "tests/protocol/party/test_again.py",
    ),
    Guard(
        "what fills up the last byte of packed numbers is zero",
        "protocol/wire/packing.py",
        "    if used % 8 and data[-1] >> used % 8:\n",
        "    if False:\n",
        "tests/protocol/wire/test_packing.py",
    ),
    Guard(
        "a set is packed in the shorter of its two forms",
        "protocol/wire/packing.py",
        "    if _is_list(len(ids), n):\n        raise Rejected",
        "    if False:\n        raise Rejected",
        "tests/protocol/wire/test_packing.py",
    ),
    Guard(
        "the end of a connection is no byte",
        "actors/transport/tcp_counts.py",
        "received - ended, sent)",
        "received, sent)",
        "tests/actors/test_ledger.py",
    ),
    Guard(
        "a frame read after its connection ended belongs to that connection",
        "actors/transport/tcp_counts.py",
        "                if counts.has_unread():\n",
        "                if False:\n",
        "tests/actors/test_ledger.py",
    ),
    Guard(
        "a connection is taken from the counts once, not with each frame",
        "actors/transport/zeromq.py",
        "        if self.ledger and route not in self._counted:\n",
        "        if self.ledger:\n",
        "tests/actors/test_ledger.py",
    ),
    Guard(
        "what was not delivered is no byte on the wire",
        "sim/bandwidth/kernel_check.py",
        "        amount = -wire if kind == UNDELIVERED else wire\n",
        "        amount = wire\n",
        "tests/sim/bandwidth/test_kernel_truth.py",
    ),
    Guard(
        "the summary has the bytes that the lines have",
        "sim/folder/byte_records.py",
        "    if claimed != found:\n",
        "    if False:\n",
        "tests/sim/bandwidth/test_bandwidth_files.py",
    ),
    Guard(
        "a value that a pipe does not take is kept, and nobody waits",
        "actors/pipes.py",
        "sent = self._end.send(waiting[: 1 << 20], _NO_WAIT)",
        "sent = self._end.send(waiting[: 1 << 20])",
        "tests/actors/test_pipes.py -k from_launcher_to_host",
    ),
    Guard(
        "a report that does not fit waits in memory, and its host goes on",
        "actors/pipes.py",
        "            self._end.send(data, _NO_WAIT)\n",
        "            self._end.send(data)\n",
        "tests/actors/test_pipes.py -k from_hosts_to_launcher",
    ),
    Guard(
        "a server does not wait for a user that does not read",
        "actors/transport/zeromq.py",
        "self.socket.send(route, _MORE | _NO_WAIT)",
        "self.socket.send(route, _MORE)",
        "tests/actors/test_pipes.py -k from_server_to_user",
    ),
    Guard(
        "nobody is told of what is only replayed",
        "actors/launch/launcher.py",
        "            and RECOMMENDER not in self._replaying\n",
        "",
        "tests/actors/test_watchdog.py -k replayed",
    ),
    Guard(
        "signs of life are no movement",
        "actors/launch/launcher.py",
        "if not isinstance(report, _NO_MOVEMENT):",
        "if True:",
        "tests/actors/test_watchdog.py -k signs",
    ),
    Guard(
        "a party that was started by hand does not wait for ever",
        "actors/by_hand.py",
        "if self._watchdog.is_stalled() and self._done is None:",
        "if False:",
        "tests/actors/test_watchdog.py -k nobody_answers",
    ),
    Guard(
        "views of a resumed run are held against each other before anybody waits",
        "actors/metering/outcome.py",
        "        if received > sent:\n",
        "        if False:\n",
        "tests/survival/test_resume.py -k named_at_once",
    ),
    Guard(
        "a worker that does nothing is not waited for",
        "sim/drivers/workers.py",
        "                elif watchdog.is_stalled():\n",
        "                elif False:\n",
        "tests/sim/run/test_workers.py -k does_nothing",
    ),
    Guard(
        "a worker that ended is a reason",
        "sim/drivers/workers.py",
        "        except BrokenProcessPool:\n",
        "        except ZeroDivisionError:\n",
        "tests/sim/run/test_workers.py -k that_ends",
    ),
    Guard(
        "a socket folder is removed only if nobody holds its lock",
        "actors/transport/ipc_folders.py",
        "        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n        shutil",
        "        shutil",
        "tests/actors/test_sockets.py",
    ),
    Guard(
        "no process of a run imports from the current folder",
        "actors/launch/forkserver.py",
        'return [sys.executable, "-P", "-c",',
        'return [sys.executable, "-c",',
        "tests/sim/run/test_run.py -k current_folder",
    ),
    Guard(
        "the latest frame of each peer is kept whatever there is",
        "protocol/party/party.py",
        "while self._older_bytes > self.keep_bytes:",
        "while self._older and self._older_bytes + sum(len(f) for _, f in self._latest.values()) > self.keep_bytes:",
        "tests/protocol/party/test_again.py",
    ),
    Guard(
        "publication: only the recommender publishes",
        "protocol/party/role.py",
        "        require(sender == RECOMMENDER, Reason.UNKNOWN_SENDER)\n        require(publication.iteration",
        "        require(publication.iteration",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "publication: it comes after the last iteration",
        "protocol/party/role.py",
        "        require(publication.iteration == params.iterations, Reason.WRONG_ITERATION)\n",
        "",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "publication: it comes once",
        "protocol/party/role.py",
        "        require(self.published is None, Reason.DUPLICATE)\n",
        "",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "publication: it has a row for every item that it should have",
        "protocol/party/role.py",
        "len(publication.factors) == (params.n_items if complete else len(items))",
        "len(publication.factors) >= 0",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "publication: its factors are in range",
        "protocol/party/role.py",
        "        require(everywhere(np.abs(publication.factors) <= limit), Reason.OUT_OF_RANGE)\n",
        "",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "publication: no iteration follows it",
        "protocol/schemes/factorization/static_users.py",
        "        require(self.published is None, Reason.WRONG_ITERATION)\n",
        "",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "publication: a user does not finish without it",
        "protocol/schemes/factorization/static_users.py",
        "        require(self.published is not None, Reason.WRONG_KIND)\n",
        "",
        "tests/protocol/party/test_refusals.py",
    ),
    Guard(
        "what is lived again after views were lost is told again",
        "actors/metering/recorder.py",
        "        self.reported = min(self.reported, iteration - 1)",
        "        pass",
        "tests/survival/test_resume.py -k lost_all_its_views",
    ),
    Guard(
        "a replay works out a checkpoint and does not take it as it stands",
        "protocol/party/party.py",
        "            return Step(self.checkpoint(self.state_of(self)))\n",
        "            return Step(self.checkpoint(record.fields[1]))\n",
        "tests/survival/test_checkpoints.py -k 'forged and bit'",
    ),
    Guard(
        "what is restored from a checkpoint has the state that it states",
        "protocol/freeze.py",
        "    if not same:\n",
        "    if not same and not data:\n",
        "tests/survival/test_checkpoints.py -k whatever",
    ),
    Guard(
        "a checkpoint behind iterations whose figures are lost is of no use",
        "actors/journal.py",
        "last_checkpoint(file, onlooker.known + 1)",
        "last_checkpoint(file, _ANY)",
        "tests/survival/test_checkpoints.py -k log_has_lost",
    ),
    Guard(
        "the records before a checkpoint are checked against the chain",
        "protocol/party/view.py",
        "        if head != data[behind : behind + HASH_BYTES]:\n",
        "        if not head:\n",
        "tests/survival/test_checkpoints.py -k before_a_checkpoint_is_checked",
    ),
    *OF_FOLDERS,
    *OF_HARDENED,
    Guard(
        "audit: rows that follow a rating and no noise are bare",
        "sim/audit/accounting/data_pair.py",
        "        still &= ~_rows_apart(one, fresh)\n",
        "        still[:] = False\n",
        "tests/audit/accounting/test_data_pair.py",
    ),
    Guard(
        "pairs: the length of a field is compared",
        "sim/audit/pairs/deviations.py",
        "                found.append(place.differs(kind, name, LENGTH, len(other) - len(one), len(one)))\n",
        "                pass\n",
        "tests/audit/pairs/test_pairs_faults.py -k InLength",
    ),
    Guard(
        "pairs: noise that stays the same covers what stays the same",
        "sim/audit/pairs/exposure.py",
        "        return max(0.0, given - float(less.sum())), given\n",
        "        return given, given\n",
        "tests/audit/pairs/test_pairs.py -k noise_that_stays",
    ),
    Guard(
        "pairs: bounds count how far a user's factors come apart",
        "sim/audit/families/masked/every_pair.py",
        "grown * rows[-1] + self.pull * self.params.rating_span * length",
        "0 * grown * rows[-1]",
        "tests/audit/pairs/test_every_pair.py -k bound",
    ),
    Guard(
        "canary: every look has its own part of the error",
        "sim/audit/canary/looks.py",
        "    parts = [2.0**-place for place in range(1, len(sizes))]\n",
        "    parts = [1.0 for place in range(1, len(sizes))]\n",
        "tests/audit/canary/test_looks.py -k rarely",
    ),
    Guard(
        "pairs: masks follow what their owner was dealt",
        "sim/audit/pairs/interference.py",
        "        if (bare := _bare(case, user, (first, (other, given)))) is not None:\n",
        "        if (bare := None) is not None:\n",
        "tests/audit/pairs/test_pairs_faults.py -k Shared",
    ),
    Guard(
        "pairs: noise has the size that is stated",
        "sim/audit/pairs/noise_laws.py",
        "            if p[worst] * tests < FALSE_ALARM:\n",
        "            if p[worst] < 0:\n",
        "tests/audit/pairs/test_noise_laws.py",
    ),
    Guard(
        "pairs: noise that is drawn is in what is sent",
        "sim/audit/pairs/tapes.py",
        "        if drawn and twice.left_out is None:\n",
        "        if False:\n",
        "tests/audit/pairs/test_pairs_faults.py -k Quiet",
    ),
    Guard(
        "pairs: keys come from many values",
        "sim/audit/pairs/short_seeds.py",
        "    met = _meetings(dealt_keys(case, tapes))\n",
        "    met = list[Meeting]()\n",
        "tests/audit/pairs/test_pairs_faults.py -k FewKeys",
    ),
    Guard(
        "audit: starting factors are no noise",
        "protocol/arithmetic/factors.py",
        "tape.start(rows, dim, *name)",
        "tape.normal(rows, dim, *name)",
        "tests/audit/accounting/test_data_pair.py",
    ),
    Guard(
        "audit: noise that is lost in rounding is not missing",
        "sim/audit/accounting/data_pair.py",
        "STRENGTHS = (1.0, 1e2, 1e4)",
        "STRENGTHS = (1.0,)",
        "tests/audit/accounting/test_data_pair.py -k accused",
    ),
    Guard(
        "the bound of a changed value counts the other residuals",
        "protocol/schemes/hardened/budget.py",
        "    return min(2 * clip, span) ** 2 + others\n",
        "    return min(2 * clip, span) ** 2\n",
        "tests/protocol/hardened/test_unit_vectors.py -k another_value",
    ),
    Guard(
        "audit: the recommender attacks the noisy totals",
        "sim/audit/families/hardened/hardened_family.py",
        "            yield attack_totals\n",
        "            pass\n",
        "tests/audit/hardened/test_hardened_audit.py -k told_from_the_totals",
    ),
    Guard(
        "audit: canaries of hardened do not trust the stated noise",
        "sim/audit/families/hardened/own_presence.py",
        "    size = seen_deviation(shifts, sums)\n",
        "    size = 1.0\n",
        "tests/audit/hardened/test_hardened_audit.py -k own_canaries",
    ),
]


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Leave out what git does not keep: `runs/` at the top, but not the room `sim/runs/`."""
    found = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info")(folder, names)
    return found | ({"runs"} if Path(folder) == ROOT else set())


def notices(guard: Guard) -> str:
    """Run the tests without this guard; return "" if one fails, else what is wrong with the entry."""
    with tempfile.TemporaryDirectory(prefix="keyhole-guard-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=_left_out)
        path = copy / guard.file
        text = path.read_text("utf-8")
        if text.count(guard.guard) != 1:
            return f"the guard stands {text.count(guard.guard)} times in {guard.file}: bring this list up to date"
        path.write_text(text.replace(guard.guard, guard.without), "utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *shlex.split(guard.tests)]
        environment = os.environ | {"PYTHONPATH": str(copy)}
        try:
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return ""  # hanging is a failure: with the guard, the tests end
    if done.returncode == 1:
        return ""
    return "no test fails" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-300:]}"


def main() -> int:
    wrong = 0
    chosen = [guard for guard in GUARDS if not sys.argv[1:] or any(word in guard.what for word in sys.argv[1:])]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for guard, answer in zip(chosen, pool.map(notices, chosen), strict=True):
            print(f"{'noticed' if not answer else 'NOT NOTICED'}  {guard.what}{answer and ': ' + answer}", flush=True)
            wrong += bool(answer)
    print(f"{len(chosen) - wrong} of {len(chosen)} guards are missed by a test when they are gone")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
