"""`hdpvfl ledger show | verify | scored | export | new-secret`: privacy spend and its proof.

It owns how a ledger is shown. It reads a copy of the file, so the commands work while a party's
process has the ledger open. The ledger's secret is never shown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpvfl_mq.app.lines import say
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger import commitment
from hdpvfl_mq.privacy.ledger_heads import ACCOUNT
from hdpvfl_mq.privacy.ledger_secret import SECRET_BYTES, LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.ledger_tables import owner_of
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from hdpvfl_mq.runtime.in_short import finite, number
from hdpvfl_mq.runtime.keys import read_secret
from parties.process.ledger_file import replace_secret, scored_cost, secret_file
from schemas.privacy import PURE_UNIT_BITS, CapFixed, ReleaseBooked

if TYPE_CHECKING:
    from rich.table import Table


def command(options: argparse.Namespace) -> int:
    """`hdpvfl ledger` with parsed options."""
    if options.what == "export":
        return export(options.file, options.run)
    if options.what == "new-secret":
        return new_secret(options.file, as_json=options.json)
    commands = {"show": show, "verify": verify, "scored": scored}
    return commands[options.what](options.file, as_json=options.json)


@contextmanager
def opened_copy(path: Path) -> Iterator[Ledger]:
    """A ledger opened from a copy of its file and log; the original is untouched."""
    _check_exists(path)
    with _copied(path) as copy:
        ledger = Ledger.open(copy, owner_of(copy))
        try:
            yield ledger
        finally:
            ledger.close_file()


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise SettingsError(f"there is no ledger at {path}; give the path of a ledger.db file")


def standings(ledger: Ledger, *, mu2_units_scored: int = 0) -> list[dict[str, Any]]:
    """One row per data set: cap, spent, reserved, left after noised scores, runs."""
    rows, disclosed = [], _disclosed(ledger)
    for dataset, cap in sorted(ledger.books.caps.items()):
        runs = {run: a for (name, run), a in ledger.books.runs.items() if name == dataset}
        rows.append(
            {
                "dataset": dataset,
                "delta": cap.delta,
                "epsilon_cap": cap.epsilon,
                "epsilon_spent": finite(ledger.books.epsilon_spent(dataset)),
                "epsilon_held": finite(epsilon_shown(ledger.books.held(dataset), cap.delta)),
                "epsilon_left": ledger.books.epsilon_left(
                    dataset, mu2_units_scored=mu2_units_scored
                ),
                "pure_slots": _slots(ledger, dataset),
                "runs": [
                    {
                        "run": run,
                        "epsilon_spent": finite(epsilon_shown(account.spent, cap.delta)),
                        "mu2_units": account.spent.mu2_units,
                        "tau_units": account.spent.tau_units,
                        "pure_epsilons": [_pure(units) for units in account.spent.pure],
                        "exact_disclosures": account.spent.exact,
                        "disclosed_rows": disclosed[dataset, run],
                        "closed": account.closed,
                    }
                    for run, account in runs.items()
                ],
            }
        )
    return rows


def _disclosed(ledger: Ledger) -> Counter[tuple[str, str]]:
    """Exact scores of agreed rows by data set and run; epsilon does not cover these rows."""
    found: Counter[tuple[str, str]] = Counter()
    for _, entry in ledger.entries():
        if isinstance(entry, ReleaseBooked):
            found[entry.dataset, entry.run] += entry.event.disclosed_rows
    return found


def _slots(ledger: Ledger, dataset: str) -> list[dict[str, float]]:
    """Size of each pure slot, and how much of it is spent or reserved."""
    held = ledger.books.slots_held(dataset)
    return [
        {"epsilon": _pure(size), "epsilon_held": _pure(taken)}
        for size, taken in zip(ledger.books.slots[dataset], held, strict=True)
    ]


def _pure(units: int) -> float:
    return units * 2.0**-PURE_UNIT_BITS


def show(path: Path, *, as_json: bool) -> int:
    """Print what is spent, reserved and left."""
    with opened_copy(path) as ledger:
        scored_before = ledger.books.mu2_units_scored
        mu2_units_scored = _scored(path, ledger)
        rows = standings(ledger, mu2_units_scored=mu2_units_scored)
    if as_json:
        print(json.dumps(rows))
        return 0
    from rich.console import Console  # noqa: PLC0415 - start-up

    console = Console()
    is_scored = mu2_units_scored or scored_before
    beside = " beside noised scores ('hdpvfl ledger scored')" if is_scored else ""
    for row in rows:
        say(
            f"{row['dataset']}: epsilon {number(row['epsilon_spent'])} is spent, of a cap of "
            f"{row['epsilon_cap']:g} at delta {row['delta']:g}; with open runs "
            f"{number(row['epsilon_held'])}; a further run of at most epsilon "
            f"{number(row['epsilon_left'])} still fits{beside}"
        )
        if row["pure_slots"]:
            slots = [f"{s['epsilon_held']:.4g} of {s['epsilon']:.4g}" for s in row["pure_slots"]]
            say(
                f"pure slots within that cap, spent or reserved: {', '.join(slots)}; what is left "
                "of one never becomes Gaussian budget"
            )
        console.print(_runs_table(row["runs"]))
    say(
        "pure: part of epsilon in pure slots; exact: releases without noise, epsilon infinite; "
        "disclosed: rows whose exact scores left by agreement. Epsilons of runs do not add up; the "
        "squares of mu do, and pure epsilons within a slot"
    )
    return 0


def _runs_table(runs: list[dict[str, Any]]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - start-up

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    for title in ("epsilon", "pure", "exact", "disclosed"):
        table.add_column(title, justify="right")
    table.add_column("state")
    for run in runs:
        state = "closed" if run["closed"] else "open"
        exact = (str(run["exact_disclosures"]), str(run["disclosed_rows"]))
        pure = " + ".join(f"{epsilon:.4g}" for epsilon in run["pure_epsilons"]) or "0"
        table.add_row(run["run"], number(run["epsilon_spent"]), pure, *exact, state)
    return table


def _scored(path: Path, ledger: Ledger) -> int:
    """The most that noised scores have cost one person, from the account beside a ledger."""
    account = path.with_name("scored.db")
    if not account.is_file():
        return 0
    with _copied(account) as copy:
        return scored_cost(ledger, copy)


def verify(path: Path, *, as_json: bool) -> int:
    """Check the hash chain and every rule; IntegrityError names the first broken entry."""
    with opened_copy(path) as ledger:
        ledger.verify()
        head = ledger.head()
    result = {"entries": head.sequence, "head": head.digest.hex(), "sound": True}
    text = f"{head.sequence} entries, chain and rules hold; head {head.digest.hex()}"
    if as_json:
        print(json.dumps(result))
    else:
        say(text)
    return 0


def scored(path: Path, *, as_json: bool) -> int:
    """Check and print the account of scored people beside a ledger; it shows no ids."""
    secret = LedgerSecret(read_secret(secret_file(path), SECRET_BYTES))
    account = path.with_name("scored.db")
    if not account.is_file():
        raise SettingsError(f"there is no {account}: nobody has been scored")
    with opened_copy(path) as ledger, _copied(account) as copy:
        people = ScoredPeople.open(copy, ledger.party, secret)
        try:
            people.verify()
            seen = ledger.remembered().get(ACCOUNT)
            if seen is not None:
                people.redo(ledger.unsynced(), seen[0])
                people.check_restored(seen[0])
            totals = people.totals()
        finally:
            people.close_file()
        delta = min((cap.delta for cap in ledger.books.caps.values()), default=1e-5)
    spent = Spent(totals.pop("mu2_units_most"))
    result = {**totals, "epsilon_most": epsilon_shown(spent, delta), "delta": delta}
    queries = _count(int(result["queries"]), "query", "queries")
    times = _count(int(result["queries_most"]), "time", "times")
    models = _count(int(result["models_most"]), "model", "models")
    text = (
        f"{result['people']:,} people were scored in {queries}; nobody more than {times} or with "
        f"more than {models}; noised scores cost one person at most epsilon "
        f"{result['epsilon_most']:.4g} at delta {delta:g}"
    )
    if as_json:
        print(json.dumps(result))
    else:
        say(text)
    return 0


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Copy a database and its log, so that a process can keep writing to the original."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        yield copy


def export(path: Path, run: str | None = None) -> int:
    """Print every entry as a JSON line: the chain head after it, its commitment, and the opening.

    If a run is given, only its entries are opened, together with the cap that limits them.
    """
    with opened_copy(path) as ledger:
        for line in opened_lines(ledger, run):
            print(json.dumps(line))
    return 0


def opened_lines(ledger: Ledger, run: str | None) -> Iterator[dict[str, Any]]:
    """The lines that `export` prints; a format 1 entry has no opening and omits its fingerprint."""
    datasets = {dataset for dataset, name in ledger.books.runs if name == run}
    if run is not None and not datasets:
        raise SettingsError(f"--run: the ledger has no run {run}; see 'hdpvfl ledger show'")
    for (head, entry), (opening, body) in zip(ledger.entries(), ledger.openings(), strict=True):
        line: dict[str, Any] = {"sequence": head.sequence, "head": head.digest.hex()}
        if opening is not None:
            line["commitment"] = commitment(opening, body).hex()
        is_cap = isinstance(entry, CapFixed) and entry.dataset in datasets
        if run is None or is_cap or getattr(entry, "run", None) == run:
            line["entry"] = json.loads(body)
            if opening is None:
                line["entry"].pop("fingerprint", None)  # lets readers test guesses about rows
            else:
                line |= {"opening": opening.hex(), "body": body.decode()}
        yield line


def new_secret(path: Path, *, as_json: bool) -> int:
    """Make a new secret for a ledger whose secret is lost."""
    _check_exists(path)
    replace_secret(path, owner_of(path))
    if as_json:
        print(json.dumps({"secret": str(secret_file(path))}))
    else:
        say(f"a new secret is in {secret_file(path)}; back it up with the ledger")
    return 0
