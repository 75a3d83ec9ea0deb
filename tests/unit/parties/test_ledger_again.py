"""What a journal has released is booked again when it is opened; a release id has one payload."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpvfl_mq.errors import IntegrityError
from parties.process.ledger_file import open_ledger
from schemas.privacy import Release
from schemas.tensor import Tensor
from tests.evidence import replace_model
from tests.unit.parties.test_ledger_slots import HALF, book, released, reservation


def with_payload(release: Release, value: int) -> Release:
    data = bytes([value]) * len(release.tensor.data)
    tensor = Tensor(dtype=release.tensor.dtype, shape=release.tensor.shape, data=data)
    return replace_model(release, tensor=tensor)


def test_a_journal_that_was_put_back_sends_no_second_payload_of_a_release(tmp_path: Path) -> None:
    """Bug: its release was in no ledger and not sent; another was sent under the id since."""
    ledger = open_ledger(tmp_path / "ledger.db", "bank")
    account = book(ledger, "run")
    account.reserve(reservation(HALF))
    sent, put_back = released("run", 0), with_payload(released("run", 0), 7)
    account.book([sent])
    account.book_again([sent])
    with pytest.raises(IntegrityError, match="another payload"):
        account.book_again([put_back])


def test_what_the_ledger_lacks_is_booked_again_once(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.db", "bank")
    account = book(ledger, "run")
    account.reserve(reservation(HALF))
    account.book_again([released("run", 0)])
    head = ledger.head()
    account.book_again([released("run", 0)])
    assert ledger.has_booked("people", released("run", 0).release_id)
    assert ledger.head() == head
