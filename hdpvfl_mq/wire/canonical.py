"""Canonical msgpack: the same value always gives the same bytes; other encodings are refused.

It owns packing, the canonical check and the limits of unpacking; it knows no schema.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgpack

from hdpvfl_mq.errors import PeerError

MAX_ITEMS = 4096
MAX_DEPTH = 16
_LEAVES = {str, bytes, int, float, bool, type(None)}
_PLAIN = _LEAVES | {dict, tuple}


def pack(value: Any) -> bytes:
    """Pack plain values (dict, tuple, str, bytes, int, float, bool, None)."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError("extension types are not part of the protocol")


def unpack(data: bytes, *, max_bytes: int, max_items: int = MAX_ITEMS) -> Any:
    """Unpack bytes of at most `max_bytes`; refuse bytes that `pack` would not have written."""
    if len(data) > max_bytes:
        raise PeerError(f"frame of {len(data)} bytes is above the limit of {max_bytes}")
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            use_list=False,
            strict_map_key=True,
            ext_hook=_no_extension,
            max_array_len=max_items,
            max_map_len=max_items,
        )
        _check_plain(value)
        canonical = pack(value) == data
    # msgpack raises its own, ValueError, TypeError, UnicodeError, RecursionError, OverflowError...
    except Exception as broken:  # noqa: BLE001 - see above
        raise PeerError(f"frame is not plain msgpack ({type(broken).__name__})") from None
    if not canonical:
        raise PeerError("frame is not in canonical form")
    return value


def _check_plain(value: Any) -> None:
    """Check level by level, so that a header to many parties costs few interpreter steps."""
    level = [value]
    for _ in range(MAX_DEPTH):
        kinds = set(map(type, level))
        if kinds <= _LEAVES:
            return
        if not kinds <= _PLAIN:  # msgpack decodes timestamps without the extension hook
            raise TypeError("not a plain value")
        deeper: list[Any] = []
        for item in level:
            if type(item) is dict:
                deeper += item.values()
            elif type(item) is tuple:
                deeper += item
        level = deeper
    if level:
        raise ValueError("nested too deeply")
