"""docs/threat-model.md lists every field that leaves a party, and only such fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from hdpvfl_mq.runtime import logs
from hdpvfl_mq.runtime.metrics import METRICS
from hdpvfl_mq.wire.invitation import Knock, KnockAnswer
from parties.process.build import PartyFiles
from parties.process.commands import Commands
from parties.process.models import model_of
from schemas import config, envelope, privacy, records
from schemas.methods import PrivateModel
from tests.contracts.test_schemas import models_in
from tests.federation import Federation, manifest, tables
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
    files = {"ledger.db", "journal.db", "control.sock", "scores.theta", "scores.label"}
    files |= {"model.json", "status.json", "scores.labels"}
    return {name for name in found if not name.startswith("policy.")} - files


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
    shapes |= {Knock, KnockAnswer}  # of strangers; they belong to no run
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


# -- files, logs, metrics, commands ----------------------------------------------------------------

# Where each place that a party's process has is spoken of.
FILES = {
    "run": "`runs/<run>/<party>/status.json`",
    "journal": "`runs/<run>/<party>/journal.db`",
    "state": "`state/<party>/rows`",
    "ledger": "`state/<party>/ledger.db`",
    "spool": "`state/<party>/spool/<run>`",
    "alignments": "`state/<party>/alignments`",
    "statistics": "`state/<party>/statistics`",
    "snapshot": "`state/<party>/snapshots/<run>`",
    "secret": "`state/<party>/secrets/<run>.secret`",
}


def row(start: str) -> set[str]:
    """The words of the row of a file, or of what stands for one."""
    (line,) = [line for line in section().splitlines() if line.startswith(f"| {start}")]
    return set(re.findall(r"[a-z_]+", line))


def test_every_place_a_party_writes_to_is_listed() -> None:
    places = {n for n, v in vars(PartyFiles).items() if isinstance(v, property)}
    assert places == set(FILES)
    assert [name for name, text in FILES.items() if text not in PAGE.read_text()] == []


def test_every_field_of_a_log_line_is_listed() -> None:
    assert logs.FIELDS - row("console and log lines") == set()


def test_every_metric_is_listed() -> None:
    assert set(METRICS) - row("the endpoint for metrics") == set()


def test_every_command_of_a_service_is_listed() -> None:
    words = Commands(None)._words  # type: ignore[arg-type]  # only its table is read
    assert set(words) - row("`control.sock`") == set()


def test_every_field_of_a_model_is_listed() -> None:
    """Of both sides and both methods; a fit that failed says so."""
    listed, fields = row("`runs/<run>/<party>/model.json`"), set[str]()
    for changes in ({"method": PrivateModel(columns_max=8, held_out_rows=5)}, {}):
        federation = Federation(manifest(**changes), tables(40))
        nodes = federation.simulate().nodes
        for party in ("bank", "shop"):
            fields |= set(model_of(federation.assets(party), nodes[party].state))
    assert "coefficients" in fields
    assert "weights_private" in fields
    assert fields | {"trouble", "digest"} <= listed
