"""The local demo: a data set split between parties, with their keys, policies and settings.

It owns what `hdpvfl up` writes before it starts production processes; rows.py splits the rows.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.demo.own_files import OWN, OWN_FILES_LIFETIME_EPSILON, own_dataset
from hdpvfl_mq.app.demo.rows import Split, split_rows, write_split
from hdpvfl_mq.data.bundled import OVERLAP, SplitDataset, load_dataset
from hdpvfl_mq.data.cards import CARDS
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.runtime.keys import Keys, load_or_make_keys
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.base import Strict
from schemas.config import (
    BrokerServiceSettings,
    BrokerSettings,
    FederationSettings,
    Member,
    PartyServiceSettings,
    PartySettings,
    Peer,
    RunManifest,
)
from schemas.ids import COORDINATOR, RoleName
from schemas.policy import PartyPolicy
from schemas.privacy import Budget

ACTIVE = "active"
# A public data set has no people to protect: the cap is wide, and the ledger still counts.
DEMO_LIFETIME_EPSILON = 1000.0
DEMO_SLOTS = 8  # number of runs with bounded noise that fit into a demo's ledger


@dataclass(frozen=True)
class Demo:
    """A run whose files are on disk."""

    folder: Path
    manifest: RunManifest
    dataset: SplitDataset
    seed: int

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active party first."""
        return self.manifest.parties

    @property
    def summary(self) -> Path:
        """The summary file, written when the run has completed."""
        return self.folder / "summary.json"

    def settings(self, name: str) -> Path:
        """The settings file of a process that serves only this run."""
        return self.folder / "settings" / f"{name}.toml"

    def service(self, name: str) -> Path:
        """The settings file of a service, which can also serve other runs."""
        return self.folder / "services" / f"{name}.toml"

    @property
    def federation(self) -> str:
        """The name of the federation on this machine."""
        return f"{self.manifest.run[:60]}.fed"

    def rows(self, party: str, part: str) -> Path:
        """The file with a party's train or test rows."""
        return self.folder / "data" / f"{party}_{part}.csv"

    def tables(self) -> dict[str, Table]:
        """Each party's columns of the data set, the active party's first."""
        parts = self.dataset.parts(len(self.manifest.passive_parties))
        return dict(zip(self.parties, (self.dataset.active, *parts), strict=True))


def dataset_of(folder: Path, *, further: Path | None, cache: Path) -> SplitDataset:
    """The data set of a run that was prepared earlier."""
    name = (folder / "settings" / "dataset").read_text()
    if name != OWN:
        return load_dataset(name, folder=further, cache=cache)
    manifest = load_settings(RunManifest, folder / "settings" / "manifest.toml")
    files = [folder / "data" / f"{party}_train.csv" for party in manifest.parties]
    tables = [load_table(file) for file in files]
    return own_dataset(tables[0], tables[1:])


def passive_names(count: int) -> tuple[str, ...]:
    """Names of the demo's passive parties."""
    return tuple(f"passive-{number}" for number in range(1, count + 1))


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(port: int) -> None:
    """Refuse a port that is in use, before any process starts."""
    if not 0 < port < 2**16:
        raise SettingsError(f"port = {port}: choose a port between 1 and 65535")
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise OperatorError(
                f"port {port} is in use; stop what uses it, or leave --port out"
            ) from None


def write_demo(demo: Demo, *, state: Path, port: int) -> None:
    """Write everything the processes read: rows, keys, policies, manifest, settings."""
    write_settings(demo, state=state, port=port)
    write_rows(demo, split_rows(demo.tables(), seed=demo.seed))


def write_rows(demo: Demo, split: Split) -> None:
    """Write every party's rows; from then on the run can be resumed."""
    write_split(split, demo.rows)
    demo.settings("manifest").with_name("dataset").write_text(demo.dataset.name)


def write_settings(demo: Demo, *, state: Path, port: int) -> None:
    """Write what services read when they start: keys, policies, manifest, settings."""
    tables = demo.tables()
    keys = {p: load_or_make_keys(demo.folder / "keys" / p) for p in (*tables, COORDINATOR)}
    write = _writer(demo)
    write("manifest", demo.manifest)
    write("policy", _policy(demo))
    write(COORDINATOR, _broker_settings(demo, keys, port))
    for party, table in tables.items():
        write(party, _party_settings(demo, party, table=table, keys=keys, state=state, port=port))
    write_services(demo, state=state)


