"""A party's signature under its finished view: Ed25519 over the run, the party, the number of records and the head.

The secret does not follow from anything in a view, so a reader or forger of the file cannot sign it.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from protocol.arithmetic.tape import derive


@dataclass(frozen=True, slots=True)
class Signer:
    secret: bytes
    public: bytes

    def __repr__(self) -> str:
        return "Signer(redacted)"

    def sign(self, run_id: bytes, party: str, records: int, head: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(_statement(run_id, party, records, head))


def make_signer(run_seed: bytes, party: str) -> Signer:
    """Derive the signer of `party` from the seed of the run, which no party holds: a resumed run has the same keys."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = derive(run_seed, "signing", party)
    return Signer(secret, Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())


def is_signed(public: bytes, signature: bytes, run_id: bytes, party: str, records: int, head: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _statement(run_id, party, records, head))
    except (InvalidSignature, ValueError):
        return False
    return True


def _statement(run_id: bytes, party: str, records: int, head: bytes) -> bytes:
    return msgpack.packb(["keyhole view", run_id, party, records, head])  # type: ignore[no-any-return]
