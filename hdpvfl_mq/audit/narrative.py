"""Records in words: one line each, and an account of a step that replays differently.

It owns the wording of records and of differences; it replays nothing (the node does) and opens no
file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import BaseModel

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.wire.canonical import unpack
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from schemas.commands import OperatorCommand
from schemas.envelope import MAX_BODY_BYTES
from schemas.federation import Forget, Meet, SignWith
from schemas.messages import Message, Releasing
from schemas.records import (
    Acknowledged,
    Arm,
    Book,
    Charge,
    Charged,
    CheckLedger,
    EnvelopeReceived,
    EnvelopeSent,
    Finish,
    LedgerRead,
    OperatorRequest,
    ReadLedger,
    RecordedEffect,
    RecordedInput,
    Refused,
    RememberHead,
    Reserve,
    Started,
    StepRecord,
    TimerFired,
    TurnedAway,
    Withheld,
)
from schemas.tensor import Tensor

DIFFERENCES_MAX = 20
_SHOWN_FIELDS = {
    "round",
    "rounds_done",
    "rows",
    "first",
    "last",
    "stage",
    "outcome",
    "rule",
}


def line(record: StepRecord) -> str:
    """One record in one line."""
    effects = ", ".join(_effect(effect) for effect in record.effects) or "nothing"
    return f"{record.index:6}  {_input(record.input)}  ->  {effects}"


def _input(given: RecordedInput) -> str:  # noqa: PLR0911 - one line for each kind
    match given:
        case EnvelopeReceived(frames=frames):
            return f"from {_envelope(frames, received=True)}"
        case Started(epoch=epoch):
            return f"started, epoch {epoch}"
        case LedgerRead():
            return "ledger read"
        case Charged(query=query, reason=reason):
            return f"query {query} charged to the people it asks for{reason and ': '}{reason}"
        case TimerFired(timer=timer):
            return f"timer {timer}"
        case OperatorRequest(request=request):
            return f"operator: {request}"
        case Acknowledged(frames=frames):
            return f"from {_envelope(frames, received=True)}"
        case TurnedAway(reason=reason):
            return f"turned away: {reason}"
        case Withheld(reason=reason):
            return f"withheld: {reason}"
        case OperatorCommand(command=command):
            return f"command: {command.name}"


def _effect(effect: RecordedEffect) -> str:  # noqa: PLR0911 - one line for each kind
    match effect:
        case EnvelopeSent(frames=frames):
            return f"to {_envelope(frames, received=False)}"
        case Arm(timer=timer, delay_ms=delay_ms):
            return f"arm {timer} in {delay_ms / 1000:g} s"
        case Reserve(mu2_units=mu2_units, exact=exact):
            return "reserve exact values" if exact else f"reserve {mu2_units} units of mu^2"
        case Book(release=release):
            return f"book {release.release_id}"
        case Charge(query=query, places=places):
            return f"charge query {query} to {places.shape[0]} people"
        case ReadLedger():
            return "read the ledger"
        case RememberHead(party=party):
            return f"remember the ledger head of {party}"
        case CheckLedger(party=party):
            return f"check the ledger against what {party} remembers"
        case Meet(party=party) | Forget(party=party):
            return f"{effect.kind} {party}"
        case SignWith():
            return "sign with the new key"
        case Finish(outcome=outcome):
            return f"end: {outcome}"
        case Refused(reason=reason):
            return f"refused: {reason}"


def _envelope(frames: Frames, *, received: bool) -> str:
    try:
        header = decode_header(frames)
        if is_in_parts(frames):
            parts = PartList.of_frames(frames)
            who = header.sender if received else ", ".join(d.party for d in header.to)
            return f"{who}: {header.kind} ({parts.sizes.bytes} bytes in {len(parts)} parts)"
        message = decode_body(header, frames)
    except PeerError as broken:
        return f"somebody, unreadable ({broken})"
    who = header.sender if received else ", ".join(d.party for d in header.to)
    return f"{who}: {message.kind}{_details(message)}"


def _details(message: Message) -> str:
    parts = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in message
        if name in _SHOWN_FIELDS and type(value) in (int, str)
    ]
    if isinstance(message, Releasing):
        release = message.release
        parts.append(f"{release.tensor.shape[0]} values, noise {release.noise_std:g}")
    return f" ({', '.join(parts)})" if parts else ""


def differences(recorded: bytes, recomputed: bytes, index: int) -> list[str]:
    """The first differences between two encodings of the same step, field by field."""
    old, new = (_readable(chain.decode(stored, index)) for stored in (recorded, recomputed))
    found = []
    for path, was, now in _compare("", old, new):
        found.append(f"{path}: recorded {_short(was)}, now {_short(now)}")
        if len(found) == DIFFERENCES_MAX:
            found.append("and more")
            break
    return found


def _readable(record: StepRecord) -> dict[str, Any]:
    """A record as nested plain values, with envelopes decoded."""
    return {
        "input": _open(record.input),
        "effects": {str(n): _open(effect) for n, effect in enumerate(record.effects)},
    }


def _open(part: RecordedInput | RecordedEffect) -> dict[str, Any]:
    if not isinstance(part, EnvelopeReceived | EnvelopeSent | Acknowledged):
        return part.model_dump()
    header = decode_header(part.frames)
    if is_in_parts(part.frames):  # digests show which parts differ
        plain = unpack(part.frames[2], max_bytes=MAX_BODY_BYTES)
        return {"header": header.model_dump(), header.kind: plain, "parts": part.frames[3:]}
    message = decode_body(header, part.frames)
    return {"header": header.model_dump(), message.kind: dict(message)}


def _compare(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, BaseModel) and type(old) is type(new) and not isinstance(old, Tensor):
        old, new = dict(old), dict(new)
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from _compare(f"{path}.{key}".lstrip("."), old.get(key), new.get(key))
    elif isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        for number, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _compare(f"{path}[{number}]", was, now)
    elif isinstance(old, Tensor) and isinstance(new, Tensor) and old.shape == new.shape:
        apart = np.flatnonzero(old.array().astype(float) != new.array().astype(float))
        if apart.size:
            text = f"{apart.size} of {old.shape[0]} values, the first at {apart[0]}"
            yield path, "other values", text
    elif old != new:
        yield path, old, new


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()[:16] + "..."
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
