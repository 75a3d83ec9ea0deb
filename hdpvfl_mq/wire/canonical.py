"""msgpack in exactly one form: the same value is always the same bytes, anything else is refused.

It owns packing, the canonical check and the limits of unpacking; it knows no schema.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgpack

from hdpvfl_mq.errors import PeerError

MAX_ITEMS = 4096
MAX_DEPTH = 16
_PLAIN = (str, bytes, int, float, type(None))  # bool is an int


def pack(value: Any) -> bytes:
    """Pack plain values (dict, tuple, str, bytes, int, float, bool, None)."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError("extension types are not part of the protocol")


def unpack(data: bytes, *, max_bytes: int) -> Any:
    """Unpack bytes of at most `max_bytes`; refuse whatever `pack` would not have written."""
    if len(data) > max_bytes:
        raise PeerError(f"frame of {len(data)} bytes is above the limit of {max_bytes}")
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            use_list=False,
            strict_map_key=True,
            ext_hook=_no_extension,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
        )
        _check_plain(value, MAX_DEPTH)
        canonical = pack(value) == data
    # msgpack raises its own, ValueError, TypeError, UnicodeError, RecursionError, OverflowError...
    except Exception as broken:  # noqa: BLE001
        raise PeerError(f"frame is not plain msgpack ({type(broken).__name__})") from None
    if not canonical:
        raise PeerError("frame is not in canonical form")
    return value


def _check_plain(value: Any, left: int) -> None:
    if left == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        for item in value.values():
            _check_plain(item, left - 1)
    elif isinstance(value, tuple):
        for item in value:
            _check_plain(item, left - 1)
    elif not isinstance(value, _PLAIN):  # msgpack reads time stamps past the extension hook
        raise TypeError("not a plain value")
