"""Two members learn each other's keys: the same words without a liar between, others with one."""

from __future__ import annotations

import pytest

from hdpvfl_mq.errors import PeerError
from parties.pairing import Pairing, Self, begin, proceed
from schemas.federation import Pair


def member(name: str, seed: int) -> Self:
    return Self("spring", name, bytes([seed]) * 32, bytes([seed + 1]) * 32, bytes([seed + 2]) * 32)


BANK, SHOP = member("bank", 10), member("shop", 20)
LIAR_BANK, LIAR_SHOP = member("bank", 30), member("shop", 40)  # the registrar's own keys


def passed(message: Pair, sender: Self) -> Pair:
    return Pair(**{**dict(message), "peer": sender.party})


def pair(opener: Self, responder: Self) -> tuple[Pairing, Pairing]:
    mine, first = begin(opener, responder.party, Pairing("passive"))
    theirs, second = proceed(responder, Pairing("active"), passed(first, opener))
    mine, third = proceed(opener, mine, passed(second, responder))
    theirs, nothing = proceed(responder, theirs, passed(third, opener))
    assert nothing is None
    return mine, theirs


def test_both_screens_show_the_same_words_and_pin_the_right_keys():
    bank, shop = pair(BANK, SHOP)
    assert bank.words == shop.words != ""
    assert (bank.verify_key, bank.curve_key) == (SHOP.verify_key, SHOP.curve_key)
    assert (shop.verify_key, shop.curve_key) == (BANK.verify_key, BANK.curve_key)


def test_the_later_name_waits_for_the_other():
    assert begin(SHOP, "bank", Pairing("active"))[1] is None


def test_a_registrar_in_between_makes_the_words_differ():
    at_bank, _ = pair(BANK, LIAR_SHOP)
    _, at_shop = pair(LIAR_BANK, SHOP)
    assert at_bank.words != at_shop.words


def test_a_registrar_cannot_aim_at_words_it_has_seen():
    """It must commit before it sees the other's number, and may not change its mind."""
    _, first = begin(LIAR_BANK, "shop", Pairing("passive"))
    shop, second = proceed(SHOP, Pairing("active"), passed(first, LIAR_BANK))
    aimed = member("bank", 50).message("shop", 3, bytes(32))
    with pytest.raises(PeerError, match="a number or key that it has not committed to"):
        proceed(SHOP, shop, passed(aimed, LIAR_BANK))
    # Keys that were not committed to, with the right number.
    number = LIAR_BANK.number("shop", 0)
    with pytest.raises(PeerError, match="a number or key that it has not committed to"):
        proceed(SHOP, shop, passed(BANK.message("shop", 3, number), BANK))
    # Nor may it begin again now that it knows the number.
    with pytest.raises(PeerError, match="not its turn"):
        proceed(SHOP, shop, passed(first, LIAR_BANK))
    assert second is not None


def test_messages_out_of_turn_are_refused():
    mine, first = begin(BANK, "shop", Pairing("passive"))
    for stage in (1, 3):
        with pytest.raises(PeerError, match="not its turn"):
            proceed(BANK, mine, passed(SHOP.message("bank", stage, bytes(32)), SHOP))
    with pytest.raises(PeerError, match="not its turn"):
        proceed(SHOP, Pairing("active"), passed(BANK.message("shop", 3, bytes(32)), BANK))
    assert first is not None


def test_no_number_is_used_twice():
    numbers = {BANK.number(peer, attempt) for peer in ("shop", "telco") for attempt in range(3)}
    assert len(numbers) == 6
