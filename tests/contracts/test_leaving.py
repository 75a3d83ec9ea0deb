"""docs/threat-model.md lists every field that leaves a party, and only such fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from schemas import config, envelope, privacy, records
from tests.contracts.test_messages import models_in
from tests.samples import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"
TITLE = "## Everything that leaves a party"
ENTRIES = models_in(privacy.Cosignature).union(
    *(models_in(kind) for kind in get_args(get_args(privacy.LedgerEntry)[0]))
)


def section() -> str:
    """The part of the page that lists what leaves."""
    text = PAGE.read_text().split(TITLE)[1]
    return text.split("\n## ")[0]


def named() -> set[str]:
    """Every field the page names, as `kind.field` or `Model.field`."""
    found = set(re.findall(r"`([A-Za-z_]+\.[a-z0-9_]+)`", section()))
    return {name for name in found if not name.startswith("policy.")} - {"ledger.db"}


def fields_of(model: type[BaseModel], name: str) -> set[str]:
    return {f"{name}.{field}" for field in model.model_fields if field != "kind"}


def required() -> set[str]:
    """Every field of every message, header, record and ledger entry; a manifest is one field."""
    manifest = models_in(config.RunManifest)
    found: set[str] = set()
    shapes: set[type[BaseModel]] = set()
    for kind, model in KINDS.items():
        found |= fields_of(model, kind)
        shapes |= models_in(model) - {model}
    shapes |= models_in(envelope.Header) | models_in(records.StepRecord) | ENTRIES
    for shape in shapes - (manifest - {privacy.Budget}):
        found |= fields_of(shape, shape.__name__)
    return found | {"Header.kind"}


def test_every_field_that_leaves_is_listed() -> None:
    assert required() - named() == set()


def test_the_list_names_nothing_that_is_gone() -> None:
    assert named() - required() == set()


def test_every_row_says_why_it_is_harmless() -> None:
    rows = [line for line in section().splitlines() if line.startswith("|")]
    assert len(rows) > 40
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert all(cells), row
