"""Bytes and tables of the formats: messages, hashes, databases. It knows no check."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import struct
import tempfile
from pathlib import Path
from typing import Any

ZERO = bytes(32)
# The effects a record of each format may have, and the methods a manifest may name.
EFFECTS = {
    "1": "sent armed reserved ledger finished refused",
    "2": "sent arm reserve book charge read_ledger remember_head check_ledger finish refused",
}
METHODS = {
    "1": "descent minimiser prediction",
    "2": "descent private_model prediction scoring",
}
# Why a run may end, and why a party may leave it: field and words.
ENDINGS = {
    "run_closed": ("outcome", "completed refused withdrawn deadline mismatch"),
    "withdraw": (
        "reason",
        "operator budget rows proof data manifest members toss order plan signature ledger "
        "orders residuals message missing deadline end version",
    ),
}
# Who may send what to whom: a active, p passive, c coordinator.
_ROUTES = """ack apc apc, part_request ap ap, part ap ap, hello ap c,
welcome c ap, run_offer c ap, run_accept ap c,
run_refuse ap c, align_start c ap, align_block ap ap, aligned ap c, agreement p a,
agreed a p, round_plan c ap, score_share p a, residual a p,
score_query a p, score_reply p a, round_report ap c, ending p a, ended a p, pause c ap,
waiting ap c, resume c ap, withdraw ap apc, run_closed c ap, ledger_head ap ap,
ledger_witness ap ap"""
# Messages that state their sender's ledger, and the field that does.
STATED = {"hello": "ledger", "ledger_head": "head", "agreement": "ledger", "agreed": "ledger"}
# How a receiver's reason begins if it could not read a body.
UNREADABLE = ("frame ", "body ", "array frame ", "header and body ")
FINISH = ("finish", "finished")  # in format 2 and 1
ROUTES = {kind: ends for kind, *ends in (route.split() for route in _ROUTES.split(","))}
WIDTH = {"|i1": 1, "<i2": 2, "<i4": 4, "<i8": 8, "|u1": 1, "<f8": 8}
FORMS = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h"}
FORMS |= {0xD2: ">i", 0xD3: ">q", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H"}
FORMS |= {0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def unpack(data: bytes) -> Any:
    value, end = unpack_at(data, 0)
    if end != len(data):
        raise ValueError("a frame that is too short or too long")
    return value


def unpack_at(data: bytes, at: int) -> tuple[Any, int]:  # the value at a place, and its end
    code, at = data[at], at + 1
    if code < 0x80 or code >= 0xE0:
        return code - 256 * (code >= 0xE0), at
    if code in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[code], at
    size = code & (31 if code >= 0xA0 else 15)  # of a short map, array or text
    if code >= 0xC0:
        size, at = struct.unpack_from(FORMS[code], data, at)[0], at + struct.calcsize(FORMS[code])
    if 0xCB <= code <= 0xD3:
        return size, at
    if 0xA0 <= code <= 0xC6 or 0xD9 <= code <= 0xDB:
        raw = data[at : at + size]
        return (raw if code in (0xC4, 0xC5, 0xC6) else raw.decode()), at + size
    items, pairs = [], code < 0x90 or code >= 0xDE
    for _ in range(size * (1 + pairs)):
        item, at = unpack_at(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if pairs else items), at


def roots(leaves: list[bytes]) -> list[bytes]:
    """The roots of the first 0, 1, 2, ... leaves (RFC 9162, section 2.1.1)."""
    found, peaks = [sha()], []  # peaks: complete subtrees, largest first, each with its size
    for leaf in leaves:
        peaks.append((1, sha(b"\0", leaf)))
        while len(peaks) > 1 and peaks[-1][0] == peaks[-2][0]:
            size, right = peaks.pop()
            peaks[-1] = (2 * size, sha(b"\1", peaks[-1][1], right))
        root = peaks[-1][1]
        for _, left in reversed(peaks[:-1]):
            root = sha(b"\1", left, root)
        found.append(root)
    return found


def linked(place: bytes, body: bytes, key: bytes | None = None) -> bytes:
    """A ledger entry's digest: of the entry in format 1, of its commitment in format 2."""
    if key is None:
        return sha(place, body)
    seal = hashlib.blake2b(body, key=key, person=b"hdpvfl ledger 2", digest_size=32)
    return sha(b"hdpvfl-mq ledger 2\0", place, seal.digest())


def query(path: Path, statement: str) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:  # the evidence itself is never opened
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copyfile(file, Path(folder) / file.name)
        database = sqlite3.connect(Path(folder) / path.name)
        made = database.execute("SELECT type, upper(sql) FROM sqlite_master").fetchall()
        for kind, sql in made:  # a view or trigger would run what the author of the file wrote
            plain = kind == "table" and (sql is None or sql.startswith("CREATE TABLE"))
            if kind != "index" and not plain:
                raise ValueError(f"{path.name} computes what it should store")
        formulas = "FROM sqlite_master m, pragma_table_xinfo(m.name) WHERE m.type = 'table'"
        if database.execute(f"SELECT 1 {formulas} AND hidden != 0").fetchone():
            raise ValueError(f"{path.name} computes what it should store")
        return database.execute(statement).fetchall()
