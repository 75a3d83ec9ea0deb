"""`hdpvfl ids check`: show how a party's id rules normalise its own ids. Nothing is sent.

It owns what the command prints. The output contains cells of the file, so it stays at the party.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli

from hdpvfl_mq.data.columns import ids
from hdpvfl_mq.data.databases import spooled
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.psi import rules_digest
from hdpvfl_mq.psi.ids import canonical_column
from hdpvfl_mq.runtime.settings import load_settings
from schemas.base import printable
from schemas.config import IdRules, PartyServiceSettings, PartySettings

ROWS_SHOWN = 20


def command(options: argparse.Namespace) -> int:
    """`hdpvfl ids` with parsed options."""
    return check(options.settings, rows=options.rows, as_json=options.json)


def check(file: Path, *, rows: int = ROWS_SHOWN, as_json: bool = False) -> int:
    """Print the ids of the first rows, their normal forms, and how many rows have none."""
    settings = _party(file)
    with tempfile.TemporaryDirectory() as folder:
        data = spooled(settings.data, Path(folder))
        if data.file is None:
            raise SettingsError("data.file: name the file with this party's rows, or data.query")
        found = _looked_through(TableFile.of(data), data.id_columns, settings.ids, rows)
    refuses_empty = found["empty"] > 0 and settings.ids.empties == "error"
    is_refused = int(found["unusable"] > 0 or refuses_empty)
    if as_json:
        print(json.dumps(found))
        return is_refused
    print(f"rules {found['rules']}: all parties must see these eight letters")
    for written, form in found["shown"]:
        print(f"{printable(' | '.join(written))}  ->  {printable(' | '.join(form))}")
    print(f"{found['rows']} rows, {found['empty']} without an id, {found['unusable']} refused")
    if refuses_empty:
        print('a run refuses rows without an id; leave them out with ids.empties = "drop"')
    return is_refused


def _party(file: Path) -> PartyServiceSettings | PartySettings:
    """The settings of a party's service, as `hdpvfl join` writes them, or of a single run."""
    try:
        is_service = "federation" in tomli.loads(file.read_text())
    except (OSError, ValueError):
        is_service = True  # reading them as settings says what is wrong
    if is_service:
        return load_settings(PartyServiceSettings, file)
    return load_settings(PartySettings, file)


def _looked_through(
    source: TableFile, names: Sequence[str], rules: IdRules, rows: int
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rules": rules_digest(rules).hex()[:8],
        "rows": 0,
        "empty": 0,
        "unusable": 0,
        "shown": [],
    }
    for chunk in source.chunks(names):
        cells = zip(*(ids(chunk, name, keep_empty=True).tolist() for name in names), strict=True)
        for row in cells:
            try:
                form = [
                    canonical_column([cell], rules, number=number, first_row=1)[0].decode()
                    for number, cell in enumerate(row, start=1)
                ]
            except DataError:
                form = ["refused"]
                found["unusable"] += 1
            found["empty"] += int(
                form != ["refused"] and not any(all(form[k]) for k in rules.key_columns)
            )
            found["rows"] += 1
            if len(found["shown"]) < rows:
                found["shown"].append(([str(cell) for cell in row], form))
    return found
