"""The codec of version 1 of the protocol, as a program of that version has it.

A copy that is never changed: what version 2 added is refused here, as an older program refuses it.
"""

from __future__ import annotations

import msgpack

HEADER = ("version", "run", "sender", "epoch", "kind", "to", "parent", "head", "size", "root")
DELIVERY = ("party", "sequence", "ack", "seen")
# The messages that version 2 extended, with all fields that they have in version 1.
FIELDS = {
    "member_hello": {"kind", "epoch"},
    "run_news": {"kind", "run", "phase", "waiting_for", "reason"},
    "run_proposal": {"kind", "manifest"},
    "run_offer": {"kind", "manifest"},
}
MANIFEST = {
    *("run", "active_party", "passive_parties", "guarantee", "budget", "loss", "penalty"),
    *("intercept", "method", "seed", "alignment", "absence", "absent_after_s", "deadline_s"),
    *("scale_rows", "rounds_ahead"),
}


def read(frames: tuple[bytes, ...]) -> str:
    """The kind of an envelope; ValueError if a program of version 1 refuses it."""
    header, body = msgpack.unpackb(frames[0]), msgpack.unpackb(frames[2])
    if header["version"] != 1 or set(header) != set(HEADER):
        raise ValueError(f"no header of version 1: {header}")
    if any(set(each) != set(DELIVERY) for each in header["to"]):
        raise ValueError("no delivery of version 1")
    kind = str(header["kind"])
    if body.get("kind") != kind:
        raise ValueError("header and body name different kinds")
    if set(body) != FIELDS.get(kind, set(body)):
        raise ValueError(f"a {kind} of version 1 has other fields than {sorted(body)}")
    if kind in ("run_proposal", "run_offer") and set(body["manifest"]) != MANIFEST:
        raise ValueError("no manifest of version 1")
    return kind
