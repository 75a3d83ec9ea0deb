"""`hdpvfl check FILE...`: report all faults of settings, policies and manifests, offline.

It owns which schema a file has and what must agree between files; a fault has file, line and
remedy. It opens no journal, no ledger and no connection.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli
from pydantic import BaseModel, ValidationError

from hdpvfl_mq.app.lines import say
from hdpvfl_mq.data.databases import refuse_password
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import HdpvflError, SettingsError
from hdpvfl_mq.runtime.settings import mistakes
from hdpvfl_mq.runtime.toml_lines import line_of
from parties.admission import policy_rules
from parties.process.lifetime import unspent
from schemas.config import (
    BrokerServiceSettings,
    BrokerSettings,
    PartyServiceSettings,
    PartySettings,
    RunManifest,
)
from schemas.ids import COORDINATOR
from schemas.policy import PartyPolicy

# A file has the first schema in this list whose field it contains.
KINDS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("federations", BrokerServiceSettings),
    ("federation", PartyServiceSettings),
    ("passive_parties", RunManifest),
    ("lifetime", PartyPolicy),
    ("members", BrokerSettings),
    ("party", PartySettings),
)
WORDS: dict[type[BaseModel], str] = {
    BrokerServiceSettings: "a broker's service",
    PartyServiceSettings: "a party's service",
    RunManifest: "a manifest",
    PartyPolicy: "a policy",
    BrokerSettings: "a broker of one run",
    PartySettings: "a party of one run",
}
Party = PartyServiceSettings | PartySettings


@dataclass(frozen=True)
class Fault:
    """A mistake in a file, its line, and the remedy."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Checked:
    """A file that is valid under its schema."""

    path: Path
    text: str
    settings: Any

    def fault(self, text: str, *place: str | int) -> Fault:
        """A fault at one setting of this file."""
        return Fault(str(self.path), line_of(self.text, place), text)


def check(options: argparse.Namespace) -> int:
    """Print all faults of all files; returns 1 if there are any."""
    found: list[Checked] = []
    faults: list[Fault] = []
    for path in _with_policies(options.files):
        result = _read(path)
        if isinstance(result, Checked):
            found.append(result)
            faults += _alone(result)
        else:
            faults += result
    faults += _between(found)
    if options.json:
        print(json.dumps([asdict(fault) for fault in faults]))
    else:
        for fault in faults:
            say(f"{fault.file}:{fault.line}: {fault.text}")
        if not faults:
            names = ", ".join(f"{each.path} ({WORDS[type(each.settings)]})" for each in found)
            say(f"good: {names}")
    return 1 if faults else 0


def _with_policies(files: Sequence[Path]) -> list[Path]:
    """The given files and the policies that they name."""
    wanted = list(dict.fromkeys(files))
    for path in files:
        try:
            named = tomli.loads(path.read_text()).get("policy")
        except (OSError, ValueError):
            continue
        if isinstance(named, str) and Path(named).exists() and Path(named) not in wanted:
            wanted.append(Path(named))
    return wanted


def _read(path: Path) -> Checked | list[Fault]:
    try:
        text = path.read_text()
        values = tomli.loads(text)
    except OSError as missing:
        return [Fault(str(path), 1, f"{missing.strerror}: check the path")]
    except UnicodeDecodeError:
        return [Fault(str(path), 1, "is not UTF-8 text: save it as UTF-8")]
    except tomli.TOMLDecodeError as broken:
        line = str(broken).rpartition("line ")[2].split(",")[0]
        return [Fault(str(path), int(line) if line.isdigit() else 1, f"is not TOML: {broken}")]
    return _checked(path, text, values)


def _checked(path: Path, text: str, values: dict[str, Any]) -> Checked | list[Fault]:
    schema = next((kind for field, kind in KINDS if field in values), None)
    if schema is None:
        unknown = "is not a settings file: no field in it tells which kind it is (docs/settings.md)"
        return [Fault(str(path), 1, unknown)]
    try:
        return Checked(path, text, schema.model_validate_json(json.dumps(values)))
    except ValidationError as wrong:
        return [Fault(str(path), line_of(text, place), words) for place, words in mistakes(wrong)]
    except TypeError:
        return [Fault(str(path), 1, "holds a date or time, and no setting is one: quote it")]


# -- one file -------------------------------------------------------------------------------------


def _alone(file: Checked) -> Iterator[Fault]:
    """Faults in the files that this file names, which the schema cannot check."""
    settings = file.settings
    held = getattr(settings, "keys", "$")
    if not held.startswith("$") and not (Path(settings.keys) / "sign.key").exists():
        yield file.fault(f"keys: {settings.keys} holds no keys; 'hdpvfl keys' makes them", "keys")
    if isinstance(settings, Party):
        if not Path(settings.policy).exists():
            yield file.fault(f"policy: there is no file {settings.policy}", "policy")
        yield from _data(file)


