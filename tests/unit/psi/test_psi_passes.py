"""People with several keys: matched once, by the first key that all parties share."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.errors import CheatingError, DataError, PeerError, TermsError
from hdpvfl_mq.psi import Outgoing, normalise
from hdpvfl_mq.psi.elements import padded_size
from hdpvfl_mq.psi.greeting import pack_hellos, read_hellos
from hdpvfl_mq.psi.passes import KeyedWorkspace, open_passes
from schemas.config import IdRules
from tests.unit.psi.psi_federation import Federation
from tests.unit.psi.test_psi_greeting import MEMBERS, Pens

pytestmark = pytest.mark.seconds

RULES = IdRules(kind="email|text|name+date", columns=4, duplicates="ignore")


def person(number: int, *, email=True, phone=True, name=True) -> tuple[str, str, str, str]:
    mail = f"p{number}@example.org" if email else ""
    named = (f"Ann {number}", f"19{number % 90 + 10}-01-02") if name else ("", "")
    return (mail, f"0049{number}" if phone else "", *named)


def known_as(people: int, seed: int) -> list[tuple[str, str, str, str]]:
    """What one party knows of these people: some keys are missing, some are out of date."""
    dice = random.Random(seed)
    rows = []
    for number in dice.sample(range(people), people - people // 8):
        row = person(number, **{k: dice.random() > 0.4 for k in ("email", "phone", "name")})
        if dice.random() < 0.1 and row[0]:
            row = (f"old{dice.randrange(10**6)}@example.org", *row[1:])
        rows.append(row if any(row) else person(number))
    return rows


def by_hand(tables: list[list[tuple]]) -> list[dict[tuple, int]]:
    """The same matching in plain Python: for every party, key -> row."""
    free = [dict(enumerate(table)) for table in tables]
    found: list[dict[tuple, int]] = [{} for _ in tables]
    for number, key in enumerate(RULES.key_columns):
        views = []
        for rows in free:
            view: dict[tuple, list[int]] = {}
            for place, row in rows.items():
                if all(row[key]):
                    view.setdefault(row[key], []).append(place)
            views.append({value: at[0] for value, at in view.items() if len(at) == 1})
        for value in set.intersection(*map(set, views)):
            for party, view in enumerate(views):
                found[party][number, *value] = view[value]
                del free[party][view[value]]
    return found


class KeyedFederation(Federation):
    def __init__(self, tables, method: str = "ecdh", seed: int = 1, **terms) -> None:
        columns = [[list(column) for column in zip(*table, strict=True)] for table in tables]
        self.ids = [normalise(each, RULES) for each in columns]
        super().__init__(method, [list(i.ids) for i in self.ids], seed=seed, **terms)
        for name, ids in zip(self.names, self.ids, strict=True):
            work = KeyedWorkspace(ids, self.secret_of(name), allocate=np.empty)
            self.works[name] = work
            self.sessions[name] = open_passes(self.terms, name, work, len(RULES.key_columns))

    def rows(self) -> list[dict[bytes, int]]:
        """For every party: the id that matched -> its row."""
        result = []
        for name, ids in zip(self.names, self.ids, strict=True):
            positions = self.sessions[name].positions(self.works[name])
            result.append(
                dict(zip(ids.ids.at(positions), ids.rows[positions].tolist(), strict=True))
            )
        return result


@pytest.mark.parametrize(
    ("method", "parties", "seed"), [("ecdh", 2, 1), ("ecdh", 3, 2), ("oprf", 3, 3)]
)
def test_every_person_is_matched_once_by_the_first_key_all_share(method, parties, seed):
    tables = [known_as(60, seed * 10 + party) for party in range(parties)]
    federation = KeyedFederation(tables, method, seed).run(random.Random(seed))
    expected, found = by_hand(tables), federation.rows()
    assert len({len(each) for each in found}) == 1
    assert all(each.keys() == found[0].keys() for each in found)
    for party, ids in enumerate(found):
        assert sorted(ids.values()) == sorted(expected[party].values())
        assert len(set(ids.values())) == len(ids)
    for key, row in found[0].items():  # the same people on both sides, not only the same number
        wanted = next(value for value, at in expected[0].items() if at == row)
        assert wanted[0] == key[0]
        for party in range(parties):
            assert found[party][key] == expected[party][wanted]
    assert {key[0] for key in found[0]} == {0, 1, 2}  # or the test shows nothing
    for session in federation.sessions.values():
        assert session.is_finished
        assert session.shared_key == federation.sessions["party0"].shared_key


def test_arrival_order_changes_nothing():
    tables = [known_as(40, party) for party in range(3)]
    results = [KeyedFederation(tables).run(random.Random(seed)).rows() for seed in range(8)]
    assert all(result == results[0] for result in results)


def test_the_workspace_may_be_emptied_between_any_two_messages():
    class Forgetful(KeyedFederation):
        def before(self, sender, receiver, message):
            self.works[receiver].forget()

    tables = [known_as(30, party) for party in range(2)]
    assert Forgetful(tables).run().rows() == KeyedFederation(tables).run().rows()


def test_only_the_sum_of_all_keys_is_limited():
    tables = [known_as(40, party) for party in range(2)]
    count = len(by_hand(tables)[0])
    for limit, is_found in ((count, True), (count + 1, False)):
        federation = KeyedFederation(tables, rows_min=limit).run()
        assert {s.is_found for s in federation.sessions.values()} == {is_found}
        assert {s.is_withheld for s in federation.sessions.values()} == {not is_found}
    federation = KeyedFederation(tables, rows_max=count - 1).run()
    assert not any(s.is_found for s in federation.sessions.values())


def test_a_peer_sees_the_padded_number_of_rows_left_with_a_key():
    class Watched(KeyedFederation):
        def before(self, sender, receiver, message):
            if message.stage.endswith("hello"):
                seen[sender, message.stage] = message.meta

    seen: dict[tuple[str, str], tuple[int, ...]] = {}
    tables = [known_as(400, party) for party in range(2)]
    found = Watched(tables).run().rows()
    for party, table in enumerate(tables):
        for number, key in enumerate(RULES.key_columns):
            earlier = {row for matched, row in found[party].items() if matched[0] < number}
            left = [row[key] for place, row in enumerate(table) if place not in earlier]
            stage = f"k{number}_hello" if number else "hello"
            with_key = sum(all(cells) for cells in left)
            assert seen[f"party{party}", stage] == (padded_size(with_key),)
            assert padded_size(with_key) > with_key


def test_a_pass_without_ids_matches_nobody():
    table = [person(n, phone=False, name=False) for n in range(10)]
    federation = KeyedFederation([table, table]).run()
    assert len(federation.rows()[0]) == 10
    federation = KeyedFederation([table, [person(n, email=False) for n in range(10)]], rows_min=0)
    assert federation.run().rows() == [{}, {}]


def hello_of_the_next_key(tables) -> tuple[str, Outgoing]:
    """A genuine hello of the second key, and who sent it to party2."""
    seen = []

    class Watching(KeyedFederation):
        def before(self, sender, receiver, message):
            if message.stage == "k1_hello" and receiver == "party2":
                seen.append((sender, message))

    Watching(tables).run()
    return seen[0]


def test_a_hello_of_the_next_key_waits_and_a_false_one_is_refused_at_once():
    tables = [known_as(30, party) for party in range(3)]
    sender, hello = hello_of_the_next_key(tables)
    federation = KeyedFederation(tables)

    def give(**changes):
        return federation.give(sender, "party2", replace(hello, **changes))

    false = hello.payload[:64] + bytes(32) + hello.payload[96:]
    for wrong, error, text in (
        ({"stage": "k2_hello"}, PeerError, "another key"),
        ({"stage": "k1_open"}, PeerError, "another key"),
        ({"stage": "k1x_hello"}, PeerError, "not its turn"),
        ({"payload": hello.payload[:-1]}, PeerError, "malformed"),
        ({"payload": hello.payload[:-1] + b"x"}, CheatingError, "did not commit to"),
        ({"payload": bytes(32) + hello.payload[32:]}, PeerError, "degenerate"),
        ({"payload": false}, TermsError, "other terms"),
    ):
        with pytest.raises(error, match=text):
            give(**wrong)
    assert give() == ()
    with pytest.raises(PeerError, match="repeated or invalid"):
        give()


class TestIdsOfSeveralKeys:
    def test_a_row_has_an_id_for_every_key_it_fills_in(self):
        ids = normalise(
            [["A@b.org", "", ""], ["1", "2", "2"], ["", "x", ""], ["", "2001-01-01", ""]], RULES
        )
        assert sorted(ids.ids) == [
            b"\x00a@b.org",
            b"\x011",
            b"\x02\x00\x00\x00\x01x\x00\x00\x00\n2001-01-01",
        ]  # 2 is the number of two rows, so it identifies nobody
        assert ids.people == 2

    def test_a_row_without_any_key_is_empty(self):
        with pytest.raises(DataError, match="empty ids in rows 2"):
            normalise([["a@b.org", ""], ["", ""], ["", "x"], ["", ""]], RULES)

    def test_a_person_keeps_one_name_whatever_key_matched(self):
        ids = normalise([["a@b.org", ""], ["1", "2"], ["", ""], ["", ""]], RULES)
        at = {each: place for place, each in enumerate(ids.ids)}
        wanted = np.array([at[b"\x011"], at[b"\x012"], at[b"\x00a@b.org"]])
        assert list(ids.of_people(wanted, np.empty)) == [b"\x00a@b.org", b"\x012", b"\x00a@b.org"]

    @pytest.mark.parametrize(("policy", "rows"), [("first", [0, 2]), ("ignore", [2])])
    def test_repeated_ids_count_once_or_not_at_all(self, policy, rows):
        ids = normalise([["x", "x", "y"]], IdRules(duplicates=policy))
        assert ids.rows.tolist() == rows


class RelayedFederation(KeyedFederation):
    """Several keys in version 2 of the protocol; hellos of earlier keys are tried again."""

    def __init__(self, tables) -> None:
        super().__init__(tables, members=MEMBERS)
        self.lists: dict[str, list[bytes]] = {}
        for name, ids in zip(self.names, self.ids, strict=True):
            secret, pens = self.secret_of(name), Pens(name)
            work = KeyedWorkspace(ids, secret, allocate=np.empty, signatures=pens)
            self.works[name] = work
            self.sessions[name] = open_passes(self.terms, name, work, len(RULES.key_columns))

    def before(self, sender, receiver, message):
        if not message.stage.endswith("hellos"):
            return
        parties, earlier = self.terms.parties, self.lists.setdefault(receiver, [])
        listed = dict(read_hellos(parties, message.payload))
        for old in (dict(read_hellos(parties, each)) for each in earlier):
            for party in parties:
                mixed = pack_hellos(parties, {**listed, party: old[party]})
                with pytest.raises(CheatingError, match=r"^party0 "):
                    self.give(sender, receiver, replace(message, payload=mixed))
        earlier.append(message.payload)


def test_a_relayed_hello_of_an_earlier_key_is_laid_to_the_active_party():
    tables = [known_as(40, party) for party in range(3)]
    relayed = RelayedFederation(tables).run(random.Random(1))
    assert relayed.rows() == KeyedFederation(tables).run().rows()
    assert {len(each) for each in relayed.lists.values()} == {len(RULES.key_columns)}
