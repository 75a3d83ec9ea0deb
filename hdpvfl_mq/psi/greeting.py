"""The first messages of entity resolution.

It owns the bytes of a hello, alone and among those of all. From version 2 of the protocol on, a
passive party sends its hello to the active party alone, and the active party sends all hellos to
all: a message or two for each party instead of one for each pair. Every hello is signed by its
party, so the active party can neither change nor invent one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hdpvfl_mq.psi.stream import derive
from hdpvfl_mq.psi.terms import MEMBERS_BYTES
from hdpvfl_mq.psi.toss import NONCE_BYTES

_PLAIN_BYTES = 32 + 64 + NONCE_BYTES  # public key, two checks, nonce
_HELLO_BYTES = _PLAIN_BYTES + MEMBERS_BYTES  # of a hello that is relayed
_SIZE_BYTES = 8
_SIGNED_BYTES = _HELLO_BYTES + 64
_LISTED_BYTES = _SIGNED_BYTES + _SIZE_BYTES


@dataclass(frozen=True)
class SignedHello:
    """A party's hello and its signature, which is empty if the hello is not relayed."""

    hello: bytes
    size: int  # padded number of ids
    signature: bytes = b""

    @property
    def key(self) -> bytes:
        """The party's X25519 key."""
        return self.hello[:32]

    @property
    def profile_check(self) -> bytes:
        """The hash of the party's id profile."""
        return self.hello[32:64]

    @property
    def terms_check(self) -> bytes:
        """The hash of the party's other terms."""
        return self.hello[64:96]

    @property
    def nonce(self) -> bytes:
        """The party's share of the public seed."""
        return self.hello[96:_PLAIN_BYTES]

    @property
    def members(self) -> bytes:
        """The digest of all members and their keys, as the party knows them."""
        return self.hello[_PLAIN_BYTES:]


def statement(session_id: bytes, party: str, hello: bytes, size: int) -> bytes:
    """What a party signs: its hello in this session and in no other."""
    return derive(session_id, "signed hello", party, hello, size)


def read_hello(payload: bytes, meta: tuple[int, ...], *, is_signed: bool) -> SignedHello | None:
    """A hello as its party sends it; None if it has another form."""
    if len(payload) != (_SIGNED_BYTES if is_signed else _PLAIN_BYTES) or len(meta) != 1:
        return None
    return SignedHello(payload[:_HELLO_BYTES], meta[0], payload[_HELLO_BYTES:])


def pack_hellos(parties: tuple[str, ...], hellos: Mapping[str, SignedHello]) -> bytes:
    """The hellos of all parties in the order of the terms."""
    listed = (hellos[party] for party in parties)
    return b"".join(h.hello + h.signature + h.size.to_bytes(_SIZE_BYTES, "big") for h in listed)


def read_hellos(
    parties: tuple[str, ...], packed: bytes
) -> Iterator[tuple[str, SignedHello]] | None:
    """The hello of every party; None if there is not exactly one of each."""
    if len(packed) != len(parties) * _LISTED_BYTES:
        return None
    return (
        (party, _listed(packed[start : start + _LISTED_BYTES]))
        for party, start in zip(parties, range(0, len(packed), _LISTED_BYTES), strict=True)
    )


def _listed(entry: bytes) -> SignedHello:
    hello, signature = entry[:_HELLO_BYTES], entry[_HELLO_BYTES:_SIGNED_BYTES]
    return SignedHello(hello, int.from_bytes(entry[_SIGNED_BYTES:], "big"), signature)
