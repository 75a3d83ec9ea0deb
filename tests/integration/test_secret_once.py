"""The secret of a run serves one journal: gone, changed or put back, it never serves another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from parties.alignment import toss_commitment
from parties.assets import Assets
from parties.process.build import PartyFiles, build_node, load_assets, retire_secret
from parties.process.ledger_file import open_ledger
from schemas.config import PartySettings
from tests.integration.processes import processes

PARTY = "passive-1"


@pytest.fixture
def settings(tmp_path: Path):
    with processes(tmp_path, dataset="breast", passives=1) as written:
        yield load_settings(PartySettings, written.demo.settings(PARTY))


def start(settings: PartySettings) -> tuple[Assets, Node]:
    """A process up to its first words."""
    retire_secret(settings)
    own = load_assets(settings, load_keys(Path(settings.keys)))
    ledger = open_ledger(PartyFiles(settings).ledger, PARTY)
    try:
        node, _ = build_node(settings, own, load_keys(Path(settings.keys)), ledger=ledger)
        node.start()
        node.close()
    finally:
        ledger.close_file()
    return own, node


def keys_of(own: Assets) -> set[bytes]:
    """Everything a peer of entity resolution could meet twice."""
    return {own.secret, own.workspace.secret, toss_commitment(own)}


def test_a_restart_has_the_same_secret(settings):
    first, _ = start(settings)
    again, _ = start(settings)
    assert keys_of(first) == keys_of(again)


def test_a_secret_does_not_serve_again_when_its_journal_was_deleted(settings):
    """Bug: a peer whose proof had failed could guess again against the same keys."""
    first, _ = start(settings)
    shutil.rmtree(PartyFiles(settings).run)
    again, _ = start(settings)
    assert not keys_of(first) & keys_of(again)


def test_a_journal_put_back_beside_another_secret_is_not_continued(settings):
    start(settings)
    journal = PartyFiles(settings).journal
    kept = journal.read_bytes()
    for each in journal.parent.glob("journal.db*"):
        each.unlink()
    start(settings)
    for each in journal.parent.glob("journal.db*"):
        each.unlink()
    journal.write_bytes(kept)
    with pytest.raises(IntegrityError, match="does not come out as recorded"):
        start(settings)


def test_a_secret_put_back_from_a_copy_does_not_serve_again(settings):
    files = PartyFiles(settings)
    first, _ = start(settings)
    kept = files.secret.read_text()
    shutil.rmtree(files.run)
    start(settings)
    files.secret.write_text(kept)
    with pytest.raises(IntegrityError, match="does not come out as recorded"):
        start(settings)  # the journal that is there has begun with another one
    shutil.rmtree(files.run)
    again, _ = start(settings)
    assert not keys_of(first) & keys_of(again)


def test_changed_rows_do_not_go_on_with_the_journal_of_others(settings):
    start(settings)
    rows = Path(settings.data.file)
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines[:-1]))
    with pytest.raises(IntegrityError, match="does not come out as recorded"):
        start(settings)