def write_services(demo: Demo, *, state: Path) -> None:
    """Write the settings of services, derived from those of processes that serve only this run."""
    broker = load_settings(BrokerSettings, demo.settings(COORDINATOR))
    members = FederationSettings(name=demo.federation, members=broker.members)
    _put(
        demo.service(COORDINATOR),
        BrokerServiceSettings(
            bind=broker.bind,
            keys=broker.keys,
            runs=broker.runs,
            state=str(state),
            federations=(members,),
        ),
    )
    for party in demo.parties:
        alone = fields_of(load_settings(PartySettings, demo.settings(party)))
        registrar = next(peer for peer in alone["peers"] if peer.party == COORDINATOR)
        same = {k: v for k, v in alone.items() if k in PartyServiceSettings.model_fields}
        _put(
            demo.service(party),
            PartyServiceSettings(
                **same, federation=demo.federation, broker_verify_key=registrar.verify_key
            ),
        )


def _writer(demo: Demo) -> Callable[[str, Strict], None]:
    def write(name: str, model: Strict) -> None:
        _put(demo.settings(name), model)

    return write


def _put(path: Path, model: Strict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump_settings(model))


def _demo_names() -> tuple[str, ...]:
    return (*CARDS, *(f"{name}{OVERLAP}" for name in CARDS))


def _policy(demo: Demo) -> PartyPolicy:
    budget = demo.manifest.budget
    cap = OWN_FILES_LIFETIME_EPSILON if demo.dataset.name == OWN else DEMO_LIFETIME_EPSILON
    return PartyPolicy(
        dataset=demo.dataset.name,
        # Ids of public data sets are row numbers, so costs of equal ids do not add up.
        budget_apart_from=tuple(name for name in _demo_names() if name != demo.dataset.name),
        lifetime=Budget(epsilon=cap, delta=budget.delta if budget else 1e-2),
        run_epsilon_max=cap,
        guarantees=(demo.manifest.guarantee,),
        rows_min=demo.manifest.alignment.rows_min,
        learned_constants=True,
        exact_scoring=False,
        proposals="accept",
        **_modes(demo.manifest),
    )


def _modes(manifest: RunManifest) -> dict[str, Any]:
    """Modes that a policy must allow before a method may depart from its defaults."""
    asks, allowed = manifest.method.asks, dict[str, Any]()
    if asks.noise == "bounded" and manifest.budget:
        slots = (manifest.budget.epsilon,) * DEMO_SLOTS
        allowed |= {"noises": ("gaussian", "bounded"), "pure_slots": slots}
    if asks.disclosed_rows:
        # The data are public: as many runs as there are slots may disclose rows.
        allowed["disclosed_rows_max"] = DEMO_SLOTS * asks.disclosed_rows
    return allowed


def _broker_settings(demo: Demo, keys: dict[str, Keys], port: int) -> BrokerSettings:
    return BrokerSettings(
        bind=f"tcp://127.0.0.1:{port}",
        keys=str(demo.folder / "keys" / COORDINATOR),
        manifest=str(demo.settings("manifest")),
        runs=str(demo.folder.parent),
        members=tuple(
            Member(
                party=party,
                role="active" if party == demo.manifest.active_party else "passive",
                verify_key=keys[party].verify_hex,
                curve_key=keys[party].curve_public.hex(),
            )
            for party in demo.parties
        ),
    )


def _party_settings(
    demo: Demo, party: str, *, table: Table, keys: dict[str, Keys], state: Path, port: int
) -> PartySettings:
    data = demo.dataset.settings(table, FAMILIES[demo.manifest.loss.name].label_kind)
    active = demo.manifest.active_party
    roles: dict[str, RoleName] = {COORDINATOR: "coordinator", active: "active"}
    return PartySettings(
        party=party,
        role="active" if party == active else "passive",
        run=demo.manifest.run,
        broker=f"tcp://127.0.0.1:{port}",
        broker_curve_key=keys[COORDINATOR].curve_public.hex(),
        keys=str(demo.folder / "keys" / party),
        policy=str(demo.settings("policy")),
        runs=str(demo.folder.parent),
        state=str(state),
        ids=demo.manifest.alignment.ids,
        data=type(data)(**{**dict(data), "file": str(demo.rows(party, "train"))}),
        wire=demo.manifest.wire,
        peers=tuple(
            Peer(
                party=peer,
                role=roles.get(peer, "passive"),
                verify_key=keys[peer].verify_hex,
            )
            for peer in (*demo.parties, COORDINATOR)
            if peer != party
        ),
    )
