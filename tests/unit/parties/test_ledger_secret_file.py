"""The file of a ledger's secret: made once, for its owner only, and missed when it is gone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hdpvfl_mq.app.commands import ledger as ledger_command
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER
from hdpvfl_mq.privacy.ledger_store import Ledger
from parties.process.ledger_book import LedgerBook
from parties.process.ledger_file import open_ledger, secret_file
from tests.federation import policy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The ledger of a party that has reserved for two runs."""
    path = tmp_path / "state" / "shop" / "ledger.db"
    for run in ("first", "second"):
        ledger = open_ledger(path, "shop")
        LedgerBook(ledger, policy(), run, b"r" * 32).reserve(
            Reserve(mu2_units=5, tau_units=1, exact=False)
        )
        ledger.close_file()
    return path


def test_the_secret_is_beside_the_ledger_for_its_owner_only(path: Path) -> None:
    assert secret_file(path).stat().st_mode & 0o077 == 0
    assert bytes.fromhex(secret_file(path).read_text()) not in path.read_bytes()
    secret_file(path).chmod(0o644)
    with pytest.raises(OperatorError, match="chmod 600"):
        open_ledger(path, "shop")


def test_a_lost_secret_is_missed_and_replaced_on_request_only(path: Path, capsys) -> None:
    secret = secret_file(path).read_text()
    secret_file(path).unlink()
    with pytest.raises(OperatorError, match="hdpvfl ledger new-secret"):
        open_ledger(path, "shop")
    assert not secret_file(path).exists()
    assert ledger_command.new_secret(path, as_json=False) == 0
    assert secret_file(path).read_text() != secret
    ledger = open_ledger(path, "shop")
    assert ledger.books.held("people").mu2_units == 10
    assert [entry.kind for _, entry in ledger.entries()].count("secret") == 2
    ledger.close_file()
    with pytest.raises(OperatorError, match="keeps its secret"):
        ledger_command.new_secret(path, as_json=False)


def test_a_run_reserved_by_an_earlier_version_goes_on(path: Path) -> None:
    ledger = open_ledger(path, "shop")
    accounts = LedgerBook(ledger, policy(), "third", b"r" * 32)
    old = ledger.books.runs["people", "first"].reserve
    unkeyed = {"run": "third", "fingerprint": (b"r" * 32).hex()}
    ledger.reserve(type(old)(**{**dict(old), **unkeyed}))
    head = ledger.head()
    accounts.reserve(Reserve(mu2_units=5, tau_units=1, exact=False))
    assert ledger.head() == head
    ledger.close_file()


def test_an_export_opens_one_run_and_its_chain_can_be_checked(path: Path, capsys) -> None:
    assert ledger_command.export(path, "second") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("entry", {}).get("kind") for line in lines] == [None, "cap", None, "reserve"]
    digest = EMPTY_LEDGER.digest
    for line in lines:
        if "opening" in line:
            sealed = hashlib.blake2b(
                line["body"].encode(),
                key=bytes.fromhex(line["opening"]),
                person=b"hdpvfl ledger 2",
                digest_size=32,
            )
            assert sealed.hexdigest() == line["commitment"]
        place = digest + line["sequence"].to_bytes(8, "big")
        linked = b"hdpvfl-mq ledger 2\x00" + place + bytes.fromhex(line["commitment"])
        digest = hashlib.sha256(linked).digest()
        assert digest.hex() == line["head"]
    assert digest == Ledger.open(path, "shop").head().digest


def test_an_export_of_an_unknown_run_is_refused(path: Path) -> None:
    with pytest.raises(SettingsError, match="no run third"):
        ledger_command.export(path, "third")
