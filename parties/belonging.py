"""A member's state in its federation: the members it knows, its keys, its runs.

It owns these values; the membership decides when they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from parties.pairing import Pairing
from parties.roster import Fellow
from parties.run_phases import KnownRun, Over, Proposed, Refused, Willing
from schemas.config import RunManifest
from schemas.federation import SignedRoster
from schemas.ids import OLDEST_VERSION, PartyId, RunId

_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class OwnKeys:
    """The public keys a member signs and connects with."""

    verify_key: bytes
    curve_key: bytes


@dataclass(frozen=True, kw_only=True)
class Belonging:
    """A member's state; membership has one phase."""

    epoch: int = 1  # of the process that said the last hello
    version: int = OLDEST_VERSION  # the newest that this process speaks
    fellows: Mapping[PartyId, Fellow] = field(default_factory=lambda: _NONE)
    pairings: Mapping[PartyId, Pairing] = field(default_factory=lambda: _NONE)
    attempts: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)  # pairings begun so far
    edition: int = 0  # number of the last roster this party has signed
    rosters: Mapping[PartyId, SignedRoster] = field(default_factory=lambda: _NONE)  # of the others
    runs: Mapping[RunId, KnownRun] = field(default_factory=lambda: _NONE)
    keys: OwnKeys | None = None  # this party's keys, once it has replaced its first ones
    # Keys that each member, this party included, has replaced, oldest first.
    former: Mapping[PartyId, tuple[bytes, ...]] = field(default_factory=lambda: _NONE)

    # Keys of members that this party's operator has removed: settings do not bring them back.
    removed: Mapping[PartyId, tuple[bytes, ...]] = field(default_factory=lambda: _NONE)

    def with_run(self, name: RunId, run: KnownRun) -> Belonging:
        """The same membership with one run changed."""
        return replace(self, runs=MappingProxyType({**self.runs, name: run}))


def reveals(manifest: RunManifest) -> str:
    """What a run reveals that its epsilon does not show, before anybody agrees to it."""
    asks = manifest.method.asks
    if asks.disclosed_rows:
        return f"exact scores of up to {asks.disclosed_rows} rows, by seed {manifest.seed}"
    if asks.noise == "bounded":
        return "bounded noise: docs/bounded-noise.md says what an attacker gains"
    if asks.scores == "disclosed":
        step = asks.coarsen
        return f"scores in steps of {step:g}" if step else "exact scores of whom it asks for"
    return ""


def describe(run: KnownRun) -> dict[str, Any]:
    """A run in a few words."""
    manifest = run.manifest
    return {
        "phase": run.phase,
        "active": manifest.active_party,
        "passive": list(manifest.passive_parties),
        "method": manifest.method.kind,
        "guarantee": manifest.guarantee,
        "epsilon": manifest.budget.epsilon if manifest.budget else None,
        "delta": manifest.budget.delta if manifest.budget else None,
        "reveals": reveals(manifest),
        "waiting_for": list(run.waiting_for) if isinstance(run, Proposed) else [],
        "outcome": run.outcome if isinstance(run, Over) else "",
        "reason": run.reason if isinstance(run, Willing | Refused | Over) else "",
    }
