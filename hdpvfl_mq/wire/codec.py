"""Frames to (header, message) and back; limits first, then parsing, then schema.

It owns the layout [header, signature, body, array...]; it knows no socket, no sequence, no key
store. Arrays travel as raw trailing frames: in the body their place is the frame's number.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.canonical import pack, unpack
from schemas.base import printable
from schemas.envelope import (
    MAX_ARRAY_BYTES,
    MAX_BODY_BYTES,
    MAX_FRAMES,
    MAX_HEADER_BYTES,
    MIN_FRAMES,
    SIGNATURE_BYTES,
    Header,
)
from schemas.messages import ARRAY_BYTES, MESSAGE, ROUTES, Message

Frames = tuple[bytes, ...]
Model = TypeVar("Model", bound=BaseModel)


def encode_body(message: Message) -> tuple[bytes, Frames]:
    """Body frame and array frames of a message."""
    arrays: list[bytes] = []
    body = pack(_detach(message.model_dump(), arrays))
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a {message.kind} of {len(body)} bytes does not fit a body frame")
    return body, tuple(arrays)


def encode_header(header: Header) -> bytes:
    """Header frame."""
    return pack(header.model_dump())


def check_frames(frames: Frames) -> None:
    """Refuse a wrong number of frames or a frame over its limit, before anything is parsed."""
    if not MIN_FRAMES <= len(frames) <= MAX_FRAMES:
        raise PeerError(f"{len(frames)} frames, expected {MIN_FRAMES} to {MAX_FRAMES}")
    if len(frames[0]) > MAX_HEADER_BYTES or len(frames[2]) > MAX_BODY_BYTES:
        raise PeerError("header or body frame is above its limit")
    if len(frames[1]) != SIGNATURE_BYTES:
        raise PeerError("signature frame has the wrong size")
    if any(len(array) > MAX_ARRAY_BYTES for array in frames[3:]):
        raise PeerError("array frame is above its limit")


def decode_header(frames: Frames) -> Header:
    """The part a broker may read, if the other frames have a size that its kind may have."""
    check_frames(frames)
    header = _validated(Header, unpack(frames[0], max_bytes=MAX_HEADER_BYTES), "header")
    if sum(map(len, frames[3:])) > ARRAY_BYTES.get(header.kind, 0):
        raise PeerError(f"array frame is above its limit for {header.kind}")
    return header


def decode_body(header: Header, frames: Frames) -> Message:
    """The message, attached to its arrays and checked against its schema."""
    plain = unpack(frames[2], max_bytes=MAX_BODY_BYTES)
    arrays = list(frames[3:])
    attached = _attach(plain, arrays)
    if arrays:
        raise PeerError("array frame that the body does not use")
    try:
        message = MESSAGE.validate_python(attached)
    except ValidationError as wrong:
        raise PeerError(f"body breaks its schema: {_first(wrong)}") from None
    if message.kind != header.kind or header.kind not in ROUTES:
        raise PeerError("header and body name different kinds")
    if pack(_detach(message.model_dump(), arrays)) != frames[2]:  # a whole number for a float
        raise PeerError("body is not in canonical form")
    return message


def model_digest(model: BaseModel) -> bytes:
    """SHA-256 of a schema's canonical bytes, for comparing settings between parties."""
    return hashlib.sha256(pack(model.model_dump())).digest()


def _validated(schema: type[Model], value: Any, what: str) -> Model:
    try:
        return schema.model_validate(value)
    except ValidationError as wrong:
        raise PeerError(f"{what} breaks its schema: {_first(wrong)}") from None


def _first(wrong: ValidationError) -> str:
    error = wrong.errors(include_input=False, include_url=False, include_context=False)[0]
    # The place of an unknown field is a word of the peer.
    return printable(f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"[:200])


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"dtype", "shape", "data"}


def _detach(value: Any, arrays: list[bytes]) -> Any:
    if _is_tensor(value):
        arrays.append(value["data"])
        return {**value, "data": len(arrays) - 1}
    if isinstance(value, dict):
        return {key: _detach(item, arrays) for key, item in value.items()}
    return value


def _attach(value: Any, arrays: list[bytes]) -> Any:
    if _is_tensor(value):
        if value["data"] != 0 or not arrays:
            raise PeerError("body points at an array frame that is not there")
        return {**value, "data": arrays.pop(0)}
    if isinstance(value, dict):
        return {key: _attach(item, arrays) for key, item in value.items()}
    return value