def _data(file: Checked) -> Iterator[Fault]:
    data = file.settings.data
    try:
        refuse_password(data.source or "")
    except SettingsError as secret:
        yield file.fault(str(secret), "data", "source")
    if data.file is None or "://" in data.file:
        return
    if not Path(data.file).exists():
        yield file.fault(f"data.file: there is no file {data.file}", "data", "file")
        return
    try:
        columns = TableFile.of(data).names
    except HdpvflError as unreadable:
        yield file.fault(f"data.file: {unreadable}", "data", "file")
        return
    named = {
        "id_columns": data.id_columns,
        "label_column": (data.label_column,) if data.label_column else (),
        "weight_column": (data.weight_column,) if data.weight_column else (),
        "columns": data.columns or (),
    }
    for field, wanted in named.items():
        for column in wanted:
            if column not in columns:
                text = f"data.{field}: {data.file} has no column {column}; check its spelling"
                yield file.fault(text, "data", field)
    for number, rule in enumerate(data.rules):
        if rule.name not in columns:
            text = f"data.rules: {data.file} has no column {rule.name}; check its spelling"
            yield file.fault(text, "data", "rules", number, "name")


# -- between files --------------------------------------------------------------------------------


def _between(files: Sequence[Checked]) -> Iterator[Fault]:
    manifests = [each for each in files if isinstance(each.settings, RunManifest)]
    policies = {each.path: each for each in files if isinstance(each.settings, PartyPolicy)}
    parties = [each for each in files if isinstance(each.settings, Party)]
    brokers = [each for each in files if isinstance(each.settings, BrokerSettings)]
    for manifest in manifests:
        for party in parties:
            yield from _party_and_manifest(party, manifest)
            policy = policies.pop(Path(party.settings.policy), None)
            if policy is not None:
                yield from _policy_and_manifest(policy, party.settings.party, manifest)
        for policy in policies.values():  # no settings name it: check it as a passive party's
            name = manifest.settings.passive_parties[0]
            yield from _policy_and_manifest(policy, name, manifest)
        for broker in brokers:
            yield from _broker_and_manifest(broker, manifest)
    for broker in brokers:
        for party in parties:
            yield from _keys(broker, party)


def _party_and_manifest(party: Checked, manifest: Checked) -> Iterator[Fault]:
    settings, run = party.settings, manifest.settings
    if isinstance(settings, PartySettings) and settings.run != run.run:
        yield party.fault(f"run: is {settings.run}, {manifest.path} says {run.run}", "run")
    if settings.party not in run.parties:
        yield manifest.fault(
            f"passive_parties: {settings.party} of {party.path} is not named", "passive_parties"
        )
    elif (settings.party == run.active_party) != (settings.role == "active"):
        yield party.fault(f"role: is {settings.role}, {manifest.path} says otherwise", "role")
    if isinstance(settings, PartySettings):
        known = {peer.party for peer in settings.peers} | {settings.party}
        for missing in [name for name in (*run.parties, COORDINATOR) if name not in known]:
            yield party.fault(f"peers: {missing} of {manifest.path} is missing; add it", "peers")
    for field in type(settings.ids).model_fields:
        mine, theirs = getattr(settings.ids, field), getattr(run.alignment.ids, field)
        if mine != theirs:
            text = f"ids.{field}: is {mine}, {manifest.path} says {theirs}; make them equal"
            yield party.fault(text, "ids", field)


def _policy_and_manifest(policy: Checked, party: str, manifest: Checked) -> Iterator[Fault]:
    """Every policy rule that the run breaks, for a ledger with nothing spent."""
    for rule in policy_rules(policy.settings, party, manifest.settings, unspent(policy.settings)):
        field = rule.removeprefix("policy.").split(" ")[0].split(":")[0]
        yield policy.fault(f"{rule} ({manifest.path})", *field.split("."))


def _broker_and_manifest(broker: Checked, manifest: Checked) -> Iterator[Fault]:
    members, wanted = {m.party for m in broker.settings.members}, set(manifest.settings.parties)
    for missing in sorted(wanted - members):
        yield broker.fault(f"members: {missing} of {manifest.path} is missing; add it", "members")
    for stranger in sorted(members - wanted):
        text = f"members: {stranger} is not in {manifest.path}; remove it, or name it there"
        yield broker.fault(text, "members")


def _keys(broker: Checked, party: Checked) -> Iterator[Fault]:
    """Faults for members that have two different signing keys."""
    stated = {member.party: member.verify_key for member in broker.settings.members}
    for number, peer in enumerate(party.settings.peers):
        if stated.get(peer.party, peer.verify_key) != peer.verify_key:
            text = f"peers: {peer.party} has another verify_key in {broker.path}; ask {peer.party}"
            yield party.fault(text, "peers", number, "verify_key")
