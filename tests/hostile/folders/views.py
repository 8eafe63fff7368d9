"""Mutations of views: of their bytes, records and frames; most views are chained and signed again afterwards."""

from __future__ import annotations

import contextlib
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
from support.attackers.acceptable import read
from support.attackers.mutate import Mutator, true_frame
from support.tamper import adapt_summary, joined, rebuild, rechain, split

from protocol.card import Card, all_parties, make_run_id
from protocol.party.view import END, EVENT, HEADER, INPUT, PREAMBLE, RECEIVED, REJECTED, SENT, SIGNED
from protocol.schemes import SCHEMES
from tests.hostile.folders.trees import to_toml
from tests.hostile.folders.values import NUMBERS, TEXTS, Chance, near

Bodies = list[list[Any]]
_NAMES = ("Gone", "Online", "Again", "Refused", "Deadline", "Presence", "Tick", "Absent", "Left", "Iteration")
_MSGPACK_NUMBERS = [n for n in NUMBERS if not isinstance(n, int) or -(2**63) <= n < 2**64]


def mutate_view(path: Path, folder: Path, chance: Chance) -> str:
    """Change the bytes or the records of a view; changed records get a chain that fits, and mostly a summary too."""
    data = path.read_bytes()
    try:
        contents = [msgpack.unpackb(record[4:-32], strict_map_key=False) for record in split(data)]
    except Exception:  # an earlier mutation has made it unreadable
        contents = []
    if not contents or chance.one_in(5):
        return _by_bytes(path, data, chance)
    if chance.one_in(6):
        words = _by_bodies(path, data, chance)
    else:
        words = "; ".join(_by_fields(contents, chance) for _ in range(1 + chance.below(2)))
        _write(path, folder, contents)
    if not chance.one_in(4):
        with contextlib.suppress(Exception):  # a summary that another mutation has spoilt
            adapt_summary(folder)
    return words


def _write(path: Path, folder: Path, contents: Bodies) -> None:
    """Write the view with a chain that fits, and signed if that is possible."""
    party = path.stem.replace("-", ":", 1)
    try:
        seed = int(tomllib.loads((folder / "run.toml").read_text("utf-8"))["run"]["seed"])
        rebuild(folder, party, contents, seed)
    except Exception:  # a header of another type, a run.toml that another mutation has spoilt
        path.write_bytes(joined(rechain([msgpack.packb(body) for body in contents])))


# --- bytes -----------------------------------------------------------------------------------------------------------


def _by_bytes(path: Path, data: bytes, chance: Chance) -> str:
    at, odd = chance.below(len(data) + 1), chance.bytes(1 + chance.below(8))
    siblings = sorted(each for each in path.parent.glob("*.view") if each.is_file())
    forms: dict[str, Callable[[], bytes]] = {
        "cut": lambda: data[:at],
        "bytes put in": lambda: data[:at] + odd + data[at:],
        "bytes replaced": lambda: data[:at] + odd + data[at + len(odd) :],
        "doubled": lambda: data * 2,
        "doubled after its preamble": lambda: data + data[len(PREAMBLE) :],
        "only a preamble": lambda: PREAMBLE,
        "another format": lambda: data[:12] + struct.pack("<H", chance.below(9)) + data[14:],
        "another party's": lambda: chance.of(siblings).read_bytes() if siblings else b"",
        "a record of 1 GiB claimed": lambda: PREAMBLE + struct.pack("<I", 1 << 30) + data[18:],
        "a record of 4 GiB claimed": lambda: PREAMBLE + struct.pack("<I", 2**32 - 1) + data[18:],
        "a length claimed at the end": lambda: data + struct.pack("<I", chance.of((1, 2**30, 2**31, 2**32 - 1))),
        "zeros": lambda: data + bytes(10_000),
        "empty records": lambda: PREAMBLE + bytes(36) * 3000,
    }
    words = chance.of(list(forms))
    path.write_bytes(forms[words]())
    return f"bytes: {words}"


def _by_bodies(path: Path, data: bytes, chance: Chance) -> str:
    """Put in a body that msgpack reads in an unusual way; the chain fits."""
    raw = [record[4:-32] for record in split(data)]
    deep = chance.of((100, 600, 100_000))
    odd = {
        "deep arrays": b"\x92\x05" + b"\x91" * deep + b"\xc0",
        "deep maps": b"\x92\x01" + b"\x81\xa1a" * deep + b"\xc0",
        "deep event": b"\x93\x05\xa4Gone" + b"\x91" * min(deep, 500) + b"\xc0",
        "an array of 2^32": b"\xdd\xff\xff\xff\xff",
        "a map of 2^32": b"\x92\x01\xdf\xff\xff\xff\xff",
        "bytes of 2^32": b"\x93\x02\xa1x\xc6\xff\xff\xff\xff",
        "not UTF-8": b"\x93\x02\xa2\xff\xfe\xc4\x01x",
        "an extension": b"\x92\x05\xd4\x00\x00",
        "a timestamp": b"\x93\x05\xa4Gone\xd6\xff\x00\x00\x00\x01",
        "map with a number as key": b"\x92\x01\x81\x01\x02",
        "map with a list as key": b"\x92\x01\x81\x91\x01\x02",
        "no type": b"\x90",
        "nothing": b"",
        "type 255": b"\x92\xcc\xff\x01",
        "type true": b"\x92\xc3\x01",
        "two values": b"\x92\x05\xa4Gone\x00",
        "a megabyte of small events": b"\xdc\xff\xff\x05\xa4Gone" + b"\x00" * 65533,
        "a long name": b"\x92\x05\xdb\x00\x10\x00\x00" + b"x" * (1 << 20),
    }
    words, at = chance.of(list(odd)), chance.below(len(raw))
    raw[at : at + chance.below(2)] = [odd[words]]
    path.write_bytes(joined(rechain(raw)))
    return f"record {at}: {words}"


