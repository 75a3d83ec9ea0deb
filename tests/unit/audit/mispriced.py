"""Releases, statistics and reserves at a wrong price that a budget affords: checks 9, 10 and 12."""

from __future__ import annotations

from collections.abc import Callable

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.machine import Book, Reserve
from schemas.methods import PrivateModel
from tests.evidence import CheatingFederation, evidence_of, only, replace_model, saying
from tests.federation import manifest, policy, tables
from tests.unit.audit.honest import ROWS, cheating

ALLOWED = policy(noises=("gaussian", "bounded"), pure_slots=(1.0, 1.0))


def priced(change: Callable[[int, int], int]) -> Callable:
    """Another price, by round and true price."""

    def changed(message):
        event = message.release.event
        units = change(message.round, event.mu2_units)
        release = replace_model(message.release, event=replace_model(event, mu2_units=units))
        return replace_model(message, release=release)

    return changed


def cheaper_by_a_unit() -> Evidence:
    """The active party pays 2^-40 too little for its first residual."""
    lie = saying("residual", priced(lambda at, units: units - (at == 0)))
    return cheating(bank={"says": lie})


def dearer_residual() -> Evidence:
    """The active party pays too much for one residual, shown by a passive party alone."""
    lie = saying("residual", priced(lambda at, units: units + (at == 2)))
    return only(cheating(bank={"says": lie}), "shop")


def only_passive_shown() -> Evidence:
    """The only passive party shown pays too little for its last share."""
    lie = saying("score_share", priced(lambda at, units: units - (at == 5)))
    return only(cheating(shop={"says": lie}), "shop")


def paid_a_round_later() -> Evidence:
    """A passive party pays for one round in the next: the sum at the end is right."""
    moved = 1000

    def change(at: int, units: int) -> int:
        return units + {1: -moved, 2: moved}.get(at, 0)

    return only(cheating(shop={"says": saying("score_share", priced(change))}), "shop")


def other_mechanism() -> Evidence:
    """A noised release under the name of a free one, at its price."""

    def changed(message):
        event = replace_model(message.release.event, mechanism="disclosed")
        return replace_model(message, release=replace_model(message.release, event=event))

    return cheating(bank={"says": saying("residual", changed)})


def private(method: PrivateModel, **cheats) -> Evidence:
    policies = dict.fromkeys(("bank", "shop", "telco"), ALLOWED)
    federation = CheatingFederation(
        manifest(method=method), tables(ROWS), policies=policies, cheats=cheats
    )
    federation.simulate()
    return evidence_of(federation, ledgers=False)


def cheap_labels() -> Evidence:
    """The labels of the private model for half their price."""
    lie = saying("residual", priced(lambda _, units: units // 2))
    return private(PrivateModel(columns_max=8), bank={"says": lie})


def cheap_bounded_labels() -> Evidence:
    """Labels with bounded noise at a pure epsilon that is a unit too small."""

    def changed(message):
        event = message.release.event
        cheap = replace_model(event, pure_units=event.pure_units - 1)
        return replace_model(message, release=replace_model(message.release, event=cheap))

    lie = saying("residual", changed)
    return private(PrivateModel(columns_max=8, noise="bounded"), bank={"says": lie})


def cheap_statistics() -> Evidence:
    """Statistics that stay inside are booked for half their price, and so is the reserve."""

    def says(effect):
        if not isinstance(effect, Book):
            return (effect,)
        event = effect.release.event
        cheap = replace_model(event, mu2_units=event.mu2_units // 2)
        return (Book(release=replace_model(effect.release, event=cheap)),)

    return only(private(PrivateModel(columns_max=8), shop={"says": says}), "shop")


def larger_reserve() -> Evidence:
    """A party reserves more than its plan costs, which its ledger affords."""

    def says(effect):
        if not isinstance(effect, Reserve):
            return (effect,)
        return (
            Reserve(mu2_units=effect.mu2_units + 1, tau_units=effect.tau_units, exact=effect.exact),
        )

    return only(cheating(telco={"says": says}), "telco")
