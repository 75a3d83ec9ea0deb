"""The rules of a ledger: caps, reserves, spends and pure slots (docs/audit.md, PRIVACY 4 and 8).

It knows no journal and no file. Every rule that an entry breaks is told in words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .curves import affordable

Shares = Counter[tuple[Any, int]]  # of pure slots: slot and units


@dataclass
class Account:
    """One run on one data set."""

    mu2: int
    tau: int
    shares: Shares
    exact: bool
    spent: list[int] = field(default_factory=lambda: [0, 0])
    used: Shares = field(default_factory=Counter)
    closed: bool = False

    @property
    def held(self) -> tuple[int, int, Shares]:
        """What counts against the cap: the reserve while the run is open, then what it spent."""
        closed = (self.spent[0], self.spent[1], self.used)
        return closed if self.closed else (self.mu2, self.tau, self.shares)


class Accounts:
    """All entries of a ledger so far."""

    def __init__(self) -> None:
        self.caps: dict[str, tuple[Any, list[int]]] = {}
        self.runs: dict[tuple[str, str], Account] = {}
        self.people = 0

    def add(self, entry: dict[str, Any]) -> str:
        """Take one entry; returns the rule that it breaks, or nothing."""
        return str(getattr(self, f"add_{entry['kind']}")(entry))

    def add_secret(self, entry: dict[str, Any]) -> str:
        self.people = 0
        return ""

    def add_apart(self, entry: dict[str, Any]) -> str:
        return ""

    def add_people(self, entry: dict[str, Any]) -> str:
        before, self.people = self.people, entry["head"]["sequence"]
        stands = "the head of the account of scored people does not advance"
        return "" if self.people > before else stands

    def add_close(self, entry: dict[str, Any]) -> str:
        account = self.runs.get((entry["dataset"], entry["run"]))
        if account is not None:
            account.closed = True
        return "" if account is not None else "no reserve"

    def add_cap(self, entry: dict[str, Any]) -> str:
        name, slots = entry["dataset"], entry.get("pure_slots", [])
        if any(owner == name for owner, _ in self.runs):
            return "another cap after the first run"
        self.caps[name] = (entry["cap"], slots)
        return "" if fits(entry["cap"], 0, 0, slots) else "slots above the cap"

    def add_reserve(self, entry: dict[str, Any]) -> str:
        name, run = entry["dataset"], entry["run"]
        if name not in self.caps or (name, run) in self.runs:
            return "no cap, or a second reserve"
        shares: Shares = Counter((x["slot"], x["units"]) for x in entry.get("pure", []))
        self.runs[name, run] = Account(
            entry["mu2_units"], entry.get("tau_units", 0), shares, entry.get("exact", False)
        )
        held = [account.held for (owner, _), account in self.runs.items() if owner == name]
        cap, slots = self.caps[name]
        # Every slot counts in full, used or not.
        mu2, tau = sum(part[0] for part in held), sum(part[1] for part in held)
        if max(mu2, tau) >= 2**63 or not fits(cap, mu2, tau, slots):
            return "above the cap"
        filled: Counter[int] = Counter()
        for *_, taken in held:
            for slot, units in taken.elements():
                filled[slot] += units
        full = any(slot >= len(slots) or units > slots[slot] for slot, units in filled.items())
        return "an overfilled pure slot" if full else ""

    def add_spend(self, entry: dict[str, Any]) -> str:
        account = self.runs.get((entry["dataset"], entry["run"]))
        if account is None:
            return "no reserve"
        event, slot = entry["event"], entry.get("slot")
        account.spent[0] += event["mu2_units"]
        account.spent[1] += event.get("tau_units", 0)
        units = event.get("pure_units", 0)
        if units or slot is not None:
            account.used[slot, units] += 1
        if account.closed:
            return "a spend of a closed run"
        if event["mechanism"] == "exact" and not account.exact:
            return "an exact value that was not reserved"
        if account.spent[0] > account.mu2 or account.spent[1] > account.tau:
            return "more than was reserved"
        return "a slot that is not reserved" if account.used - account.shares else ""


def fits(cap: Any, mu2: int, tau: int, slots: Any) -> bool:
    pure = tuple(sorted(units for units in slots if units))
    return affordable(float(cap["epsilon"]), float(cap["delta"]), mu2, tau, pure)
