"""A ledger restored from an older copy is refused before its first release."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.machine import Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.wire.key_change import all_keys, key_change
from hdpvfl_mq.wire.signing import sign, verify
from parties.witness import statement
from schemas.key_change import KeyChanges
from schemas.privacy import LedgerHead
from schemas.records import Refused
from schemas.signed import LedgerWitness
from tests.federation import Federation, LyingFederation, manifest, tables


def copied(ledger: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    ledger.backup(copy)
    return copy


def second_run(ledgers: dict[str, sqlite3.Connection]) -> Federation:
    federation = Federation(manifest(run="second-run"))
    federation.ledgers = ledgers
    return federation


def releases_of(federation: Federation, party: str, run: str) -> int:
    entries = Ledger(federation.ledgers[party], party).entries()
    return sum(entry.kind == "spend" and entry.run == run for _, entry in entries)


def test_parties_remember_the_heads_of_each_other():
    federation = Federation()
    federation.simulate()
    head = Ledger(federation.ledgers["shop"], "shop").head()
    for other in ("bank", "telco"):
        assert Ledger(federation.ledgers[other], other).remembered()["shop"][0] == head


def test_a_second_run_on_the_same_ledgers_adds_up():
    first = Federation()
    first.simulate()
    second = second_run(first.ledgers)
    second.simulate()
    assert set(second.outcomes.values()) == {"completed"}
    books = Ledger(second.ledgers["shop"], "shop").books
    assert len(books.runs) == 2
    assert books.epsilon_spent("people") > 1.2


def test_an_older_copy_is_refused_and_releases_nothing():
    first = Federation()
    old = copied(Ledger(first.ledgers["shop"], "shop")._db)
    first.simulate()
    second = second_run({**first.ledgers, "shop": old})
    with pytest.raises(IntegrityError, match="older copy"):
        second.simulate()
    assert releases_of(second, "shop", "second-run") == 0


def test_a_ledger_of_the_same_length_with_another_history_is_refused():
    first, other = Federation(), Federation(manifest(seed=8))
    first.simulate()
    other.simulate()
    second = second_run({**first.ledgers, "shop": other.ledgers["shop"]})
    with pytest.raises(IntegrityError, match="a different entry"):
        second.simulate()


class FalseWitness(Node):
    """Before its first true word about shop's ledger, claims to have seen a longer one."""

    lied = False

    def _perform(self, effect, parent):
        is_witness = isinstance(effect, Send) and isinstance(effect.message, LedgerWitness)
        if is_witness and effect.to == ("shop",) and not self.lied:
            self.lied = True
            head = LedgerHead(sequence=999, digest=b"x" * 32)
            signature = sign(self.identity.signing_key, statement("shop", head))
            lie = LedgerWitness(head=head, owner_signature=signature, signature=signature)
            self._uncommitted.send.append(self.mailbox.write(effect.to, lie, parent, self._stamp()))
        return super()._perform(effect, parent)


def test_a_head_that_the_owner_never_signed_is_refused_and_stops_nobody():
    calm, lying = Federation(), LyingFederation(liars={"telco": FalseWitness})
    expected = calm.weights(calm.simulate())
    simulation = lying.simulate()
    assert simulation.nodes["telco"].lied
    assert set(lying.outcomes.values()) == {"completed"}
    for party, weights in lying.weights(simulation).items():
        assert np.array_equal(weights, expected[party])
    records = [record for record, _ in walk(lying.journals["shop"].records())]
    refused = [e.reason for r in records for e in r.effects if isinstance(e, Refused)]
    assert refused == ["a ledger head that this party never signed"]


def test_a_notice_is_remembered_with_its_owners_signature():
    federation = Federation()
    federation.simulate()
    head, signature = Ledger(federation.ledgers["bank"], "bank").remembered()["shop"]
    verify(federation.keys["shop"].verify_key, statement("shop", head), signature)


def test_an_older_copy_is_noticed_by_peers_though_its_owner_has_new_keys():
    """Bug: heads that were signed with the replaced key counted no more, and nobody noticed."""
    first = Federation()
    old = copied(Ledger(first.ledgers["shop"], "shop")._db)
    first.simulate()
    second = second_run({**first.ledgers, "shop": old})
    second.keys["shop"] = SigningKey(b"k" * 32)
    simulation = second.simulate()
    assert set(second.outcomes.values()) == {"mismatch"}
    reason = simulation.nodes["telco"].state.reason
    assert reason == (
        "bank withdrew: the privacy ledger of shop is older than a head that it signed earlier"
    )
    assert releases_of(second, "shop", "second-run") == 0


def test_a_head_signed_with_a_replaced_key_still_stops_its_owner():
    """The changes of its keys tell the owner that it signed the head itself."""
    first = Federation()
    old = copied(Ledger(first.ledgers["shop"], "shop")._db)
    first.simulate()
    before, now = first.keys["shop"], SigningKey(b"k" * 32)
    changes = KeyChanges(party="shop", changes=(key_change("shop", before, now, b"c" * 32),))

    class Renewed(Federation):
        def assets(self, party):
            own = super().assets(party)
            former = all_keys(changes)[:-1] if party == "shop" else ()
            return type(own)(**{**vars(own), "former_keys": former})

    second = Renewed(manifest(run="second-run"))
    second.ledgers = {**first.ledgers, "shop": old}
    second.keys["shop"] = now
    with pytest.raises(IntegrityError, match="older copy"):
        second.simulate()


def test_witnesses_grow_with_the_number_of_parties_not_with_its_square():
    """Bug: everybody witnessed everybody; with 128 parties closing took 41 s."""
    names = tuple(f"p{n}" for n in range(12))
    run = manifest(passive_parties=names, epochs=1, batch_rows=400)
    federation = Federation(run, tables(60, parties=("bank", *names)))
    simulation = federation.simulate()
    drawn = {p: simulation.nodes[p].state.trained.witnesses_of(p) for p in names}
    assert all("bank" in w and len(w) == 4 and p not in w for p, w in drawn.items())
    assert len(simulation.nodes["bank"].state.trained.witnesses_of("bank")) == 12
    assert len({frozenset(w) for w in drawn.values()}) > 3
