"""A few of the attacks of `make attack`, on real processes; all of them are in scripts/attacks."""

from __future__ import annotations

import pytest

from schemas.ids import COORDINATOR
from scripts.attacks import federations, put_back, tampered
from scripts.attacks.stage import stage


@pytest.mark.parametrize(
    ("liar", "lie", "words"),
    [
        ("passive-2", "not_a_number_instead", "passive-2 sent it what the protocol does not allow"),
        pytest.param(
            "passive-2",
            "blocks_too_early",
            "passive-2 sent it what the protocol does not allow",
            marks=pytest.mark.slow,  # as the next one, with other words
        ),
        pytest.param(
            "passive-2",
            "endless_notices",
            "passive-2 sent the coordinator a message that the protocol does not allow",
            marks=pytest.mark.slow,  # test_mailbox.py has it with a lower limit
        ),
        ("passive-2", "numbered_ack", "passive-2 sent it what the protocol does not allow"),
        ("passive-2", "gap", "passive-2 or the broker withholds them"),
        ("passive-2", "ground_seed", "what passive-2 sent in entity resolution was not made as"),
        (COORDINATOR, "weaker_method", "coordinator sent it what the protocol does not allow"),
        ("passive-2", "part_sizes", "passive-2 sent it what the protocol does not allow"),
        ("active", "false_end", "active made or forwarded a signature that does not verify"),
    ],
)
def test_a_liar_ends_the_run_for_all_and_is_named(tmp_path, monkeypatch, liar, lie, words):
    monkeypatch.setenv("HDPVFL_ATTACK_MIB", "80")  # more than may wait, or be refused
    with stage(tmp_path) as on:
        on.started.fresh = False  # nobody measures memory here
        on.start(liar, lie)
        honest = tuple(name for name in on.started.names if name != liar)
        codes = on.wait(honest)
        assert set(codes.values()) == {3 if lie == "ground_seed" else 2}, codes
        assert any(words in on.started.said(name) for name in honest)
        assert all(on.weights(name) is None for name in honest if name != COORDINATOR)
        assert all(one == other != 5 for one, other in on.verdicts(honest))


@pytest.mark.parametrize(
    "attack",
    [
        federations.unapproved_run,
        tampered.tampered_files,
        put_back.deleted_journal,
        pytest.param(put_back.older_ledger, marks=pytest.mark.slow),  # test_snapshots.py has it
        pytest.param(put_back.full_disk, marks=pytest.mark.slow),  # test_disk.py has it
        *(  # forms of these are in test_hostile_members.py, in one process
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                federations.overstated_versions,
                federations.equal_names,
                federations.poisoned_query,
                federations.removed_member,
            )
        ),
    ],
    ids=lambda attack: attack.__name__,
)
def test_an_attack_on_standing_services_holds(tmp_path, attack):
    row = attack(tmp_path)
    assert row.held, row
