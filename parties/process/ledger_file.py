"""The files of a party's ledger: the ledger, its secret and the account of scored people beside it.

It owns their names and how they are opened; it knows no run.
"""

from __future__ import annotations

import os
from pathlib import Path

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.ledger_heads import ACCOUNT
from hdpvfl_mq.privacy.ledger_secret import SECRET_BYTES, LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.scored_file import cost_in
from hdpvfl_mq.runtime.keys import read_secret, write_secret
from schemas.ids import PartyId


def secret_file(ledger: Path) -> Path:
    """The file of a ledger's secret: separate, so that the ledger can be shown without it."""
    return ledger.with_name("ledger.secret")


def open_ledger(path: Path, party: PartyId) -> Ledger:
    """Open a party's ledger for writing; a new ledger gets a secret."""
    ledger = Ledger.open(path, party)
    try:
        kept = secret_file(path)
        if not kept.exists():
            if ledger.books.secret_check is not None:
                raise OperatorError(
                    f"{kept} is missing: put it back from where {path.name} is backed up. If it "
                    f"is lost for good, 'hdpvfl ledger new-secret {path}' makes another; what is "
                    "spent stays spent"
                )
            write_secret(kept, os.urandom(SECRET_BYTES))
        ledger.unlock(LedgerSecret(read_secret(kept, SECRET_BYTES)))
        ledger.people_file = path.with_name("scored.db")
    except Exception:
        ledger.close_file()
        raise
    return ledger


def scored_cost(ledger: Ledger, account: Path) -> int:
    """The most that noised scores have cost one person, from an account that is not opened."""
    seen = ledger.remembered().get(ACCOUNT)
    if seen is None and not account.is_file():
        return 0
    if not account.is_file():
        raise IntegrityError(f"{account} is gone, and the ledger has seen it: put it back")
    return cost_in(account, ledger.party, ledger.unsynced(), None if seen is None else seen[0])


def replace_secret(path: Path, party: PartyId) -> None:
    """Give a ledger that has lost its secret a new one; an entry records where it starts.

    Nobody can be found again in an account of scored people under the lost secret: it is moved
    aside and people are counted from zero, but what noised scores have cost stays spent: without
    the newest account that is not known, and the secret is not replaced.
    """
    kept, scored = secret_file(path), path.with_name("scored.db")
    if kept.exists():
        raise OperatorError(f"{kept} is there: a ledger keeps its secret; move a wrong one away")
    ledger = Ledger.open(path, party)
    try:
        spent = scored_cost(ledger, scored)
        write_secret(kept, os.urandom(SECRET_BYTES))
        secret = LedgerSecret(read_secret(kept, SECRET_BYTES))
        ledger.unlock(secret, replace=True, mu2_units_scored=spent)
        ledger.forget_scored()
        if scored.exists():
            scored.rename(scored.with_name("scored.before.db"))
    finally:
        ledger.close_file()
