"""Several keys for one person, through files, settings, processes and `hdpvfl ids check`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from hdpvfl_mq.app.commands import ids
from hdpvfl_mq.runtime.settings import fields_of, load_settings
from schemas.config import IdRules, PartySettings
from schemas.data import DataSettings
from tests.integration.processes import Processes, processes
from tests.integration.test_resolution_kill import set_alignment

RULES = IdRules(kind="email|text", columns=2, duplicates="ignore")


def give_keys(demo: Processes, party: str, lacks_mail: int) -> set[str]:
    """Add an e-mail column with gaps; every fourth person has no number. Returns all numbers."""
    path = demo.demo.rows(party, "train")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = {row["id"] for row in rows}
    for row in rows:
        number = int(row["id"])
        row["mail"] = "" if number % 5 == lacks_mail else f" P{number}@Example.org"
        row["id"] = "" if number % 4 == 0 and row["mail"] else row["id"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    settings = load_settings(PartySettings, demo.demo.settings(party))
    data = DataSettings(**{**fields_of(settings.data), "id_columns": ("mail", "id")})
    demo.change(party, ids=RULES, data=data)
    return numbers


def test_people_are_found_by_mail_or_number(tmp_path: Path, capsys):
    with processes(tmp_path, passives=1) as demo:
        sets = [give_keys(demo, party, place) for place, party in enumerate(demo.demo.parties)]
        set_alignment(demo, ids=RULES)
        assert ids.check(demo.demo.settings("active"), rows=1, as_json=True) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["empty"], shown["unusable"]) == (0, 0)
        demo.start()
        demo.end()
        common = set.intersection(*sets)
        by_mail = {n for n in common if int(n) % 5 > 1}
        by_number = {n for n in common - by_mail if int(n) % 4}
        assert by_number
        for party in demo.demo.parties:
            model = json.loads((demo.demo.folder / party / "model.json").read_text())
            assert model["rows"] == len(by_mail | by_number)
