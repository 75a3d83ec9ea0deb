"""Frames to (header, message) and back; limits first, then parsing, then schema.

It owns the layout [header, signature, body, array...]; it knows no socket, no sequence, no key
store. Arrays travel as raw trailing frames; the body holds the frame number in their place. A large
array travels in parts (parts.py): its envelope has their list in place of the array.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.parts import Buffer, PartList, is_in_parts, is_large
from hdpvfl_mq.wire.versions import check_version
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
from schemas.messages import ARRAY_BYTES, IN_PARTS, MESSAGE, ROUTES, Message

Frames = tuple[bytes, ...]
# Headers that stay parsed while an envelope goes through a process, which asks several times; those
# of a crowd wait for their turn together. Either kind takes at most 20 MB.
_SMALL_HEADER_BYTES = 4 * 2**10
_SMALL_HEADERS, _LARGE_HEADERS = 1024, 64
_TENSOR_FIELDS = {"dtype", "shape", "data"}
Model = TypeVar("Model", bound=BaseModel)
# How the reasons of `decode_body` begin. Auditors tell by them that a body was refused for its
# form; scripts/verify_journal has no schemas and believes the receiver's record.
UNREADABLE = ("frame ", "body ", "array frame ", "header and body ")


def encode_body(message: Message) -> tuple[bytes, Frames]:
    """Body frame and array frames of a message; a large array gives the list of its parts."""
    arrays: list[Buffer] = []
    body = pack(_detach(message.model_dump(), arrays))
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a {message.kind} of {len(body)} bytes does not fit a body frame")
    if message.kind in IN_PARTS and is_large(arrays[0]):
        return body, PartList.of_array(arrays[0]).frames
    return body, tuple(map(bytes, arrays))


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
    """The header, which a broker may read; checks the sizes of the other frames for its kind."""
    check_frames(frames)
    is_small = len(frames[0]) <= _SMALL_HEADER_BYTES
    header = (_parsed_small if is_small else _parsed_large)(frames[0])
    if sum(map(len, frames[3:])) > ARRAY_BYTES.get(header.kind, 0):
        raise PeerError(f"array frame is above its limit for {header.kind}")
    if is_in_parts(frames):
        if header.kind not in IN_PARTS:
            raise PeerError(f"a {header.kind} does not travel in parts")
        PartList.of_frames(frames)
    return header


def _parsed(frame: bytes) -> Header:
    plain = unpack(frame, max_bytes=MAX_HEADER_BYTES)
    if isinstance(plain, dict) and "version" in plain:
        check_version(plain["version"])  # first: another version may have other fields
    return _validated(Header, plain, "header")


_parsed_small = lru_cache(maxsize=_SMALL_HEADERS)(_parsed)
_parsed_large = lru_cache(maxsize=_LARGE_HEADERS)(_parsed)


def decode_body(header: Header, frames: Frames, array: Buffer | None = None) -> Message:
    """The message with its arrays attached, checked against its schema.

    `array` is the whole array of an envelope that lists its parts.
    """
    plain = unpack(frames[2], max_bytes=MAX_BODY_BYTES)
    if is_in_parts(frames) and array is None:
        raise PeerError("the parts of the array are not here")
    arrays: list[Buffer] = list(frames[3:]) if array is None else [array]
    attached = _attach(plain, arrays)
    if arrays:
        raise PeerError("array frame that the body does not use")
    try:
        message = MESSAGE.validate_python(attached)
    except ValidationError as wrong:
        raise PeerError(f"body breaks its schema: {_first(wrong)}") from None
    if message.kind != header.kind or header.kind not in ROUTES:
        raise PeerError("header and body name different kinds")
    if pack(_detach(message.model_dump(), arrays)) != frames[2]:  # e.g. an integer for a float
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
    # The peer chooses the name of an unknown field.
    return printable(f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"[:200])


def _detach(value: dict[str, Any], arrays: list[Buffer]) -> dict[str, Any]:
    if value.keys() == _TENSOR_FIELDS:
        arrays.append(value["data"])
        return {**value, "data": len(arrays) - 1}
    return {k: _detach(item, arrays) if type(item) is dict else item for k, item in value.items()}


def _attach(value: Any, arrays: list[Buffer]) -> Any:
    if type(value) is not dict:
        return value
    if value.keys() == _TENSOR_FIELDS:
        if value["data"] != 0 or not arrays:
            raise PeerError("body points at an array frame that is not there")
        return {**value, "data": arrays.pop(0)}
    return {k: _attach(item, arrays) if type(item) is dict else item for k, item in value.items()}