# --- records and their fields ----------------------------------------------------------------------------------------


def _by_fields(contents: Bodies, chance: Chance) -> str:
    change = chance.of(_CHANGES)
    return f"{change.__name__.strip('_')}: {change(contents, chance)}"


def _odd_field(chance: Chance) -> Any:
    kind = chance.below(8)
    if kind < 3:
        return chance.of(_MSGPACK_NUMBERS)
    if kind < 6:
        return chance.of(TEXTS).encode("utf-8", "replace").decode()
    return chance.of((b"", bytes(31), bytes(32), bytes(33), bytes(5000), None, [], {}, [[]], {1: 2}, [b"x"]))


def _any_field(contents: Bodies, chance: Chance) -> str:
    at = chance.below(len(contents))
    body = contents[at]
    if not body:
        return "none"
    place = chance.below(len(body))
    old = body[place]
    same = isinstance(old, (str, int, float)) and not chance.one_in(3)
    body[place] = _fits(near(chance, old)) if same else _odd_field(chance)
    return f"record {at}, field {place}"


def _fits(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value if not isinstance(value, int) or -(2**63) <= value < 2**64 else 2**64 - 1


def _number_of_fields(contents: Bodies, chance: Chance) -> str:
    at = chance.below(len(contents))
    if chance.one_in(2):
        contents[at].insert(chance.below(len(contents[at]) + 1), _odd_field(chance))
    elif len(contents[at]) > 1:
        del contents[at][chance.below(len(contents[at]))]
    return f"record {at}"


def _of_type(contents: Bodies, wanted: int) -> list[int]:
    return [at for at, body in enumerate(contents) if body and body[0] == wanted]


def _header(contents: Bodies, chance: Chance) -> str:
    body = contents[0]
    if len(body) < 7:
        return "none"
    place = 1 + chance.below(6)
    schemes = [*SCHEMES, "evil:Evil"]
    body[place] = chance.of(schemes) if place == 3 and chance.one_in(2) else _odd_field(chance)
    return f"field {place}"


def _input(contents: Bodies, chance: Chance) -> str:
    for at in _of_type(contents, INPUT)[:1]:
        inputs = contents[at][1] if len(contents[at]) > 1 and isinstance(contents[at][1], dict) else {}
        key = chance.of(("items", "ratings", "tape_seed", "ratings", "items", "extra", "\x1b[31m", MARKED))
        old = inputs.get(key, b"")
        old = old if isinstance(old, bytes) else b""
        words = {"items": _WORDS4, "ratings": _WORDS8}.get(key, _WORDS4)
        unit = len(words[0])
        forms = (
            old[: -unit or None], old + chance.of(words), b"".join(chance.of(words) for _ in range(len(old) // unit)),
            old[::-1], old[:-1], b"", old[:5000] * 3, old[:64] * 5000, chance.bytes(len(old)), _odd_field(chance),
        )  # fmt: skip
        inputs[key] = chance.of(forms)
        if chance.one_in(8):
            inputs.pop(chance.of(list(inputs)))
        contents[at][1:] = [inputs]
        return str(key)
    return "none"


MARKED = "[bold]x[/]"
_WORDS4 = (bytes(4), b"\1\0\0\0", b"\xff" * 4, b"\0\0\0\x80", b"\5\0\0\0", b"\4\0\0\0")
_WORDS8 = tuple(struct.pack("<d", x) for x in (0.0, -1.0, 1.0, 5.0, 1e308, float("nan"), float("inf"), 1e-320, 3.3))


def _event(contents: Bodies, chance: Chance) -> str:
    places = _of_type(contents, EVENT)
    known = [contents[at][1] for at in places if len(contents[at]) > 1 and isinstance(contents[at][1], str)]
    name = chance.of([*known, *_NAMES, *TEXTS[:60]]).encode("utf-8", "replace").decode()
    made = [EVENT, name, *(_odd_field(chance) for _ in range(chance.below(4)))]
    if places and chance.one_in(2):
        at = chance.of(places)
        made[2:] = [_fits(near(chance, old)) for old in contents[at][2:]] if chance.one_in(2) else made[2:]
        contents[at] = made
    else:
        at = 2 + chance.below(len(contents))
        contents.insert(at, made)
    return f"{name[:30]!r} at {at}"


def _order(contents: Bodies, chance: Chance) -> str:
    a, b = chance.below(len(contents)), chance.below(len(contents))
    kind = chance.below(6)
    if kind == 0:
        contents[a], contents[b] = contents[b], contents[a]
    elif kind == 1:
        contents.insert(a, list(contents[b]))
    elif kind == 2:
        del contents[a]
    elif kind == 3:
        del contents[max(1, a) :]
    elif kind == 4:
        del contents[:a]
    else:
        contents[b:b] = [list(body) for body in contents[a : a + 5]] * 100
    if not contents:
        contents.append([HEADER])
    return f"{('swapped', 'doubled', 'removed', 'cut', 'without beginning', 'many times')[kind]} {a}, {b}"


def _frame(contents: Bodies, chance: Chance) -> str:
    """Change the fields or bytes of a received frame, with the mutations of the fuzzer for frames."""
    places = [at for at in _of_type(contents, RECEIVED) if _is_frame(contents[at])]
    if not places:
        return "none"
    pool = [true_frame(contents[at][1], "", contents[at][2]) for at in places]
    which = chance.below(len(pool))
    mutator = Mutator(chance.below(2**62), pool, kinds=16, max_frame=4096)
    number = pool[which].parts[1] if len(pool[which].parts) > 1 else 0
    contents[places[which]][2] = mutator.mutate(pool[which], number if isinstance(number, int) else 0)
    if chance.one_in(4):
        contents[places[which]][1] = chance.of(("user:0", "user:1", "recommender", "third_party", "nobody", "user:99"))
    return f"record {places[which]}"


def _is_frame(body: list[Any]) -> bool:
    right = len(body) == 3 and isinstance(body[1], str) and isinstance(body[2], bytes) and len(body[2]) > 32
    return right and read(body[2]) is not None


def _sent_or_refused(contents: Bodies, chance: Chance) -> str:
    places = [*_of_type(contents, SENT), *_of_type(contents, REJECTED)]
    if not places:
        return "none"
    at = chance.of(places)
    body = contents[at]
    if chance.one_in(3):
        contents[at] = [REJECTED, "user:0", chance.of(("GAP", "MALFORMED", *TEXTS[:40])), 5, bytes(32), True]
        contents[at][2] = _fits(contents[at][2])
    elif len(body) > 1:
        place = 1 + chance.below(len(body) - 1)
        body[place] = _fits(near(chance, body[place])) if isinstance(body[place], (int, str)) else _odd_field(chance)
    return f"record {at}"


def _end(contents: Bodies, chance: Chance) -> str:
    kind = chance.below(4)
    if kind == 0:
        contents[:] = [body for body in contents if body and body[0] != SIGNED] or contents
    elif kind == 1:
        contents[:] = [body for body in contents if body and body[0] not in (END, SIGNED)] or contents
    elif kind == 2:
        contents.append([END, bytes(32)])
    else:
        contents.append([SIGNED, chance.of((bytes(64), b"", bytes(63), bytes(10_000)))])
    return ("without signature", "without end", "another end", "another signature")[kind]


_CHANGES: list[Callable[[Bodies, Chance], str]] = [
    _any_field, _any_field, _any_field, _number_of_fields, _header, _input, _input, _event, _event, _order, _order,
    _frame, _frame, _frame, _sent_or_refused, _end,
]  # fmt: skip


# --- the whole folder, changed consistently --------------------------------------------------------------------------


def forge(folder: Path, chance: Chance) -> str:
    """Change parameters in run.toml, and if possible the run id, the headers and the signatures to match."""
    path = folder / "run.toml"
    document = tomllib.loads(path.read_text("utf-8"))
    name = chance.of(list(document["params"]))
    value = near(chance, document["params"][name])
    document["params"][name] = value
    if name in document["run"]:
        document["run"][name] = value
    if chance.one_in(5):
        scheme = chance.of(list(SCHEMES))
        document["run"]["scheme"] = document["params"]["scheme"] = scheme
    words = f"{name} = {str(value)[:40]}"
    with contextlib.suppress(Exception):  # parameters that no scheme can have
        words += _follow(folder, document)
    path.write_text(to_toml(document), "utf-8")
    return words


def _follow(folder: Path, document: dict[str, Any]) -> str:
    scheme = SCHEMES[document["run"]["scheme"]]()
    params = scheme.params_class(**document["params"])
    if params.n_users > 10_000:
        return ", of too many to follow"
    run_id = make_run_id(params, all_parties(scheme, params.n_users), bytes.fromhex(document["nonce"]))
    document["run_id"] = run_id.hex()
    card = Card(scheme, params, run_id, document["simulation"])
    for view in sorted((folder / "views").glob("*.view")):
        contents = [msgpack.unpackb(record[4:-32]) for record in split(view.read_bytes())]
        contents[0][1], contents[0][3], contents[0][4] = run_id, scheme.name, card.params_digest
        rebuild(folder, view.stem.replace("-", ":", 1), contents, int(document["run"]["seed"]))
    adapt_summary(folder)
    return ", and all follows"
